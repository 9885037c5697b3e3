"""What there is to do for a quiet session: a look that claims nothing and asks no model."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Literal

import msgspec

from edenmem.engine.claims import UNFINISHED
from edenmem.engine.formation import is_backlog_due, is_free
from edenmem.engine.transcript import shown_length
from edenmem.models.formation import FormationStatus, Trigger
from edenmem.models.host import Agent, Message, Session
from edenmem.models.ids import derived_id
from edenmem.settings.schema import FormationSettings
from edenmem.store.protocol import Store

Work = Literal["form", "resume", "complete", "waiting", "taken", "nothing"]

#: What a range of messages, or its claim, may be in that somebody can go on with now.
TO_DO: frozenset[Work] = frozenset({"form", "resume", "complete"})


class Prospect(msgspec.Struct, frozen=True, kw_only=True):
    """What may be done of a session for one agent, how many messages and (estimated) tokens it
    has. "resume" was begun and given back before; "complete" needs no model."""

    agent: Agent
    work: Work
    messages: int = 0
    tokens: int = 0


def rules_of(settings: FormationSettings) -> str:
    """A name of the settings that decide whether a session has anything to do."""
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
    return derived_id("cold", *(str(getattr(settings, name)) for name in names))[:12]


class Looker:
    """Looks at sessions. Its methods block."""

    def __init__(
        self, store: Store, settings: FormationSettings, clock: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock

    def last_spoken(self, session_id: str) -> datetime | None:
        """When the newest message was written."""
        newest = next(iter(self._store.messages(session_id, newest=1)), None)
        return newest.created_at if newest else None

    def agents(self, session: Session, only: str | None = None) -> list[Agent]:
        """The session's agents that exist, or of these the one."""
        wanted = [each for each in session.agents if only is None or each == only]
        return [agent for agent in map(self._store.agent, wanted) if agent is not None]

    def look(self, session: Session, agent: Agent) -> Prospect:
        """What may be done of a session for one of its agents."""
        found = self._store.formations(
            session_id=session.id, agent_id=agent.id, statuses=UNFINISHED, limit=1
        )
        for unfinished in found:
            size = len(unfinished.message_ids)
            if unfinished.status is FormationStatus.RECORDED:
                return Prospect(agent=agent, work="complete", messages=size)
            if not is_free(unfinished, self._clock()):
                released = unfinished.status is FormationStatus.RELEASED
                work: Work = "waiting" if released else "taken"
                return Prospect(agent=agent, work=work, messages=size)
            messages = tuple(self._store.messages(session.id, ids=unfinished.message_ids))
            return Prospect(
                agent=agent, work="resume", messages=size, tokens=self._tokens(messages)
            )
        limit = self._settings.max_messages
        backlog = self._store.backlog(session.id, agent.id, limit=limit)
        due = is_backlog_due(backlog, agent, Trigger.COLD, self._settings)
        if not due:
            return Prospect(agent=agent, work="nothing", messages=backlog.total)
        share = backlog.total / max(1, len(backlog.messages))  # one range stands for the others
        return Prospect(
            agent=agent,
            work="form",
            messages=backlog.total,
            tokens=round(self._tokens(backlog.messages) * share),
        )

    def _tokens(self, messages: tuple[Message, ...]) -> int:
        shown = sum(shown_length(message, self._settings) for message in messages)
        return round(shown / self._settings.characters_per_token)
