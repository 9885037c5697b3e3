"""`SyncMemoryService`: `MemoryService` for programs without an event loop.

Generated from the asynchronous classes by ``python -m tests.support.sync_facade``; do not edit.
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
    """`MemoryService` with blocking methods, safe for any number of threads.

    ``service`` is the asynchronous service; its operator properties block anyway. It runs in an
    event loop on a separate thread, so that callers may have a running loop.
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
        """Close the store and the models. Closing twice is safe."""
        if self._loop.is_closed:
            return
        try:
            self._loop.run(self.service.close())
        finally:
            self._loop.close()

    def initialize(self) -> None:
        """Create the store or its missing parts. Safe to call on every start.

        See `MemoryService.initialize`.
        """
        return self._loop.run(self.service.initialize())

    def close_models(self) -> None:
        """Close the models; the store stays open.

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
        own_only: bool = False,
    ) -> ContextReport:
        """Build the memory for an agent's prompt, as XML with its sources.

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
                own_only=own_only,
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
        """Build the memory for an agent's prompt, as XML; see `assemble_context`.

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
        """Return the agent with this name or ID, or create it with memory switched on.

        See `MemoryService.ensure_agent`.
        """
        return self._loop.run(self.service.ensure_agent(agent, owner=owner))

    def ensure_user(self, user: str) -> User:
        """Return the user with this name or ID, or create an account.

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
        """Return the session with this key and these participants, or create what is missing.

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
        """Store messages of a session, for hosts without a message store.

        See `MemoryService.add_messages`.
        """
        return self._loop.run(
            self.service.add_messages(session_id, messages, user=user, agent=agent)
        )

    def on_session_start(
        self, session_id: str, *, agent_id: str | None = None, user_id: str | None = None
    ) -> ContextReport:
        """Rebuild the context when a session starts or resumes.

        See `MemoryService.on_session_start`.
        """
        return self._loop.run(
            self.service.on_session_start(session_id, agent_id=agent_id, user_id=user_id)
        )

    def on_session_end(
        self, session_id: str, *, agent_id: str | None = None
    ) -> list[FormationReport]:
        """Form the remaining messages of a session that ended, and consolidate its scopes.

        See `MemoryService.on_session_end`.
        """
        return self._loop.run(self.service.on_session_end(session_id, agent_id=agent_id))

    def process_cold_session(self, session_id: str) -> list[FormationReport]:
        """Form the remaining messages of a cold session, for all its agents.

        See `MemoryService.process_cold_session`.
        """
        return self._loop.run(self.service.process_cold_session(session_id))

    def maybe_form_memories(
        self, session_id: str, *, agent_id: str | None = None
    ) -> list[FormationReport]:
        """Form memories if a formation is due; cheap otherwise.

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
        """Form memories from the messages since the last formation.

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
        """Extract facts from a text, and store the new ones.

        See `MemoryService.remember`.
        """
        return self._loop.run(
            self.service.remember(text, agent_id=agent_id, user_id=user_id, dry_run=dry_run)
        )

    def consolidate_session(
        self, session_id: str, *, agent_id: str | None = None
    ) -> list[ConsolidationReport]:
        """Consolidate the scopes of a session that are due.

        See `MemoryService.consolidate_session`.
        """
        return self._loop.run(self.service.consolidate_session(session_id, agent_id=agent_id))

    def consolidate(
        self, scope: Scope, *, force: bool = False, dry_run: bool = False
    ) -> ConsolidationReport:
        """Rewrite the text of a scope with its pending reflections, if due.

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
        """Consolidate all scopes that are due, several concurrently.

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
        """Search the memory of an agent and its shards, and of a user and group, as an operator.

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
        """Search facts on behalf of an agent in a session, for use as a tool of the agent.

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
        """Return the memory that an agent can use with a user or in a session.

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
        """Return the sizes and texts of an agent's memory by scope.

        See `MemoryService.memory_stats`.
        """
        return self._loop.run(
            self.service.memory_stats(agent_id, user_id=user_id, session_id=session_id)
        )

    def consolidation_status(
        self, agent_id: str, *, user_id: str | None = None, session_id: str | None = None
    ) -> tuple[ScopeStatus, ...]:
        """Return sizes and thresholds of all scopes of an agent, and which are due.

        See `MemoryService.consolidation_status`.
        """
        return self._loop.run(
            self.service.consolidation_status(agent_id, user_id=user_id, session_id=session_id)
        )

    def edit(self, work: Callable[[Editor], T]) -> T:
        """Run one edit in a thread, with a vector for the new text of a fact.

        See `MemoryService.edit`.
        """
        return self._loop.run(self.service.edit(work))


class SyncAgentMemory:
    """`AgentMemory` with blocking methods, from `SyncMemoryService.memory_for`.

    ``memory`` is the asynchronous object.
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
        """Build the memory for the agent's prompt, as XML.

        See `AgentMemory.context`.
        """
        return self._loop.run(self.memory.context(message=message, recall=recall))

    def facts(self, *, limit: int = 20, containing: str = "") -> list[Fact]:
        """Return the most recently created or corrected facts.

        See `AgentMemory.facts`.
        """
        return self._loop.run(self.memory.facts(limit=limit, containing=containing))

    def why(self, fact_id: str) -> FactOrigin:
        """Return the origin of a fact, also of a removed one.

        See `AgentMemory.why`.
        """
        return self._loop.run(self.memory.why(fact_id))

    def remember(self, text: str, *, dry_run: bool = False) -> FormationReport:
        """Extract facts from a text with the language model, and store the new ones.

        See `AgentMemory.remember`.
        """
        return self._loop.run(self.memory.remember(text, dry_run=dry_run))

    def add_fact(self, content: str, *, shared: bool | None = None) -> EditReport:
        """Store one fact verbatim, without a language model.

        See `AgentMemory.add_fact`.
        """
        return self._loop.run(self.memory.add_fact(content, shared=shared))

    def edit_fact(self, fact_id: str, content: str, *, version: int) -> EditReport:
        """Replace the text of a fact; the old text stays in the history.

        See `AgentMemory.edit_fact`.
        """
        return self._loop.run(self.memory.edit_fact(fact_id, content, version=version))

    def forget_fact(self, fact_id: str) -> EditReport:
        """Remove a fact; ``edenmem fact restore`` restores it.

        See `AgentMemory.forget_fact`.
        """
        return self._loop.run(self.memory.forget_fact(fact_id))
