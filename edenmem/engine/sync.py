"""`SyncMemoryService`: `MemoryService` for programs without an event loop.

Written by ``python -m tests.support.sync_facade`` from the asynchronous classes; change those.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from edenmem.engine.runtime.loop_thread import LoopThread
from edenmem.engine.service import MemoryService
from edenmem.models.formation import Reach, Trigger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from edenmem.engine.agent_memory import AgentMemory, FactOrigin
    from edenmem.engine.context.recall import RecallMode
    from edenmem.engine.edits.editor import Editor
    from edenmem.engine.reports import (
        ConsolidationReport,
        ContextReport,
        EditReport,
        FormationReport,
        MemoryKind,
        MemoryStats,
        ScopeStatus,
        SearchReport,
    )
    from edenmem.engine.service import SearchOptions
    from edenmem.models.changes import Actor
    from edenmem.models.host import Agent, Message, Session, User
    from edenmem.models.memory import Fact
    from edenmem.models.scope import Scope, ScopeKind
    from edenmem.settings.schema import Settings

T = TypeVar("T")


class SyncMemoryService:
    """`MemoryService` with methods that block, for any number of threads.

    ``service`` is the asynchronous one; its properties for operators block as they are. Its work
    runs in an event loop of its own thread, so that this may be used where another loop runs.
    """

    def __init__(self, service: MemoryService) -> None:
        self.service = service
        self._loop = LoopThread()

    @classmethod
    def from_settings(cls, settings: Settings | None = None, *, actor: Actor | None = None) -> Self:
        """Return a service for the configured store and models.

        See `MemoryService.from_settings`.
        """
        return cls(MemoryService.from_settings(settings, actor=actor))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of files, sockets and connections. Closing twice is the same as once."""
        if self._loop.is_closed:
            return
        try:
            self._loop.run(self.service.close())
        finally:
            self._loop.close()

    def initialise(self) -> None:
        """Make the store, or what is missing in it. Safe to call at every start.

        See `MemoryService.initialise`.
        """
        return self._loop.run(self.service.initialise())

    def close_models(self) -> None:
        """Let go of the models; the store stays open.

        See `MemoryService.close_models`.
        """
        return self._loop.run(self.service.close_models())

    def assemble_context(
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

        See `MemoryService.assemble_context`.
        """
        return self._loop.run(
            self.service.assemble_context(
                session_id,
                agent_id=agent_id,
                user_id=user_id,
                message=message,
                recall=recall,
                force_refresh=force_refresh,
                as_of=as_of,
                keep=keep,
            )
        )

    def get_memory_context(
        self,
        session_id: str,
        *,
        agent_id: str | None = None,
        user_id: str | None = None,
        message: str | None = None,
        recall: RecallMode | None = None,
        force_refresh: bool = False,
    ) -> str:
        """`assemble_context`, as the XML alone: what goes into the prompt.

        See `MemoryService.get_memory_context`.
        """
        return self._loop.run(
            self.service.get_memory_context(
                session_id,
                agent_id=agent_id,
                user_id=user_id,
                message=message,
                recall=recall,
                force_refresh=force_refresh,
            )
        )

    def ensure_agent(self, agent: str, *, owner: str | None = None) -> Agent:
        """Return the agent with this name or ID; add it, with its memory on, if there is none.

        See `MemoryService.ensure_agent`.
        """
        return self._loop.run(self.service.ensure_agent(agent, owner=owner))

    def ensure_user(self, user: str) -> User:
        """Return the user with this name or ID; add an account if there is none.

        See `MemoryService.ensure_user`.
        """
        return self._loop.run(self.service.ensure_user(user))

    def ensure_session(
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

        See `MemoryService.ensure_session`.
        """
        return self._loop.run(
            self.service.ensure_session(
                session, agents=agents, users=users, group=group, title=title, incognito=incognito
            )
        )

    def add_messages(
        self,
        session_id: str,
        messages: Sequence[Message | Mapping[str, Any]],
        *,
        user: str | None = None,
        agent: str | None = None,
    ) -> int:
        """Store messages of a session, for hosts that do not store them themselves.

        See `MemoryService.add_messages`.
        """
        return self._loop.run(
            self.service.add_messages(session_id, messages, user=user, agent=agent)
        )

    def on_session_start(
        self, session_id: str, *, agent_id: str | None = None, user_id: str | None = None
    ) -> ContextReport:
        """Build the context anew as a session begins, or is taken up again.

        See `MemoryService.on_session_start`.
        """
        return self._loop.run(
            self.service.on_session_start(session_id, agent_id=agent_id, user_id=user_id)
        )

    def on_session_end(
        self, session_id: str, *, agent_id: str | None = None
    ) -> list[FormationReport]:
        """Form what is left of a session that ended, and consolidate all that waits in the scopes
        it writes to, whatever the intervals and thresholds say. Paused scopes are left alone.

        See `MemoryService.on_session_end`.
        """
        return self._loop.run(self.service.on_session_end(session_id, agent_id=agent_id))

    def process_cold_session(self, session_id: str) -> list[FormationReport]:
        """Form what is left of a session that went quiet, for all of its agents.

        See `MemoryService.process_cold_session`.
        """
        return self._loop.run(self.service.process_cold_session(session_id))

    def maybe_form_memories(
        self, session_id: str, *, agent_id: str | None = None
    ) -> list[FormationReport]:
        """Form memories if enough was said since the last time; cheap if not.

        See `MemoryService.maybe_form_memories`.
        """
        return self._loop.run(self.service.maybe_form_memories(session_id, agent_id=agent_id))

    def form_memories(
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

        See `MemoryService.form_memories`.
        """
        return self._loop.run(
            self.service.form_memories(
                session_id,
                agent_id=agent_id,
                trigger=trigger,
                dry_run=dry_run,
                consolidate=consolidate,
                reach=reach,
                is_time_up=is_time_up,
            )
        )

    def remember(
        self, text: str, *, agent_id: str, user_id: str | None = None, dry_run: bool = False
    ) -> FormationReport:
        """Extract the facts of any text, and keep what is new of them.

        See `MemoryService.remember`.
        """
        return self._loop.run(
            self.service.remember(text, agent_id=agent_id, user_id=user_id, dry_run=dry_run)
        )

    def consolidate_session(
        self, session_id: str, *, agent_id: str | None = None
    ) -> list[ConsolidationReport]:
        """Consolidate what is due among the scopes that a session writes to: what a process that
        died between forming and consolidating left behind.

        See `MemoryService.consolidate_session`.
        """
        return self._loop.run(self.service.consolidate_session(session_id, agent_id=agent_id))

    def consolidate(
        self, scope: Scope, *, force: bool = False, dry_run: bool = False
    ) -> ConsolidationReport:
        """Work one scope's pending reflections into its text, if it is due.

        See `MemoryService.consolidate`.
        """
        return self._loop.run(self.service.consolidate(scope, force=force, dry_run=dry_run))

    def consolidate_all(
        self,
        *,
        agent_id: str | None = None,
        kinds: Sequence[ScopeKind] = (),
        user_id: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> list[ConsolidationReport]:
        """`consolidate` for every scope that is due, several at once.

        See `MemoryService.consolidate_all`.
        """
        return self._loop.run(
            self.service.consolidate_all(
                agent_id=agent_id, kinds=kinds, user_id=user_id, force=force, dry_run=dry_run
            )
        )

    def search(
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

        See `MemoryService.search`.
        """
        return self._loop.run(
            self.service.search(
                queries,
                agent_id=agent_id,
                user_id=user_id,
                account_id=account_id,
                group_id=group_id,
                shards=shards,
                kinds=kinds,
                within=within,
                **options,
            )
        )

    def search_facts(
        self,
        session_id: str,
        queries: str | Sequence[str],
        *,
        agent_id: str | None = None,
        user_id: str | None = None,
        top_k: int | None = None,
    ) -> SearchReport:
        """Search on behalf of an agent in a session: what its own tool for searching calls.

        See `MemoryService.search_facts`.
        """
        return self._loop.run(
            self.service.search_facts(
                session_id, queries, agent_id=agent_id, user_id=user_id, top_k=top_k
            )
        )

    def memory_for(
        self,
        agent: str,
        *,
        user: str | None = None,
        session: str | None = None,
        actor_name: str | None = None,
        own_only: bool = False,
    ) -> SyncAgentMemory:
        """Return memory as one agent sees it while it talks to a user, or in a session.

        See `MemoryService.memory_for`.
        """
        return SyncAgentMemory(
            self._loop.run(
                self.service.memory_for(
                    agent, user=user, session=session, actor_name=actor_name, own_only=own_only
                )
            ),
            self._loop,
        )

    def memory_stats(
        self, agent_id: str, *, user_id: str | None = None, session_id: str | None = None
    ) -> MemoryStats:
        """The sizes of an agent's memory, scope by scope, and the texts.

        See `MemoryService.memory_stats`.
        """
        return self._loop.run(
            self.service.memory_stats(agent_id, user_id=user_id, session_id=session_id)
        )

    def consolidation_status(
        self, agent_id: str, *, user_id: str | None = None, session_id: str | None = None
    ) -> tuple[ScopeStatus, ...]:
        """How full the buffers are, what their thresholds are, and which scopes are due.

        See `MemoryService.consolidation_status`.
        """
        return self._loop.run(
            self.service.consolidation_status(agent_id, user_id=user_id, session_id=session_id)
        )

    def edit(self, work: Callable[[Editor], T]) -> T:
        """Run one edit in a thread; the text of a fact gets its vector.

        See `MemoryService.edit`.
        """
        return self._loop.run(self.service.edit(work))


class SyncAgentMemory:
    """`AgentMemory` with methods that block; `SyncMemoryService.memory_for` makes it.

    ``memory`` is the asynchronous one.
    """

    def __init__(self, memory: AgentMemory, loop: LoopThread) -> None:
        self.memory = memory
        self._loop = loop

    def search(self, queries: str | Sequence[str], *, top_k: int | None = None) -> SearchReport:
        """Find facts by meaning and by words.

        See `AgentMemory.search`.
        """
        return self._loop.run(self.memory.search(queries, top_k=top_k))

    def context(
        self, *, message: str | None = None, recall: RecallMode | None = None
    ) -> ContextReport:
        """Return the memory that belongs into the agent's prompt, as XML.

        See `AgentMemory.context`.
        """
        return self._loop.run(self.memory.context(message=message, recall=recall))

    def facts(self, *, limit: int = 20, containing: str = "") -> list[Fact]:
        """Return the most recently made or corrected facts.

        See `AgentMemory.facts`.
        """
        return self._loop.run(self.memory.facts(limit=limit, containing=containing))

    def why(self, fact_id: str) -> FactOrigin:
        """Return where a fact comes from; removed facts have an origin too.

        See `AgentMemory.why`.
        """
        return self._loop.run(self.memory.why(fact_id))

    def remember(self, text: str, *, dry_run: bool = False) -> FormationReport:
        """Extract the facts of a text with the language model, and keep what is new.

        See `AgentMemory.remember`.
        """
        return self._loop.run(self.memory.remember(text, dry_run=dry_run))

    def add_fact(self, content: str, *, shared: bool | None = None) -> EditReport:
        """Store one fact as it is written, without a language model.

        See `AgentMemory.add_fact`.
        """
        return self._loop.run(self.memory.add_fact(content, shared=shared))

    def edit_fact(self, fact_id: str, content: str, *, version: int) -> EditReport:
        """Give a fact a new text; the old one stays in its history.

        See `AgentMemory.edit_fact`.
        """
        return self._loop.run(self.memory.edit_fact(fact_id, content, version=version))

    def forget_fact(self, fact_id: str) -> EditReport:
        """Remove a fact; ``edenmem fact restore`` brings it back.

        See `AgentMemory.forget_fact`.
        """
        return self._loop.run(self.memory.forget_fact(fact_id))
