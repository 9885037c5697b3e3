"""Pauses of chats. Blocks."""

from __future__ import annotations

from datetime import datetime, timedelta

from edenmem.engine.runtime.runtime import Runtime
from edenmem.models.formation import Trigger
from edenmem.models.host import STORED

#: Every pause is a paid formation, so each doubles the wait of its session, up to this.
_LONGEST_SECONDS = 600.0
#: No wait doubles more often.
_MOST_PAUSES = 10
#: Sessions to look through after a start, and how long ago their last message may be.
_LATEST, _RECENT = 200, timedelta(days=1)


def due_at(runtime: Runtime, session_id: str, agent_id: str) -> datetime | None:
    """Return when a chat is formed if it stays quiet, or None if it has no messages."""
    newest = next(iter(runtime.store.host.messages(session_id, newest=1)), None)
    if newest is None:
        return None
    formations = runtime.store.formations.list_formations(
        session_id=session_id, agent_id=agent_id, limit=_MOST_PAUSES
    )
    pauses = sum(each.trigger is Trigger.COLD for each in formations)
    first = runtime.settings.server.form_after
    seconds = min(first * 2**pauses, max(first, _LONGEST_SECONDS))
    return newest.created_at + timedelta(seconds=seconds)


def find_recent(runtime: Runtime) -> list[tuple[str, str]]:
    """Return the recent chats, as (session, agent); a stopped server may have left them waiting."""
    since = runtime.clock() - _RECENT
    return [
        (session.id, agent)
        for session in runtime.store.host.sessions(limit=_LATEST)
        if session.imported
        and session.status == STORED
        and session.last_activity is not None
        and session.last_activity >= since
        for agent in session.agents
    ]
