"""Agents and people's accounts that are added by hand, on the record."""

from __future__ import annotations

from datetime import datetime

from edenmem.models.changes import Actor, AddAgent, AddUser, ChangeSet
from edenmem.models.host import Agent, User
from edenmem.store.protocol import Store


def add_account(store: Store, account: Agent | User, *, actor: Actor, at: datetime) -> bool:
    """Make an agent or a person known to the host; False if the id or the username is taken."""
    change = AddAgent(agent=account) if isinstance(account, Agent) else AddUser(user=account)
    (result,) = store.apply(ChangeSet(actor=actor, at=at, changes=(change,)))
    return result.ok
