"""Assess the work on a quiet session, without a claim and without a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from datetime import datetime
from typing import Literal

import msgspec
from msgspec.structs import replace

from edenmem.engine.formation.sharing import Backlogs
from edenmem.engine.formation.transcript import measure_length
from edenmem.engine.runtime.runtime import Runtime
from edenmem.memory.formations import is_free
from edenmem.models.formation import UNFINISHED, FormationStatus, Reach, Trigger
from edenmem.models.host import Agent, Message, Session
from edenmem.models.ids import derived_id
from edenmem.settings.schema import FormationSettings

Work = Literal["form", "resume", "complete", "waiting", "taken", "nothing"]

#: Work that can be done now.
TO_DO: frozenset[Work] = frozenset({"form", "resume", "complete"})


class Prospect(msgspec.Struct, frozen=True, kw_only=True):
    """The work on a session for one agent.

    Attributes:
        agent: The agent.
        work: The work; "resume" was begun and released, "complete" needs no model.
        messages: Number of messages.
        unread: Number of these that the platform's cursor has passed.
        tokens: Estimated number of tokens.
        formed: Whether there are earlier formations, if there is nothing to do now.
        by_platform: Number of messages left out because the platform read them.
        left_to_platform: Number of messages left to the platform.
    """

    agent: Agent
    work: Work
    messages: int = 0
    unread: int = 0
    tokens: int = 0
    formed: bool = False
    by_platform: int = 0
    left_to_platform: int = 0


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a session; without prospects if the session is incognito or ``active``."""

    session: Session
    spoken: datetime | None
    agents: int
    active: bool
    prospects: tuple[Prospect, ...] = ()


def rules_of(settings: FormationSettings, *, all_status: bool, reach: Reach) -> str:
    """Return a hash of the settings and options that determine which sessions are due."""
    names = (
        "min_messages",
        "token_interval",
        "weight_user",
        "weight_tool",
        "weight_agent",
        "weight_other",
        "characters_per_token",
        "max_messages",
        "message_characters",
        "tool_characters",
    )
    values = [*(getattr(settings, name) for name in names), all_status, reach.value]
    return derived_id("cold", *map(str, values))[:12]


class Assessor:
    """Assess sessions. Blocks.

    Args:
        runtime: The store, the settings and the clock.
        estimates: Also estimate tokens, for a dry run.
        reach: The messages to include.
    """

    def __init__(
        self, runtime: Runtime, *, estimates: bool = False, reach: Reach = Reach.WAITING
    ) -> None:
        self._reach = reach
        self._store = runtime.store
        self._settings = runtime.settings.formation
        self._clock = runtime.clock
        self._estimates = estimates
        self.backlogs = Backlogs(runtime)

    def assess(self, session_id: str, *, only: str | None, before: datetime) -> Assessment | None:
        """Assess a session; return None if it no longer exists.

        Args:
            session_id: The session.
            only: ID of the only agent to include (None: all agents of the session).
            before: A session with messages at or after this time is active.
        """
        session = self._store.host.session(session_id)
        if session is None:
            return None
        newest = next(iter(self._store.host.messages(session_id, newest=1)), None)
        spoken = newest.created_at if newest else None
        wanted = [each for each in session.agents if only is None or each == only]
        agents = [agent for agent in map(self._store.host.agent, wanted) if agent is not None]
        active = spoken is not None and spoken >= before
        idle = session.incognito or active
        return Assessment(
            session=session,
            spoken=spoken,
            agents=len(agents),
            active=active,
            prospects=() if idle else tuple(self._prospect(session, agent) for agent in agents),
        )

    def _prospect(self, session: Session, agent: Agent) -> Prospect:
        formations = self._store.formations
        found = formations.list_formations(
            session_id=session.id, agent_id=agent.id, statuses=UNFINISHED, limit=1
        )
        for unfinished in found:
            prospect = Prospect(agent=agent, work="resume", messages=len(unfinished.message_ids))
            if unfinished.status is FormationStatus.RECORDED and not unfinished.next_step:
                return replace(prospect, work="complete")
            if not is_free(unfinished, self._clock()):
                released = unfinished.status is FormationStatus.RELEASED
                return replace(prospect, work="waiting" if released else "taken")
            ids = unfinished.message_ids if self._estimates else ()
            messages = self._store.host.messages(session.id, ids=ids) if ids else ()
            return replace(prospect, tokens=self._tokens(messages))
        backlog = self.backlogs.find(
            session,
            agent.id,
            limit=self._settings.max_messages,
            reach=self._reach,
            trigger=Trigger.COLD,
            note=not self._estimates,
        )
        prospect = Prospect(
            agent=agent,
            work="nothing",
            messages=backlog.total,
            by_platform=0 if self._reach.platform else backlog.by_platform,
            left_to_platform=backlog.left_to_platform,
        )
        if self.backlogs.is_due(session, agent, backlog, Trigger.COLD):
            share = backlog.total / max(1, len(backlog.messages))  # extrapolate from one range
            tokens = round(self._tokens(backlog.messages) * share)
            return replace(prospect, work="form", unread=backlog.passed, tokens=tokens)
        past = formations.list_formations(session_id=session.id, agent_id=agent.id, limit=1)
        return replace(prospect, formed=any(True for _ in past))

    def find_others(self, seen: Set[str], *, only: str | None) -> Iterator[tuple[Session, int]]:
        """Yield the sessions not in ``seen``, with their numbers of pending messages."""
        for session in self._store.host.sessions(agent_id=only):
            if session.id not in seen:
                agents = session.agents if only is None else (only,)
                backlogs = (
                    self._store.formations.backlog(session.id, agent, limit=0, reach=self._reach)
                    for agent in agents
                )
                yield session, sum(backlog.total for backlog in backlogs)

    def _tokens(self, messages: Iterable[Message]) -> int:
        """Return the estimated number of tokens of messages, for a dry run."""
        if not self._estimates:
            return 0
        shown = sum(measure_length(message, self._settings) for message in messages)
        return round(shown / self._settings.characters_per_token)
