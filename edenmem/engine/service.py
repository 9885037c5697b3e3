"""`MemoryService`: the whole of edenmem for a program that runs agents.

    async with MemoryService.from_settings() as service:
        await service.ensure_session("chat-42", agents=["mira"], users=["lena"])
        context = await service.get_memory_context("chat-42")       # before the agent answers
        ...                                                         # the agent answers
        await service.add_messages("chat-42", [                     # unless the host stores them
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
        ])
        await service.maybe_form_memories("chat-42")                # after it has answered

Every method is safe to call from any number of tasks at once: what must not happen twice is
guarded in the database, not here.

For operators there is a part for each room of the engine, made when it is first needed, such as
`MemoryService.history` or `MemoryService.erasure`: all that the command line does goes through
them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

import msgspec

from edenmem.engine import parts
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.current_actor import current_actor
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes import lookups
from edenmem.engine.scopes.visibility import current_view, reader_scopes
from edenmem.errors import UsageError
from edenmem.models.formation import Reach, Trigger
from edenmem.models.ids import is_id, utc_now
from edenmem.models.scope import Scope, ScopeKind

if TYPE_CHECKING:
    from edenmem.embed.protocol import Embedder, QueryShelf
    from edenmem.engine.access.tokens import TokenKeeper
    from edenmem.engine.agent_memory import AgentMemory
    from edenmem.engine.cold.sessions import ColdSessions
    from edenmem.engine.consolidation.consolidator import Consolidator
    from edenmem.engine.context.builder import ContextBuilder
    from edenmem.engine.context.recall import RecallMode
    from edenmem.engine.edits.editor import Editor
    from edenmem.engine.edits.near_duplicates import FactMerger
    from edenmem.engine.erasure.forgetting import Forgetter
    from edenmem.engine.formation.former import Former
    from edenmem.engine.history.reader import HistoryReader
    from edenmem.engine.indexes.manager import IndexKeeper
    from edenmem.engine.indexes.setup import Setup
    from edenmem.engine.migration.migrations import Migrations
    from edenmem.engine.reports import (
        ConsolidationReport,
        ContextReport,
        FormationReport,
        MemoryKind,
        MemoryStats,
        ScopeStatus,
        SearchReport,
    )
    from edenmem.engine.scopes.readers import HostReader, MemoryReader, ScopeReader
    from edenmem.engine.scopes.references import Resolver
    from edenmem.engine.search.searcher import Searcher
    from edenmem.engine.search.why_not import Detective
    from edenmem.llm.protocol import LLM
    from edenmem.models.changes import Actor
    from edenmem.models.host import Agent, Message, Session, User
    from edenmem.rerank.protocol import Reranker
    from edenmem.settings.schema import Settings
    from edenmem.store.protocol.store import Store

T = TypeVar("T")


class SearchOptions(TypedDict, total=False):
    """How to search; `edenmem.engine.search.searcher.Searcher.search` says what each one means."""

    recipe: str | None
    top_k: int | None
    since: datetime | None
    until: datetime | None
    session_id: str | None
    track: bool
    rerank: bool | None
    recency: bool | None
    mmr: bool | None
    exact: bool
    vectors: Sequence[bytes] | None
    vector_model: str | None


#: Outcomes of a formation after which there may be something new in memory.
_CHANGED = frozenset({"applied", "resumed"})
#: Outcomes of a formation that had nothing to do.
_IDLE = frozenset({"not_due", "incognito"})


def _has_changes(report: FormationReport) -> bool:
    """Whether there may be something new in memory, if only the facts of a range."""
    facts = report.facts_added + report.facts_revised + report.facts_removed
    return report.outcome in _CHANGED or (facts > 0 and report.outcome != "dry_run")


class MemoryService:
    """Long-term memory for agents: contexts, formation, consolidation and search.

    Sessions, agents and users are given by ID (24 hex digits) or by name. An ``agent_id`` may be
    left out: then formation works for every agent of the session, and a context is that of its
    first.

    Args:
        store: Where memory is; see `edenmem.engine.factory.open_store`.
        settings: All limits, models and modes.
        llm: Forms and consolidates; None: whatever needs it raises `ConfigError`, all else works.
        embedder: Gives facts and queries their vectors; None: as for ``llm``, text search works.
        reranker: Reads what a search found, if it is asked to; None: that raises `ConfigError`.
        actor: Who is written into history and audit; None: this user on this host.
        clock: The current time, for tests.
        query_shelf: Keeps the vectors of queries beyond this process; None: they are kept in
            memory only (``search.query_cache`` of them).

    The service owns what it is given: `close` closes the store and the providers too.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        llm: LLM | None = None,
        embedder: Embedder | None = None,
        reranker: Reranker | None = None,
        actor: Actor | None = None,
        clock: Callable[[], datetime] = utc_now,
        query_shelf: QueryShelf | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._runtime = Runtime(
            store,
            settings,
            llm=llm,
            embedder=embedder,
            reranker=reranker,
            find_actor=(lambda: actor) if actor is not None else current_actor,
            clock=clock,
            query_shelf=query_shelf,
        )

    @classmethod
    def from_runtime(cls, runtime: Runtime) -> MemoryService:
        """Return a service that works with this runtime."""
        service = cls(runtime.store, runtime.settings)
        service._runtime = runtime
        return service

    def for_actor(self, actor: Actor) -> MemoryService:
        """Return a service on the same store and models whose changes this actor makes."""
        return self.from_runtime(self._runtime.for_actor(actor))

    @classmethod
    def without_models(
        cls, settings: Settings, *, find_actor: Callable[[], Actor] = current_actor
    ) -> MemoryService:
        """Return a service for the configured store alone; see `with_models`.

        Args:
            settings: The configuration.
            find_actor: Tells who is written into history and audit, when something is.
        """
        from edenmem.engine.factory import open_store

        return cls.from_runtime(Runtime(open_store(settings), settings, find_actor=find_actor))

    @asynccontextmanager
    async def with_models(
        self, *, llm: bool = True, embedder: bool = True, reranker: bool = True
    ) -> AsyncIterator[MemoryService]:
        """Yield a service on the same store with the configured models, closed afterwards.

        Raises:
            ConfigError: a provider is configured that cannot be had.
        """
        from edenmem.engine import factory

        settings = self._settings
        budget = factory.open_budget(settings)
        runtime = msgspec.structs.replace(
            self._runtime,
            llm=factory.open_llm(settings, budget=budget) if llm else None,
            embedder=factory.open_embedder(settings, budget=budget) if embedder else None,
            reranker=factory.open_reranker(settings, budget=budget) if reranker else None,
            query_shelf=factory.open_query_shelf(settings),
        )
        service = self.from_runtime(runtime)
        try:
            yield service
        finally:
            await service.close_models()

    @classmethod
    def from_settings(
        cls, settings: Settings | None = None, *, actor: Actor | None = None
    ) -> MemoryService:
        """A service for the configured store and providers; nothing is connected to yet.

        Args:
            settings: The configuration; None: environment, ``edenmem.toml`` and defaults, as the
                command line reads them.
            actor: Who is written into history and audit.

        Raises:
            ConfigError: a setting is unknown or has a value it may not have.
        """
        from edenmem.engine import factory

        if settings is None:
            from edenmem.settings.load import load_settings

            settings = load_settings().settings
        budget = factory.open_budget(settings)
        return cls(
            factory.open_store(settings),
            settings,
            llm=factory.open_llm(settings, budget=budget),
            embedder=factory.open_embedder(settings, budget=budget),
            reranker=factory.open_reranker(settings, budget=budget),
            actor=actor,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def initialise(self) -> None:
        """Make the store, or what is missing in it. Safe to call at every start.

        Raises:
            StoreError: the store cannot be used, or is of a newer edenmem.
        """
        await in_thread(self._store.database.initialise)

    async def close(self) -> None:
        """Let go of files, sockets and connections."""
        try:
            await self.close_models()
        finally:
            await in_thread(self.close_store)

    async def close_models(self) -> None:
        """Let go of the models; the store stays open."""
        runtime = self._runtime
        for provider in (runtime.llm, runtime.embedder, runtime.reranker):
            if provider is not None:
                await provider.close()

    def close_store(self) -> None:
        """Let go of the store; blocks."""
        self._store.database.close()

    @property
    def script(self) -> str:
        """What answers in place of a language model, in words; "" if a model does."""
        llm = self._runtime.llm
        return llm.description if llm is not None and llm.is_scripted else ""

    @property
    def store(self) -> Store:
        """The store, for what the host keeps itself: agents, users and sessions. Its methods
        block; call them from a thread."""
        return self._store

    @property
    def can_form(self) -> bool:
        """Whether there is a language model, without which no memories are formed."""
        return self._runtime.llm is not None

    # -- contexts ------------------------------------------------------------------------------

    async def assemble_context(
        self,
        session_id: str,
        *,
        agent_id: str | None = None,
        user_id: str | None = None,
        message: str | None = None,
        recall: RecallMode | None = None,
        force_refresh: bool = False,
        as_of: datetime | None = None,
        keep: bool = True,
    ) -> ContextReport:
        """The memory that belongs into an agent's prompt, as XML, with what it was made of.

        It is cached with the session for five minutes (a setting), but never beyond a change in
        one of its scopes or in who takes part in the session: with a second person in it, no
        user's memory is in the context.

        Args:
            session_id: The conversation.
            agent_id: The agent that is about to answer; None: the session's first.
            user_id: Whom it is about to answer, if the host knows. Somebody who is not among the
                session's users makes it a group chat.
            message: What is about to be answered, for recall; None: the newest message of a
                person in the session.
            recall: "off", "heuristic", "llm" or "always"; None: the setting ``context.recall``.
                What recall finds is added to this context only. If recall fails, the context
                comes without, and the report's ``recall`` says why.
            force_refresh: Do not use a cached context.
            as_of: The context as it would have been at this moment.
            keep: Cache a context that is built. One that ``user_id`` changes is never cached.

        Raises:
            NotFoundError: there is no such session, or the agent is not one of its agents.
            UsageError: recall together with ``as_of``.
            StoreError: the database cannot be used.
        """
        session, agents = await in_thread(
            lookups.session_and_agents, self._store, session_id, agent_id
        )
        return await self._contexts.build(
            session,
            agents[0],
            speaker=await self._speaker(user_id),
            message=message,
            recall=recall,
            force_refresh=force_refresh,
            as_of=as_of,
            keep=keep,
        )

    async def get_memory_context(
        self,
        session_id: str,
        *,
        agent_id: str | None = None,
        user_id: str | None = None,
        message: str | None = None,
        recall: RecallMode | None = None,
        force_refresh: bool = False,
    ) -> str:
        """`assemble_context`, as the XML alone: what goes into the prompt."""
        session, agents = await in_thread(
            lookups.session_and_agents, self._store, session_id, agent_id
        )
        report = await self._contexts.build(
            session,
            agents[0],
            speaker=await self._speaker(user_id),
            message=message,
            recall=recall,
            force_refresh=force_refresh,
            measured=False,
        )
        return report.xml

    async def _speaker(self, user: str | None) -> str | None:
        """The ID of the account that is about to be answered; a thread is not worth it for one
        that is given by ID."""
        if user is None or (isinstance(user, str) and is_id(user)):
            return user
        return await in_thread(lookups.speaker_id, self._store, user)

    # -- conversations -------------------------------------------------------------------------

    async def ensure_agent(self, agent: str, *, owner: str | None = None) -> Agent:
        """Return the agent with this name or ID; add it, with its memory on, if there is none.

        Args:
            agent: The host's name for it, which becomes its username.
            owner: Who owns an agent that is added; MongoDB demands one.

        Raises:
            UsageError: the name is blank, or the store demands an owner.
            ConflictError: the agent was deleted.
        """
        from edenmem.engine.sessions.conversation import ensure_agent

        return await in_thread(ensure_agent, self._runtime, agent, owner=owner)

    async def ensure_user(self, user: str) -> User:
        """Return the user with this name or ID; add an account if there is none.

        Args:
            user: The host's name or key for the user, which becomes the username.

        Raises:
            UsageError: the name is blank.
            ConflictError: the account was deleted.
        """
        from edenmem.engine.sessions.conversation import ensure_user

        return await in_thread(ensure_user, self._runtime, user)

    async def ensure_session(
        self,
        session: str,
        *,
        agents: Sequence[str],
        users: Sequence[str] = (),
        group: str | None = None,
        title: str | None = None,
        incognito: bool = False,
    ) -> Session:
        """Return the session with the host's key, with these agents and users in it; add the
        session, and agents and users that nobody knows.

        Args:
            session: The host's key of the conversation, such as "chat-42".
            agents: Who answers, by name or ID.
            users: Who asks, by name or ID. With a second user in it, no user's memory is used.
            group: The group that a new session belongs to.
            title: The title of a new session.
            incognito: Whether nothing is remembered of a new session.

        Raises:
            UsageError: a name is blank, or the store demands an owner.
            ConflictError: something was deleted, or the session is not incognito as it should be.
        """
        from edenmem.engine.sessions import conversation

        for named in (agents, users):
            if isinstance(named, str):
                raise UsageError(f"agents and users must be lists: {named!r:.60}")

        def ensure() -> Session:
            people = [conversation.ensure_user(self._runtime, user) for user in users]
            owner = people[0].id if people else None
            return conversation.ensure_session(
                self._runtime,
                session,
                agents=[
                    conversation.ensure_agent(self._runtime, agent, owner=owner) for agent in agents
                ],
                users=people,
                group=group,
                title=title,
                incognito=incognito,
            )

        return await in_thread(ensure)

    async def add_messages(
        self,
        session_id: str,
        messages: Sequence[Message | Mapping[str, Any]],
        *,
        user: str | None = None,
        agent: str | None = None,
    ) -> int:
        """Store messages of a session, for hosts that do not store them themselves.

        A dict is a message in the form of chat APIs: ``role`` and ``content`` (a text or parts),
        ``tool_calls``, and if the host has them ``name`` (who wrote it), ``created_at`` and
        ``id``. Messages whose ids the session has already are left alone, so the same ones may be
        handed over twice; a dict without an ``id`` is new each time. People who wrote and are not
        among the session's users yet are added to them.

        Args:
            session_id: The conversation.
            messages: In order.
            user: Who wrote the messages of people that name nobody; None: the session's only user.
            agent: Which agent wrote the answers that name none; None: the session's first.

        Returns:
            How many were new.

        Raises:
            NotFoundError: there is no such session, or a sender does not exist.
            UsageError: it is no list of messages, or nobody can tell who wrote one.
            InputError: a dict is not a message.
        """
        from edenmem.engine.sessions.conversation import store_messages

        return await in_thread(
            store_messages, self._runtime, session_id, messages, user=user, agent=agent
        )

    async def on_session_start(
        self, session_id: str, *, agent_id: str | None = None, user_id: str | None = None
    ) -> ContextReport:
        """Build the context anew as a session begins, or is taken up again."""
        return await self.assemble_context(
            session_id, agent_id=agent_id, user_id=user_id, recall="off", force_refresh=True
        )

    async def on_session_end(
        self, session_id: str, *, agent_id: str | None = None
    ) -> list[FormationReport]:
        """Form what is left of a session that ended, and consolidate all that waits in the scopes
        it writes to, whatever the intervals and thresholds say. Paused scopes are left alone."""
        return await self.form_memories(session_id, agent_id=agent_id, trigger=Trigger.SESSION_END)

    async def process_cold_session(self, session_id: str) -> list[FormationReport]:
        """Form what is left of a session that went quiet, for all of its agents."""
        return await self.form_memories(session_id, trigger=Trigger.COLD)

    # -- formation -----------------------------------------------------------------------------

    async def maybe_form_memories(
        self, session_id: str, *, agent_id: str | None = None
    ) -> list[FormationReport]:
        """Form memories if enough was said since the last time; cheap if not.

        To be called after each answer of an agent. Safe to call from several places at once.

        Returns:
            What was done; empty if nothing was due.
        """
        reports = await self.form_memories(session_id, agent_id=agent_id, trigger=Trigger.THRESHOLD)
        return [report for report in reports if report.outcome not in _IDLE]

    async def form_memories(
        self,
        session_id: str,
        *,
        agent_id: str | None = None,
        trigger: Trigger = Trigger.FORCED,
        dry_run: bool = False,
        consolidate: bool = True,
        reach: Reach = Reach.WAITING,
        is_time_up: Callable[[], bool] | None = None,
    ) -> list[FormationReport]:
        """Make memories of what was said since the last time.

        Facts and reflections are formed and applied, then the scopes that reached their threshold
        are consolidated, all at once, and the session's cached context is built anew. A failure
        of the model is in the report; the messages wait for the next try.

        Args:
            session_id: The conversation.
            agent_id: For this agent; None: for each of the session's agents.
            trigger: Why; decides how much there must be.
            dry_run: Ask the models and report what would be written, but write nothing.
            consolidate: Also consolidate what is due; False leaves it to a later run.
            reach: Which messages: those that neither edenmem nor the platform formed, or more.
            is_time_up: Tells, when the work is cancelled, whether its time was up. The first range
                had all the time then: if the models answer others, it counts as a failed try.

        Returns:
            One report for each range of messages and agent, consolidations with an agent's last.

        Raises:
            NotFoundError: there is no such session, or the agent is not one of its agents.
            ConfigError: a model is needed and none is configured.
            UnavailableError: a provider or the database cannot be used now. What was formed
                before that stays formed; the rest of the messages wait.
        """
        session, agents = await in_thread(
            lookups.session_and_agents, self._store, session_id, agent_id
        )
        reports = await _all(
            self._form(
                session,
                agent,
                trigger=trigger,
                dry_run=dry_run,
                consolidate=consolidate,
                reach=reach,
                is_time_up=is_time_up,
            )
            for agent in agents
        )
        return [report for of_agent in reports for report in of_agent]

    async def remember(
        self, text: str, *, agent_id: str, user_id: str | None = None, dry_run: bool = False
    ) -> FormationReport:
        """Extract the facts of any text, and keep what is new of them.

        Args:
            text: What is to be remembered; a long one is read in several parts.
            agent_id: Whose memory.
            user_id: Who says it: the facts about them go to this account's memory. None: nobody
                in particular, so that facts go to the agent's own memory and its shards'.
            dry_run: Ask the models and report what would be kept, but write nothing.

        Returns:
            The report of a formation without session and messages.

        Raises:
            NotFoundError: there is no such agent or user.
            UsageError: there is no text.
            ScopeError: no scope would take a fact: memory is off or paused.
            ConfigError: no language model is configured.
            ProviderError: a model failed; what was kept before stays, and giving the same text
                again adds nothing twice.
        """
        from edenmem.engine.formation.notes import remember

        agent = await in_thread(lookups.existing_agent, self._store, agent_id)
        user = None
        if user_id is not None:
            user = await in_thread(lookups.existing_user, self._store, user_id)
        return await remember(self._runtime, text, agent, user, dry_run=dry_run)

    async def _form(
        self,
        session: Session,
        agent: Agent,
        *,
        trigger: Trigger,
        dry_run: bool,
        consolidate: bool,
        reach: Reach,
        is_time_up: Callable[[], bool] | None,
    ) -> list[FormationReport]:
        reports = await self._former.form(
            session,
            agent,
            trigger=trigger,
            dry_run=dry_run,
            reach=reach,
            is_time_up=is_time_up,
        )
        at_end = trigger is Trigger.SESSION_END
        if dry_run or not (at_end or any(_has_changes(report) for report in reports)):
            return reports
        try:
            if consolidate:
                written = await self._consolidate_due(session, agent, at_end=at_end)
                last = msgspec.structs.replace(reports[-1], consolidations=tuple(written))
                reports = [*reports[:-1], last]
        finally:
            await self._contexts.refresh(session, agent)
        return reports

    # -- consolidation -------------------------------------------------------------------------

    async def consolidate_session(
        self, session_id: str, *, agent_id: str | None = None
    ) -> list[ConsolidationReport]:
        """Consolidate what is due among the scopes that a session writes to: what a process that
        died between forming and consolidating left behind.

        A few reads if nothing is due.

        Args:
            session_id: The conversation.
            agent_id: Of this agent; None: of each of the session's agents.

        Raises:
            NotFoundError: there is no such session, or the agent is not one of its agents.
            ConfigError: a model is needed and none is configured.
        """
        session, agents = await in_thread(
            lookups.session_and_agents, self._store, session_id, agent_id
        )
        reports: list[ConsolidationReport] = []
        for agent in agents:
            written = await self._consolidate_due(session, agent)
            if any(report.outcome == "written" for report in written):
                await self._contexts.refresh(session, agent)
            reports.extend(written)
        return reports

    async def _consolidate_due(
        self, session: Session, agent: Agent, *, at_end: bool = False
    ) -> list[ConsolidationReport]:
        view = await in_thread(current_view, self._store, session, agent)
        due = await self._consolidator.due(view.writes_reflections, at_once=at_end)
        return await self._consolidator.consolidate_many(due, force=at_end)

    async def consolidate(
        self, scope: Scope, *, force: bool = False, dry_run: bool = False
    ) -> ConsolidationReport:
        """Work one scope's pending reflections into its text, if it is due.

        Args:
            scope: Which.
            force: Also if fewer are pending than its threshold, and although it is paused.
            dry_run: Ask the model and report the text that it would get, but write nothing.

        Raises:
            NotFoundError: the agent does not exist.
            ConfigError: a model is needed and none is configured.
        """
        return await self._consolidator.consolidate(scope, force=force, dry_run=dry_run)

    async def consolidate_all(
        self,
        *,
        agent_id: str | None = None,
        kinds: Sequence[ScopeKind] = (),
        user_id: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> list[ConsolidationReport]:
        """`consolidate` for every scope that is due, several at once.

        Args:
            agent_id: Only of this agent; None: of all.
            kinds: Only of these kinds; empty: of all.
            user_id: Only of this user's accounts.
            force: Every scope that has anything pending.
            dry_run: Write nothing.

        Returns:
            One report for each scope that was due (with ``force``: that had anything pending). A
            scope that failed keeps no other from being done.
        """
        scopes = await in_thread(
            lookups.waiting_scopes,
            self._store,
            self._settings,
            agent_id=agent_id,
            kinds=tuple(kinds),
            user_id=user_id,
            every=force,
        )
        return await self._consolidator.consolidate_many(scopes, force=force, dry_run=dry_run)

    # -- search --------------------------------------------------------------------------------

    async def search(
        self,
        queries: str | Sequence[str],
        *,
        agent_id: str,
        user_id: str | None = None,
        account_id: str | None = None,
        group_id: str | None = None,
        shards: Sequence[str] | None = None,
        kinds: Sequence[ScopeKind] | None = None,
        within: Sequence[MemoryKind] = ("facts",),
        **options: Unpack[SearchOptions],
    ) -> SearchReport:
        """Search an agent's memory as an operator: the agent's own, its shards', and that of the
        user and the group that are named. Without ``user_id`` no user's memory is seen.

        Args:
            queries: One, or up to three that run together.
            agent_id: Whose memory.
            user_id: This user's facts too, those of all their accounts; any account names the user.
            account_id: Of the user's accounts only this one.
            group_id: This group's facts too.
            shards: Only these of the agent's shards; None: all.
            kinds: Only scopes of these kinds; None: all that may be seen.
            within: "facts", "reflections" and "texts"; reflections and texts are found by their
                words alone, those of the session's own scope too if ``session_id`` is given.
            **options: See `SearchOptions`.

        Raises:
            NotFoundError: there is no such agent or shard.
            ScopeError: a kind is asked for whose owner is not named.
            ConfigError: it is to be reranked, and no reranker is configured.
            EmbeddingModelMismatch: the stored vectors are of another model.
            ProviderError: the query could not be embedded, or what was found not be reranked.
        """
        from edenmem.engine.search.request import validate_filters

        chosen, asked = validate_filters(within, kinds, options.get("since"), options.get("until"))
        agent = await in_thread(lookups.existing_agent, self._store, agent_id)
        talk: tuple[Scope, ...] = ()
        if session_ref := options.get("session_id"):
            session = await in_thread(lookups.existing_session, self._store, session_ref)
            options["session_id"] = session.id
            if not asked or ScopeKind.SESSION in asked:
                talk = (Scope.session(agent.id, session.id),)
        own = [kind for kind in asked if not (talk and kind is ScopeKind.SESSION)]
        scopes: tuple[Scope, ...] = ()
        if own or not asked:
            scopes = await in_thread(
                self._scopes_of, agent, user_id, account_id, group_id, shards, own
            )
        if set(chosen) == {"facts"}:
            return await self._searcher.search(queries, scopes, **options)
        from edenmem.engine.search.passages import search_passages

        found = await in_thread(
            search_passages, self._runtime, queries, (*scopes, *talk), chosen, **options
        )
        if "facts" not in chosen:
            return found
        report = await self._searcher.search(queries, scopes, **options)
        return msgspec.structs.replace(report, passages=found.passages)

    def _scopes_of(
        self,
        agent: Agent,
        user: str | None,
        account: str | None,
        group: str | None,
        shards: Sequence[str] | None,
        kinds: Sequence[ScopeKind],
    ) -> tuple[Scope, ...]:
        """The scopes that an operator's search covers, of owners by name or ID."""
        user_id = self.resolver.user_id(user, agent_id=agent.id) if user else None
        return reader_scopes(
            self._store,
            agent,
            user_id=user_id,
            account_id=(
                self.resolver.account_id(account, user_id=user_id, agent_id=agent.id)
                if account
                else None
            ),
            group_id=self.resolver.group(agent, group) if group else None,
            shards=shards,
            kinds=kinds,
        )

    async def search_facts(
        self,
        session_id: str,
        queries: str | Sequence[str],
        *,
        agent_id: str | None = None,
        user_id: str | None = None,
        top_k: int | None = None,
    ) -> SearchReport:
        """Search on behalf of an agent in a session: what its own tool for searching calls.

        Exactly the scopes that may be in its context there are searched: in a group chat no
        user's facts are found, whoever asks.

        Args:
            session_id: The conversation.
            queries: One, or up to three that run together.
            agent_id: Who searches; None: the session's first agent.
            user_id: For whom, if the host knows; see `assemble_context`.
            top_k: The most results for each query; None: the setting.
        """
        session, agents = await in_thread(
            lookups.session_and_agents, self._store, session_id, agent_id
        )
        speaker = await self._speaker(user_id)
        view = await in_thread(current_view, self._store, session, agents[0], speaker=speaker)
        return await self._searcher.search(queries, view.reads, top_k=top_k)

    # -- for one agent and user ----------------------------------------------------------------

    async def memory_for(
        self,
        agent: str,
        *,
        user: str | None = None,
        session: str | None = None,
        actor_name: str | None = None,
        own_only: bool = False,
    ) -> AgentMemory:
        """Return memory as one agent sees it while it talks to a user, or in a session.

        Args:
            agent: The agent: username or ID.
            user: The user: username or ID; None: only what the agent knows for everybody.
            session: The session: name or ID; with it, whatever may be in its context.
            actor_name: Who history and audit show as the author of changes; None: the service's
                actor.
            own_only: Refuse edits of memory that is not the user's own.

        Raises:
            NotFoundError: one of them does not exist, or the agent takes no part in the session.
        """
        from edenmem.engine.agent_memory import AgentMemory

        def resolve() -> tuple[str, str | None, str | None]:
            agent_id = lookups.existing_agent(self._store, agent).id
            user_id = None if user is None else lookups.existing_user(self._store, user).id
            if session is None:
                return agent_id, user_id, None
            found, _ = lookups.session_and_agents(self._store, session, agent_id)
            return agent_id, user_id, found.id

        agent_id, user_id, session_id = await in_thread(resolve)
        runtime = self._runtime
        if actor_name is not None:
            runtime = runtime.for_actor(msgspec.structs.replace(runtime.actor, name=actor_name))
        return AgentMemory(
            runtime,
            agent_id=agent_id,
            user_id=user_id,
            session_id=session_id,
            own_only=own_only,
            searcher=self._searcher,
            contexts=self._contexts,
        )

    # -- looking on ----------------------------------------------------------------------------

    async def memory_stats(
        self, agent_id: str, *, user_id: str | None = None, session_id: str | None = None
    ) -> MemoryStats:
        """The sizes of an agent's memory, scope by scope, and the texts.

        Args:
            agent_id: Whose memory.
            user_id: Of user scopes, this user's only; None: all.
            session_id: Of session scopes, this session's only; None: all.
        """
        from edenmem.engine.reports import MemoryStats

        agent = await in_thread(lookups.existing_agent, self._store, agent_id)
        statuses = await self.consolidation_status(agent_id, user_id=user_id, session_id=session_id)
        scopes = [status.scope for status in statuses]
        texts = await in_thread(self._store.memory.consolidations, scopes)
        return MemoryStats(
            agent_id=agent.id,
            scopes=statuses,
            texts=tuple(texts[scope] for scope in scopes if scope in texts),
        )

    async def consolidation_status(
        self, agent_id: str, *, user_id: str | None = None, session_id: str | None = None
    ) -> tuple[ScopeStatus, ...]:
        """How full the buffers are, what their thresholds are, and which scopes are due."""
        return await in_thread(
            lookups.agent_statuses, self._store, self._settings, agent_id, user_id, session_id
        )

    # -- for operators; what is not async blocks ------------------------------------------------

    @cached_property
    def resolver(self) -> Resolver:
        """Turns names and prefixes of ids into agents, users, sessions, scopes and memories."""
        from edenmem.engine.scopes.references import Resolver

        return Resolver(self._store)

    @cached_property
    def host(self) -> HostReader:
        """Agents, accounts, sessions and messages."""
        from edenmem.engine.scopes.readers import HostReader

        return HostReader(self._store)

    @cached_property
    def scopes(self) -> ScopeReader:
        """Which scopes there are, what they are called, their sizes, limits and policies."""
        from edenmem.engine.scopes.readers import ScopeReader

        return ScopeReader(self._store, self._settings)

    @cached_property
    def memory(self) -> MemoryReader:
        """Facts, reflections and texts as they are now."""
        from edenmem.engine.scopes.readers import MemoryReader

        return MemoryReader(self._store, self._settings)

    @cached_property
    def history(self) -> HistoryReader:
        """Versions, the log, and where a memory comes from."""
        from edenmem.engine.history.reader import HistoryReader

        return HistoryReader(self._store)

    @cached_property
    def setup(self) -> Setup:
        """Making the store, or what is missing in it."""
        from edenmem.engine.indexes.setup import Setup

        return Setup(self._store, self._settings)

    @cached_property
    def accounts(self) -> parts.Accounts:
        """Adding agents and people, and merging accounts."""
        return parts.Accounts(self._runtime)

    @cached_property
    def sessions(self) -> parts.Sessions:
        """Importing conversations."""
        return parts.Sessions(self._runtime)

    @cached_property
    def editor(self) -> Editor:
        """Changing memory by hand, without vectors of new texts. Blocks; see `edit`."""
        from edenmem.engine.edits.editor import Editor

        return Editor(msgspec.structs.replace(self._runtime, embedder=None))

    async def edit(self, work: Callable[[Editor], T]) -> T:
        """Run one edit in a thread; the text of a fact gets its vector.

        Raises:
            UsageError: it is more than one edit, and a later one wants a vector.
            ProviderError: the vector could not be made; nothing was written.
        """
        from edenmem.engine.edits.editor import make_edit

        return await make_edit(self._runtime, work)

    @cached_property
    def duplicates(self) -> FactMerger:
        """Finding and merging facts that say nearly the same."""
        from edenmem.engine.edits.near_duplicates import FactMerger

        return FactMerger(self._runtime)

    @cached_property
    def undo(self) -> parts.Undo:
        """Taking changes back."""
        return parts.Undo(self._runtime)

    @cached_property
    def detective(self) -> Detective:
        """Why a search does not bring a fact."""
        from edenmem.engine.search.why_not import Detective

        return Detective(self._runtime)

    @cached_property
    def evaluation(self) -> parts.Evaluations:
        """How well search finds what it should."""
        return parts.Evaluations(self._runtime)

    @cached_property
    def chats(self) -> parts.Chats:
        """Chats that pass through a proxy: their sessions, messages and memory."""
        return parts.Chats(self._runtime)

    @cached_property
    def stats(self) -> parts.Stats:
        """Memory in numbers."""
        return parts.Stats(self._runtime)

    @cached_property
    def indexes(self) -> IndexKeeper:
        """The indexes of the store."""
        from edenmem.engine.indexes.manager import IndexKeeper

        return IndexKeeper(self._runtime)

    @cached_property
    def embeddings(self) -> parts.Embeddings:
        """The vectors of facts, and the switch to another model."""
        return parts.Embeddings(self._runtime)

    @cached_property
    def cold(self) -> ColdSessions:
        """Sessions that went quiet."""
        from edenmem.engine.cold.sessions import ColdSessions

        return ColdSessions(self._runtime, type(self).from_runtime)

    @cached_property
    def erasure(self) -> Forgetter:
        """Forgetting a user, a session, a group or an agent."""
        from edenmem.engine.erasure.forgetting import Forgetter

        return Forgetter(self._runtime)

    @cached_property
    def tokens(self) -> TokenKeeper:
        """Tokens that open the server to others."""
        from edenmem.engine.access.tokens import TokenKeeper

        return TokenKeeper(self._runtime)

    @cached_property
    def doctor(self) -> parts.Checkups:
        """The health of the store."""
        return parts.Checkups(self._runtime)

    @cached_property
    def exchange(self) -> parts.Exchange:
        """Memory as files."""
        return parts.Exchange(self._runtime)

    @cached_property
    def migrations(self) -> Migrations:
        """The steps of the schema, and memory of v1."""
        from edenmem.engine.migration.migrations import Migrations

        return Migrations(self._runtime)

    # -- the parts, each made when it is first needed -------------------------------------------

    @cached_property
    def _former(self) -> Former:
        from edenmem.engine.formation.former import Former

        return Former(self._runtime)

    @cached_property
    def _consolidator(self) -> Consolidator:
        from edenmem.engine.consolidation.consolidator import Consolidator

        return Consolidator(self._runtime)

    @cached_property
    def _searcher(self) -> Searcher:
        from edenmem.engine.search.searcher import Searcher

        return Searcher(self._runtime)

    @cached_property
    def _contexts(self) -> ContextBuilder:
        from edenmem.engine.context.builder import ContextBuilder
        from edenmem.engine.context.recall import Recaller

        recaller = Recaller(self._runtime, searcher=self._searcher)
        return ContextBuilder(self._runtime, recaller=recaller)


async def _all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results; if some fail, the others are brought to their end, then the first is raised."""
    import asyncio

    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
