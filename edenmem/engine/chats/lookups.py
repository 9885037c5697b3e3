"""Agents and users by exact name or ID, and the pauses of chats. All functions block.

Prefixes of IDs are for people on the command line: a program would reach the wrong object.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from edenmem.engine.runtime.runtime import Runtime
from edenmem.models.changes import AddUser, ChangeSet
from edenmem.models.formation import Trigger
from edenmem.models.host import STORED, Agent, User
from edenmem.models.ids import derived_id, is_id


def find_agent(runtime: Runtime, name: str) -> Agent | None:
    """Return the agent with an ID or username."""
    host = runtime.store.host
    found = [host.agent(each.id) for each in host.find("agent", name)]
    exact = [agent for agent in found if agent and name in (agent.id, agent.username)]
    return exact[0] if len(exact) == 1 else None


def find_user(runtime: Runtime, name: str) -> User | None:
    """Return the account with an ID or a unique username."""
    host = runtime.store.host
    if is_id(name) and (user := host.user(name)) is not None:
        return user
    named = host.users_named(name)
    return named[0] if len(named) == 1 else None


def add_user(runtime: Runtime, name: str) -> User | None:
    """Add an account with a name, once for all callers; None if the name is taken."""
    user = User(id=derived_id("user", name), username=name, created_at=runtime.clock())
    change = AddUser(user=user)
    runtime.store.changes.apply(
        ChangeSet(actor=runtime.actor, at=runtime.clock(), changes=(change,))
    )
    return find_user(runtime, name)


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
