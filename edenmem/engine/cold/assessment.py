"""What there is to do for a quiet session: a look that claims nothing and asks no model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from datetime import datetime
from typing import Literal

import msgspec

from edenmem.engine.formation.claims import UNFINISHED
from edenmem.engine.formation.former import is_backlog_due, is_free
from edenmem.engine.formation.transcript import measure_length
from edenmem.engine.runtime.runtime import Runtime
from edenmem.models.formation import Formation, FormationStatus, Reach, Trigger
from edenmem.models.host import Agent, Message, Session
from edenmem.models.ids import derived_id
from edenmem.settings.schema import FormationSettings

Work = Literal["form", "resume", "complete", "waiting", "taken", "nothing"]

#: What a range of messages, or its claim, may be in that somebody can go on with now.
TO_DO: frozenset[Work] = frozenset({"form", "resume", "complete"})


class Prospect(msgspec.Struct, frozen=True, kw_only=True):
    """What may be done of a session for one agent, how many messages and (estimated) tokens it
    has. "resume" was begun and given back before; "complete" needs no model. ``formed``, if there
    is nothing to do, says whether there was once. ``by_platform`` counts messages that are left out
    because the platform formed them."""

    agent: Agent
    work: Work
    messages: int = 0
    tokens: int = 0
    formed: bool = False
    by_platform: int = 0


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is now. There are no prospects if it is incognito or still ``active``."""

    session: Session
    spoken: datetime | None
    agents: int
    active: bool
    prospects: tuple[Prospect, ...] = ()


def rules_of(settings: FormationSettings, *, all_status: bool, reach: Reach) -> str:
    """A name of the settings and options that decide whether a session has anything to do."""
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


def is_taken(session: Session) -> bool:
    """Whether a cold run takes the session by its status: an active one, as the platform does, or
    one that edenmem stored itself, which has another status so that the platform leaves it."""
    return session.status == "active" or session.imported


class Looker:
    """Looks at sessions. Its methods block.

    Args:
        runtime: Where the sessions are, how much is enough, and the time.
        estimates: Also estimate tokens, which is of use to a dry run only.
        reach: Which messages to take.
    """

    def __init__(
        self, runtime: Runtime, *, estimates: bool = False, reach: Reach = Reach.WAITING
    ) -> None:
        self._reach = reach
        self._store = runtime.store
        self._settings = runtime.settings.formation
        self._clock = runtime.clock
        self._estimates = estimates

    def see(self, session_id: str, *, only: str | None, before: datetime) -> Sight | None:
        """A session and what may be done of it, None if it is gone by now.

        Args:
            session_id: Which.
            only: Look at this one of its agents; None: at all that exist.
            before: Who spoke at or after this moment is still active.
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
        return Sight(
            session=session,
            spoken=spoken,
            agents=len(agents),
            active=active,
            prospects=() if idle else tuple(self.look(session, agent) for agent in agents),
        )

    def look(self, session: Session, agent: Agent) -> Prospect:
        """What may be done of a session for one of its agents."""
        found = self._store.formations.list_formations(
            session_id=session.id, agent_id=agent.id, statuses=UNFINISHED, limit=1
        )
        for unfinished in found:
            size = len(unfinished.message_ids)
            if unfinished.status is FormationStatus.RECORDED and not unfinished.next_step:
                return Prospect(agent=agent, work="complete", messages=size)
            if not is_free(unfinished, self._clock()):
                released = unfinished.status is FormationStatus.RELEASED
                work: Work = "waiting" if released else "taken"
                return Prospect(agent=agent, work=work, messages=size)
            tokens = self._tokens_of(session, unfinished) if self._estimates else 0
            return Prospect(agent=agent, work="resume", messages=size, tokens=tokens)
        limit = self._settings.max_messages
        backlog = self._store.formations.backlog(
            session.id, agent.id, limit=limit, reach=self._reach
        )
        by_platform = 0 if self._reach.platform else backlog.by_platform
        due = is_backlog_due(backlog, agent, Trigger.COLD, self._settings)
        if not due:
            past = self._store.formations.list_formations(
                session_id=session.id, agent_id=agent.id, limit=1
            )
            formed = next(iter(past), None) is not None
            return Prospect(
                agent=agent,
                work="nothing",
                messages=backlog.total,
                formed=formed,
                by_platform=by_platform,
            )
        tokens = 0
        if self._estimates:
            share = backlog.total / max(1, len(backlog.messages))  # one range stands for others
            tokens = round(self._tokens(backlog.messages) * share)
        return Prospect(
            agent=agent,
            work="form",
            messages=backlog.total,
            tokens=tokens,
            by_platform=by_platform,
        )

    def not_looked_at(self, seen: Set[str], *, only: str | None) -> Iterator[tuple[Session, int]]:
        """The sessions that are not among those ``seen``, and how many messages wait in them."""
        for session in self._store.host.sessions(agent_id=only):
            if session.id not in seen:
                agents = session.agents if only is None else (only,)
                backlogs = (
                    self._store.formations.backlog(session.id, agent, limit=0, reach=self._reach)
                    for agent in agents
                )
                yield session, sum(backlog.total for backlog in backlogs)

    def _tokens_of(self, session: Session, unfinished: Formation) -> int:
        messages = self._store.host.messages(session.id, ids=unfinished.message_ids)
        return self._tokens(tuple(messages))

    def _tokens(self, messages: Sequence[Message]) -> int:
        shown = sum(measure_length(message, self._settings) for message in messages)
        return round(shown / self._settings.characters_per_token)
