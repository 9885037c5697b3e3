"""`MemoryService`: edenmem for programs that run agents.

    async with MemoryService.from_settings() as service:
        await service.ensure_session("chat-42", agents=["mira"], users=["lena"])
        context = await service.get_memory_context("chat-42")       # before the agent answers
        ...                                                         # the agent answers
        await service.add_messages("chat-42", [                     # unless the host stores them
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
        ])
        await service.maybe_form_memories("chat-42")                # after each answer

All methods are safe to call concurrently, also from several processes: the database guards against
duplicate work.

For operators, each area of the engine is a property, such as `MemoryService.history` or
`MemoryService.erasure`, created on first use. The command line uses these properties.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

import msgspec

from edenmem.engine import parts
from edenmem.engine.runtime.concurrency import gather_all, in_thread, run_in_turns
from edenmem.engine.runtime.runtime import Runtime, current_actor
from edenmem.engine.scopes import lookups
from edenmem.engine.scopes.visibility import current_view, reader_scopes
from edenmem.models.formation import Reach, Trigger
from edenmem.models.ids import is_id, utc_now
from edenmem.models.scope import Scope, ScopeKind

if TYPE_CHECKING:
    from edenmem.embed.protocol import Embedder, QueryShelf
    from edenmem.engine.agent_memory import AgentMemory
    from edenmem.engine.cold.sessions import ColdSessions
    from edenmem.engine.consolidation.consolidator import Consolidator
    from edenmem.engine.context.builder import ContextBuilder
    from edenmem.engine.context.recall import RecallMode
    from edenmem.engine.context.told import ToldReader
    from edenmem.engine.edits.near_duplicates import FactMerger
    from edenmem.engine.edits.reviewer import Reviewed, Reviewer
    from edenmem.engine.erasure.forgetting import Forgetter
    from edenmem.engine.evaluation import Evaluator
    from edenmem.engine.formation.former import Former
    from edenmem.engine.history.reader import HistoryReader
    from edenmem.engine.indexes import IndexKeeper, Setup
    from edenmem.engine.migration.migrations import Migrations
    from edenmem.engine.reports import (
        ConsolidationReport,
        ContextReport,
        EditReport,
        FormationReport,
        MemoryKind,
        SearchReport,
    )
    from edenmem.engine.scopes.lookups import HostReader, MemoryReader, ScopeReader
    from edenmem.engine.scopes.references import Resolver
    from edenmem.engine.seals.sealer import Sealer
    from edenmem.engine.search.searcher import Searcher
    from edenmem.engine.search.why_not import MissExplainer
    from edenmem.engine.tokens import TokenKeeper
    from edenmem.llm.protocol import LLM
    from edenmem.models.changes import Actor
    from edenmem.models.host import Agent, Message, Session, User
    from edenmem.models.memory import ReviewItem
    from edenmem.rerank.protocol import Reranker
    from edenmem.settings.schema import Settings
    from edenmem.store.protocol.store import Store

T = TypeVar("T")


class SearchOptions(TypedDict, total=False):
    """Search options; see `edenmem.engine.search.searcher.Searcher.search`."""

    recipe: str | None
    top_k: int | None
    since: datetime | None
    until: datetime | None
    session_id: str | None
    tags: Sequence[str]
    key: str | None
    track: bool
    rerank: bool | None
    recency: bool | None
    mmr: bool | None
    exact: bool
    vectors: Sequence[bytes] | None
    vector_model: str | None
    explain: bool


class RejectOptions(TypedDict, total=False):
    """Options of `MemoryService.reject_item`; see `Reviewer.reject`."""

    version: int | None
    reason: str
    dry_run: bool


class AcceptOptions(RejectOptions, total=False):
    """Options of `MemoryService.accept_item`; see `Reviewer.accept`."""

    content: str | None
    replaces: str | None
    anyway: bool


#: Outcomes of a formation that may have changed memory.
_CHANGED = frozenset({"applied", "resumed"})
#: Outcomes of a formation that had nothing to do.
_IDLE = frozenset({"not_due", "incognito"})


class MemoryService:
    """Long-term memory for agents: contexts, formation, consolidation and search.

    Sessions, agents and users are IDs (24 hex digits) or names. Without ``agent_id``, a formation
    covers all agents of the session, and a context belongs to the first one.

    Args:
        store: The store; see `edenmem.engine.factory.open_store`.
        settings: Limits, models and modes.
        llm: Model for formation and consolidation; without one they raise `ConfigError`.
        embedder: Model for vectors of facts and queries; without one, search is by text only.
        reranker: Model for reranking; without one, reranking raises `ConfigError`.
        actor: Author of changes in history and audit (None: this user on this host).
        clock: Returns the current time, for tests.
        query_shelf: Cache of query vectors on disk (None: ``search.query_cache`` vectors in
            memory).

    The service owns its arguments: `close` also closes the store and the providers.
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
        """Return a service on this runtime."""
        service = cls(runtime.store, runtime.settings)
        service._runtime = runtime
        return service

    def for_actor(self, actor: Actor) -> MemoryService:
        """Return a service on the same store and models, with this author of changes."""
        return self.from_runtime(self._runtime.for_actor(actor))

    @classmethod
    def without_models(
        cls, settings: Settings, *, find_actor: Callable[[], Actor] = current_actor
    ) -> MemoryService:
        """Return a service for the configured store without models; see `with_models`.

        Args:
            settings: The configuration.
            find_actor: Returns the author of changes.
        """
        from edenmem.engine.factory import open_store

        return cls.from_runtime(Runtime(open_store(settings), settings, find_actor=find_actor))

    @asynccontextmanager
    async def with_models(
        self,
        *,
        llm: bool = True,
        embedder: bool = True,
        reranker: bool = True,
        asking: Callable[[str], None] | None = None,
    ) -> AsyncIterator[MemoryService]:
        """Yield a service on the same store with the configured models, and close the models.

        ``asking`` is called with the task of each request to the language model.

        Raises:
            ConfigError: the configuration of a provider is invalid.
            StoreError: the vectors of the store select the embedding model, and the database
                cannot be used.
        """
        from edenmem.engine import factory
        from edenmem.engine.embeddings.choice import settle

        settings = self._settings
        if embedder:
            settings = await in_thread(settle, settings, self._store)
        budget = factory.open_budget(settings)
        opened = factory.open_llm(settings, budget=budget) if llm else None
        if opened is not None and asking is not None:
            from edenmem.engine.runtime.usage import Meter, MeteredLLM

            opened = MeteredLLM(opened, Meter(), asking=asking)
        runtime = msgspec.structs.replace(
            self._runtime,
            settings=settings,
            llm=opened,
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
        """Return a service for the configured store and providers, without connecting yet.

        Args:
            settings: The configuration (None: environment, ``edenmem.toml`` and defaults, as for
                the command line).
            actor: Author of changes in history and audit.

        Raises:
            ConfigError: a setting is unknown or invalid.
        """
        from edenmem.engine import factory
        from edenmem.engine.embeddings.choice import open_embedder_for

        if settings is None:
            from edenmem.settings.load import load_settings

            settings = load_settings().settings
        budget = factory.open_budget(settings)
        store = factory.open_store(settings)
        return cls(
            store,
            settings,
            llm=factory.open_llm(settings, budget=budget),
            embedder=open_embedder_for(settings, store, budget=budget),
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

    async def initialize(self) -> None:
        """Create the store or its missing parts. Safe to call on every start.

        Raises:
            StoreError: the store is unavailable, or belongs to a newer edenmem.
        """
        await in_thread(self._store.database.initialize)

    async def close(self) -> None:
        """Close the store and the models."""
        try:
            await self.close_models()
        finally:
            await in_thread(self.close_store)

    async def close_models(self) -> None:
        """Close the models; the store stays open."""
        runtime = self._runtime
        for provider in (runtime.llm, runtime.embedder, runtime.reranker):
            if provider is not None:
                await provider.close()

    def close_store(self) -> None:
        """Write the notes that wait, and close the store. Blocks."""
        self._runtime.told.flush(is_last=True)
        self._store.database.close()

    @property
    def script(self) -> str:
        """Describe the script that replaces the language model; "" if there is none."""
        llm = self._runtime.llm
        return llm.description if llm is not None and llm.is_scripted else ""

    @property
    def store(self) -> Store:
        """Return the store, for hosts that manage agents, users and sessions. Its methods block."""
        return self._store

    @property
    def can_form(self) -> bool:
        """Check for a language model; without one, memories cannot be formed."""
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
        own_only: bool = False,
        told: bool = True,
    ) -> ContextReport:
        """Build the memory for an agent's prompt, as XML with its sources.

        Contexts are cached with the session for ``context.cache_seconds``, until one of their
        scopes or the participants change. With a second person in the session, a context holds no
        user memory.

        Args:
            session_id: The conversation.
            agent_id: The agent that is about to answer (None: the first of the session).
            user_id: The user to answer, if known. A user from outside the session makes the
                session a group chat.
            message: Message to recall memories for (None: the newest user message).
            recall: "off", "heuristic", "llm" or "always" (None: ``context.recall``). Recalled
                facts are added to this context only. If recall fails, the context has no recalled
                facts, and the report's ``recall`` gives the reason.
            force_refresh: Rebuild the context even if the cached one is valid.
            as_of: Rebuild the context of this moment.
            keep: Cache a new context. A context that ``user_id`` changes is never cached.
            own_only: For a reader who may see the user's memory only: leave out group and session
                memory, and recall only for ``message``.
            told: Note what the agent gets; off for an operator's look. The contexts of
                earlier times are never noted.

        Raises:
            NotFoundError: the session does not exist, or the agent is not part of it.
            UsageError: ``recall`` is combined with ``as_of``.
            StoreError: the database cannot be used.
        """
        return await self._contexts.build(
            session_id,
            agent_id,
            speaker=await self._speaker(user_id),
            message=message,
            recall=recall,
            force_refresh=force_refresh,
            as_of=as_of,
            keep=keep,
            own_only=own_only,
            told=told,
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
        """Build the memory for an agent's prompt, as XML; see `assemble_context`."""
        report = await self._contexts.build(
            session_id,
            agent_id,
            speaker=await self._speaker(user_id),
            message=message,
            recall=recall,
            force_refresh=force_refresh,
            measured=False,
            told=True,
        )
        return report.xml

    async def _speaker(self, user: str | None) -> str | None:
        """Return the ID of the account to answer, without a thread if ``user`` is an ID."""
        if user is None or (isinstance(user, str) and is_id(user)):
            return user
        return await in_thread(lookups.speaker_id, self._store, user)

    # -- conversations -------------------------------------------------------------------------

    async def ensure_agent(self, agent: str, *, owner: str | None = None) -> Agent:
        """Return the agent with this name or ID, or create it with memory switched on.

        Args:
            agent: Name or ID; the name becomes the username of a new agent.
            owner: Owner of a new agent; required on MongoDB.

        Raises:
            UsageError: the name is blank, or the store requires an owner.
            ConflictError: the agent was deleted.
        """
        from edenmem.engine.sessions.conversation import ensure_agent

        return await in_thread(ensure_agent, self._runtime, agent, owner=owner)

    async def ensure_user(self, user: str) -> User:
        """Return the user with this name or ID, or create an account.

        Args:
            user: Name, key or ID; a name or key becomes the username of a new account.

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
        """Return the session with this key and these participants, or create what is missing.

        Args:
            session: The host's key of the conversation, such as "chat-42".
            agents: Names or IDs of the agents.
            users: Names or IDs of the users. With several users, no user memory is used.
            group: Group of a new session.
            title: Title of a new session.
            incognito: Form no memories from a new session.

        Raises:
            UsageError: a name is blank, or the store requires an owner.
            ConflictError: a participant or the session was deleted, or an existing session
                differs in ``incognito``.
        """
        from edenmem.engine.sessions.conversation import ensure_session

        return await in_thread(
            ensure_session,
            self._runtime,
            session,
            agents=agents,
            users=users,
            group=group,
            title=title,
            incognito=incognito,
        )

    async def add_messages(
        self,
        session_id: str,
        messages: Sequence[Message | Mapping[str, Any]],
        *,
        user: str | None = None,
        agent: str | None = None,
    ) -> int:
        """Store messages of a session, for hosts without a message store.

        A dict is a message in the form of chat APIs: ``role`` and ``content`` (text or parts),
        ``tool_calls``, and optionally ``name`` (the author), ``created_at`` and ``id``. Messages
        with a known ID are skipped, so a call can be repeated; a dict without ``id`` is always
        new. Authors who are not users of the session yet are added.

        Args:
            session_id: The conversation.
            messages: Messages in order.
            user: Author of user messages without a name (None: the only user of the session).
            agent: Author of answers without a name (None: the first agent of the session).

        Returns:
            The number of new messages.

        Raises:
            NotFoundError: the session or an author does not exist.
            UsageError: ``messages`` is not a list, or the author of a message is unknown.
            InputError: a dict is not a valid message.
        """
        from edenmem.engine.sessions.conversation import store_messages

        return await in_thread(
            store_messages, self._runtime, session_id, messages, user=user, agent=agent
        )

    async def retract_messages(self, session_id: str, message_ids: Sequence[str]) -> int:
        """Empty messages that a host takes back: no memory is formed from them any more.

        They keep their place and time. Memory that was formed from them stays; to erase it too:
        ``edenmem forget``.

        Returns:
            The number of messages.

        Raises:
            NotFoundError: the session does not exist.
            UsageError: the session belongs to the platform.
        """
        from edenmem.engine.sessions.conversation import retract_messages

        return await in_thread(retract_messages, self._runtime, session_id, message_ids)

    async def on_session_start(
        self, session_id: str, *, agent_id: str | None = None, user_id: str | None = None
    ) -> ContextReport:
        """Rebuild the context when a session starts or resumes."""
        return await self.assemble_context(
            session_id, agent_id=agent_id, user_id=user_id, recall="off", force_refresh=True
        )

    async def on_session_end(
        self, session_id: str, *, agent_id: str | None = None
    ) -> list[FormationReport]:
        """Form the remaining messages of a session that ended, and consolidate its scopes.

        Intervals and thresholds do not apply. Paused scopes are skipped.
        """
        return await self.form_memories(session_id, agent_id=agent_id, trigger=Trigger.SESSION_END)

    async def process_cold_session(self, session_id: str) -> list[FormationReport]:
        """Form the remaining messages of a cold session, for all its agents."""
        return await self.form_memories(session_id, trigger=Trigger.COLD)

    # -- formation -----------------------------------------------------------------------------

    async def maybe_form_memories(
        self, session_id: str, *, agent_id: str | None = None
    ) -> list[FormationReport]:
        """Form memories if a formation is due; cheap otherwise.

        Call this after each answer of an agent. Concurrent calls are safe.

        Returns:
            One report for each range and agent; empty if nothing was due.
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
        """Form memories from the messages since the last formation.

        Facts and reflections are formed and applied. Then the scopes above their threshold are
        consolidated concurrently, and the session's cached context is rebuilt. If the model
        fails, the report has the error, and the messages stay pending.

        Args:
            session_id: The conversation.
            agent_id: Only for this agent (None: for all agents of the session).
            trigger: Reason of the formation; sets the minimum amount of messages.
            dry_run: Call the models and report the changes, but write nothing.
            consolidate: Also consolidate scopes that are due.
            reach: Messages to form: those that neither edenmem nor the platform formed, or more.
            is_time_up: Called on cancellation: whether the time limit was reached. In this case
                the first range used up all the time, and counts as a failed attempt if the
                models answer other requests.

        Returns:
            One report for each range and agent; the last one of an agent has the consolidations.

        Raises:
            NotFoundError: the session does not exist, or the agent is not part of it.
            ConfigError: a model is required, and none is configured.
            UnavailableError: a provider or the database is unavailable. Memories formed before
                stay; the remaining messages stay pending.
        """
        session, agents = await in_thread(
            lookups.session_and_agents, self._store, session_id, agent_id
        )

        async def form(agent: Agent) -> list[FormationReport]:
            reports = await self._former.form(
                session,
                agent,
                trigger=trigger,
                dry_run=dry_run,
                reach=reach,
                is_time_up=is_time_up,
            )
            at_end = trigger is Trigger.SESSION_END
            is_changed = any(
                report.outcome in _CHANGED
                # A failed formation may have stored facts.
                or report.facts_added + report.facts_revised + report.facts_removed
                for report in reports
            )
            if dry_run or not (at_end or is_changed):
                return reports
            try:
                if consolidate:
                    written = await self._consolidate_due(session, agent, at_end=at_end)
                    last = msgspec.structs.replace(reports[-1], consolidations=tuple(written))
                    reports = [*reports[:-1], last]
            finally:
                await self._contexts.refresh(session, agent)
            return reports

        of_agents = await gather_all(run_in_turns(form(agent)) for agent in agents)
        return [report for reports in of_agents for report in reports]

    async def remember(
        self, text: str, *, agent_id: str, user_id: str | None = None, dry_run: bool = False
    ) -> FormationReport:
        """Extract facts from a text, and store the new ones.

        Args:
            text: The text; a long one is read in several parts.
            agent_id: The agent that remembers.
            user_id: Author of the text: facts about the author go to this account's memory.
                Without an author, facts go to the memory of the agent and its shards.
            dry_run: Call the models and report the changes, but write nothing.

        Returns:
            A formation report without session and messages.

        Raises:
            NotFoundError: the agent or user does not exist.
            UsageError: the text is empty.
            ScopeError: memory is switched off or paused in all scopes.
            ConfigError: no language model is configured.
            ProviderError: a model failed. Facts stored before stay; a retry with the same text
                adds no duplicates.
        """
        from edenmem.engine.formation.notes import remember

        agent = await in_thread(lookups.existing_agent, self._store, agent_id)
        user = None
        if user_id is not None:
            user = await in_thread(lookups.existing_user, self._store, user_id)
        return await remember(self._runtime, text, agent, user, dry_run=dry_run)

    # -- consolidation -------------------------------------------------------------------------

    async def consolidate_session(
        self, session_id: str, *, agent_id: str | None = None
    ) -> list[ConsolidationReport]:
        """Consolidate the scopes of a session that are due.

        This recovers from a crash between formation and consolidation. It costs a few reads if
        nothing is due.

        Args:
            session_id: The conversation.
            agent_id: Only scopes of this agent (None: of all agents of the session).

        Raises:
            NotFoundError: the session does not exist, or the agent is not part of it.
            ConfigError: a model is required, and none is configured.
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
        return await self._consolidator.consolidate_many(due, at_once=at_end)

    async def consolidate(
        self, scope: Scope, *, force: bool = False, dry_run: bool = False
    ) -> ConsolidationReport:
        """Rewrite the text of a scope with its pending reflections, if due.

        Args:
            scope: The scope.
            force: Ignore the threshold, a pause, failed drafts and contradictions to fixed
                sentences; without pending reflections, shorten or rewrite the text.
            dry_run: Call the model and report the new text, but write nothing.

        Raises:
            NotFoundError: the agent does not exist.
            ConfigError: a model is required, and none is configured.
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
        """Consolidate all scopes that are due, several concurrently.

        Args:
            agent_id: Only scopes of this agent.
            kinds: Only scopes of these kinds (empty: all kinds).
            user_id: Only scopes of this user's accounts.
            force: All scopes with pending reflections or a text over its limit; with a user, or
                for an agent's own scope, every text.
            dry_run: Write nothing.

        Returns:
            One report for each scope. A failed scope does not affect the others.
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
        """Search the memory of an agent and its shards, and of a user and group, as an operator.

        User memory is searched only with ``user_id``, group memory only with ``group_id``.

        Args:
            queries: One query, or up to three that run together.
            agent_id: The agent.
            user_id: Add the facts of this user, given by any account; covers all their accounts.
            account_id: Limit the user's facts to this account.
            group_id: Add the facts of this group.
            shards: Only these shards of the agent (None: all).
            kinds: Only scopes of these kinds (None: all readable kinds).
            within: "facts", "reflections" and "texts". Reflections and texts are searched by
                words only; ``session_id`` adds the scope of the session.
            **options: See `SearchOptions`.

        The results are not noted as told: the caller may be an operator.

        Raises:
            NotFoundError: the agent or a shard does not exist.
            ScopeError: a requested kind needs a user, group or session.
            ConfigError: reranking is requested, and no reranker is configured.
            EmbeddingModelMismatch: stored vectors and embedder use different models.
            ProviderError: embedding or reranking failed.
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
        """Return the scopes of an operator's search, with owners given by name or ID."""
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
        """Search facts on behalf of an agent in a session, for use as a tool of the agent.

        The search covers the scopes of the agent's context. In a group chat it finds no user's
        facts.

        Args:
            session_id: The conversation.
            queries: One query, or up to three that run together.
            agent_id: The agent that searches (None: the first of the session).
            user_id: The user to answer, if known; see `assemble_context`.
            top_k: Maximum number of results per query (None: ``search.top_k``).
        """
        session, agents = await in_thread(
            lookups.session_and_agents, self._store, session_id, agent_id
        )
        memory = self._memory(agents[0].id, await self._speaker(user_id), session.id)
        return await memory.search(queries, top_k=top_k)

    async def all_about(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        session_id: str | None = None,
    ) -> SearchReport:
        """Find every fact that names a person or thing, oldest first, without a limit.

        Args:
            name: The name; a fact must have all of its words.
            scopes: The scopes to search.
            since: Only facts said at or after this time.
            until: Only facts said before this time.
            session_id: Only facts from this session.
        """
        from edenmem.engine.search.about import all_about

        return await in_thread(
            all_about,
            self._runtime,
            name,
            scopes,
            since=since,
            until=until,
            session_id=session_id,
        )

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
        """Return the memory that an agent can use with a user or in a session.

        Args:
            agent: Username or ID of the agent.
            user: Username or ID of the user (None: only memory shared with all users).
            session: Name or ID of the session, for the scopes of its context.
            actor_name: Author of changes in history and audit (None: the actor of the service).
            own_only: For a caller who may see the user's memory only: leave out group and
                session memory and the messages of others, and refuse edits outside the user's
                memory.

        Raises:
            NotFoundError: the agent, user or session does not exist, or the agent is not part of
                the session.
        """

        def resolve() -> tuple[str, str | None, str | None]:
            agent_id = lookups.existing_agent(self._store, agent).id
            user_id = None if user is None else lookups.existing_user(self._store, user).id
            if session is None:
                return agent_id, user_id, None
            found, _ = lookups.session_and_agents(self._store, session, agent_id)
            return agent_id, user_id, found.id

        runtime = self._runtime
        if actor_name is not None:
            runtime = runtime.for_actor(msgspec.structs.replace(runtime.actor, name=actor_name))
        return self._memory(*await in_thread(resolve), runtime=runtime, own_only=own_only)

    def _memory(
        self,
        agent_id: str,
        user_id: str | None,
        session_id: str | None,
        *,
        runtime: Runtime | None = None,
        own_only: bool = False,
    ) -> AgentMemory:
        from edenmem.engine.agent_memory import AgentMemory

        return AgentMemory(
            runtime or self._runtime,
            agent_id=agent_id,
            user_id=user_id,
            session_id=session_id,
            own_only=own_only,
            searcher=self._searcher,
            contexts=self._contexts,
        )

    # -- for operators; functions that are not async block --------------------------------------

    @cached_property
    def resolver(self) -> Resolver:
        """Resolve names and ID prefixes of agents, users, sessions, scopes and memories."""
        from edenmem.engine.scopes.references import Resolver

        return Resolver(self._store)

    @cached_property
    def host(self) -> HostReader:
        """Read agents, accounts, sessions and messages."""
        from edenmem.engine.scopes.lookups import HostReader

        return HostReader(self._store)

    @cached_property
    def scopes(self) -> ScopeReader:
        """Read scopes with their labels, sizes, limits and policies."""
        from edenmem.engine.scopes.lookups import ScopeReader

        return ScopeReader(self._store, self._settings)

    @cached_property
    def memory(self) -> MemoryReader:
        """Read current facts, reflections and texts."""
        from edenmem.engine.scopes.lookups import MemoryReader

        return MemoryReader(self._store, self._settings, self._runtime.clock)

    @cached_property
    def history(self) -> HistoryReader:
        """Read versions, the log, and the origin of memories."""
        from edenmem.engine.history.reader import HistoryReader

        return HistoryReader(self._store)

    @cached_property
    def seals(self) -> Sealer:
        """Seal the log, and find changes of it."""
        from edenmem.engine.seals.sealer import Sealer

        return Sealer(self._runtime)

    @cached_property
    def told(self) -> ToldReader:
        """Find the replies that had a memory."""
        from edenmem.engine.context.told import ToldReader

        return ToldReader(self._runtime, lambda: self._contexts)

    @cached_property
    def setup(self) -> Setup:
        """Create the store or its missing parts."""
        from edenmem.engine.indexes import Setup

        return Setup(self._store, self._settings)

    @cached_property
    def accounts(self) -> parts.Accounts:
        """Add agents and accounts, and merge accounts."""
        return parts.Accounts(self._runtime)

    @cached_property
    def editor(self) -> Reviewer:
        """Edit and review memory without vectors for new texts. Blocks; see `edit`."""
        from edenmem.engine.edits.reviewer import Reviewer

        return Reviewer(msgspec.structs.replace(self._runtime, embedder=None))

    async def edit(self, work: Callable[[Reviewer], T]) -> T:
        """Run one edit in a thread, with a vector for the new text of a fact.

        Raises:
            UsageError: ``work`` makes a second edit that needs a vector.
            ProviderError: embedding failed; nothing was written.
        """
        from edenmem.engine.edits.reviewer import make_review

        return await make_review(self._runtime, work)

    async def review_items(
        self,
        agent_id: str,
        *,
        kinds: Sequence[ScopeKind] = (),
        user_ids: Sequence[str] | None = None,
    ) -> list[ReviewItem]:
        """Return what waits for review: held items, then facts and reflections in doubt.

        Args:
            agent_id: The agent.
            kinds: Only scopes of these kinds (empty: all kinds).
            user_ids: Only the user scopes of these accounts.

        Raises:
            NotFoundError: the agent does not exist.
        """
        agent = await in_thread(lookups.existing_agent, self._store, agent_id)
        found = self.editor.items(agent.id, kinds=kinds, user_ids=user_ids)
        return await in_thread(list, found)

    async def review_item(self, item_id: str, *, similar: bool = True) -> Reviewed:
        """Return an item that waits for review, with the facts ``similar`` to it.

        Raises:
            NotFoundError: no such item waits for review.
        """
        return await self.edit(lambda reviewer: reviewer.look(item_id, similar=similar))

    async def accept_item(self, item_id: str, **options: Unpack[AcceptOptions]) -> EditReport:
        """Make a held item memory, or confirm a stored one; see `Reviewer.accept`."""
        return await self.edit(lambda reviewer: reviewer.accept(item_id, **options))

    async def reject_item(self, item_id: str, **options: Unpack[RejectOptions]) -> EditReport:
        """Remove a held item, or delete a stored one; see `Reviewer.reject`."""
        return await self.edit(lambda reviewer: reviewer.reject(item_id, **options))

    @cached_property
    def duplicates(self) -> FactMerger:
        """Find and merge near-duplicate facts."""
        from edenmem.engine.edits.near_duplicates import FactMerger

        return FactMerger(self._runtime)

    @cached_property
    def undo(self) -> parts.Undo:
        """Undo changes."""
        return parts.Undo(self._runtime)

    @cached_property
    def miss_explainer(self) -> MissExplainer:
        """Explain why a search misses a fact."""
        from edenmem.engine.search.why_not import MissExplainer

        return MissExplainer(self._runtime)

    @cached_property
    def evaluation(self) -> Evaluator:
        """Evaluate search."""
        from edenmem.engine.evaluation import Evaluator

        return Evaluator(self._runtime)

    @cached_property
    def chats(self) -> parts.Chats:
        """Manage proxied chats: sessions, messages and memory."""
        return parts.Chats(self._runtime)

    @cached_property
    def stats(self) -> parts.Stats:
        """Compute statistics."""
        return parts.Stats(self._runtime)

    @cached_property
    def indexes(self) -> IndexKeeper:
        """Manage the indexes of the store."""
        from edenmem.engine.indexes import IndexKeeper

        return IndexKeeper(self._runtime)

    @cached_property
    def embeddings(self) -> parts.Embeddings:
        """Manage the vectors of facts, and switch models."""
        return parts.Embeddings(self._runtime)

    @cached_property
    def cold(self) -> ColdSessions:
        """Process cold sessions."""
        from edenmem.engine.cold.sessions import ColdSessions

        return ColdSessions(self._runtime, type(self).from_runtime)

    @cached_property
    def erasure(self) -> Forgetter:
        """Forget a user, session, group or agent."""
        from edenmem.engine.erasure.forgetting import Forgetter

        return Forgetter(self._runtime)

    @cached_property
    def tokens(self) -> TokenKeeper:
        """Manage access tokens of the server."""
        from edenmem.engine.tokens import TokenKeeper

        return TokenKeeper(self._runtime)

    @cached_property
    def doctor(self) -> parts.Checkups:
        """Check the health of the store."""
        return parts.Checkups(self._runtime)

    @cached_property
    def exchange(self) -> parts.Exchange:
        """Export and import memory."""
        return parts.Exchange(self._runtime)

    @cached_property
    def migrations(self) -> Migrations:
        """Apply schema migrations, and migrate memory of v1."""
        from edenmem.engine.migration.migrations import Migrations

        return Migrations(self._runtime)

    # -- created on first use -------------------------------------------------------------------

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
