"""Plan changes to agents and accounts that edenmem adds or removes."""

from __future__ import annotations

from edenmem.memory.effect import Effect, Write
from edenmem.memory.outcome import audit, conflict, missing, plain, result
from edenmem.memory.state import State
from edenmem.models.changes import (
    AddAgent,
    AddUser,
    ChangeSet,
    ChangeStatus,
    RemoveAgent,
    RemoveUser,
)
from edenmem.models.host import Agent, User


def add(change: AddAgent | AddUser, state: State, context: ChangeSet) -> Effect:
    """Plan an agent or account whose ID and username must be free."""
    account: Agent | User
    kind, account = (
        ("agent", change.agent) if isinstance(change, AddAgent) else ("user", change.user)
    )
    if state.ids.get(account.id) or state.names.get((kind, account.username)):
        detail = f"ID or username already in use: {account.username!r}"
        return conflict(change, account.id, detail)
    return Effect(
        change=change,
        result=result(change, ChangeStatus.APPLIED, account.id),
        writes=(Write(None, account),),
        entry=audit(change, context, kind, account.id, None, None, plain(account)),
    )


def remove(change: RemoveAgent | RemoveUser, state: State, context: ChangeSet) -> Effect:
    """Plan the removal of an agent or account without references."""
    account: Agent | User | None
    if isinstance(change, RemoveAgent):
        kind, account_id, account = "agent", change.agent_id, state.agents.get(change.agent_id)
    else:
        kind, account_id, account = "user", change.user_id, state.users.get(change.user_id)
    if account is None:
        return missing(change, account_id, f"there is no such {kind}")
    used = state.use(kind, account_id).words
    if used:
        return conflict(change, account_id, f"{account.username!r} {used}")
    return Effect(
        change=change,
        result=result(change, ChangeStatus.APPLIED, account_id),
        writes=(Write(account, None),),
        entry=audit(change, context, kind, account_id, None, plain(account), None),
    )
