"""Agents and people's accounts that are added by hand, on the record."""

from __future__ import annotations

from datetime import datetime

from edenmem.errors import UsageError
from edenmem.models.changes import Actor, AddAgent, AddUser, ChangeSet
from edenmem.models.host import Agent, User
from edenmem.store.protocol.store import Store


def add_account(store: Store, account: Agent | User, *, actor: Actor, at: datetime) -> bool:
    """Add an agent or a person to the host; False if the id or the username is taken.

    Raises:
        UsageError: the store cannot have such an account.
    """
    if reason := store.refusal(account):
        raise UsageError(reason, hint="name the user who owns it: --owner USER")
    change = AddAgent(agent=account) if isinstance(account, Agent) else AddUser(user=account)
    (result,) = store.apply(ChangeSet(actor=actor, at=at, changes=(change,)))
    return result.ok
