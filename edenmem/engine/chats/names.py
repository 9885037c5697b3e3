"""Agents and users by exact name or ID. All functions block.

Prefixes of IDs are for people on the command line: a program would reach the wrong object.
"""

from __future__ import annotations

from edenmem.engine.runtime.runtime import Runtime
from edenmem.models.changes import AddUser, ChangeSet
from edenmem.models.host import Agent, User
from edenmem.models.ids import derived_id


def find_agent(runtime: Runtime, name: str) -> Agent | None:
    """Return the agent with an ID or username."""
    host = runtime.store.host
    found = [host.agent(each.id) for each in host.find("agent", name)]
    exact = [agent for agent in found if agent and name in (agent.id, agent.username)]
    return exact[0] if len(exact) == 1 else None


def find_user(runtime: Runtime, name: str) -> User | None:
    """Return the account with an ID or a unique username."""
    host = runtime.store.host
    found = [host.user(each.id) for each in host.find("user", name)]
    exact = [user for user in found if user and name in (user.id, user.username)]
    return exact[0] if len(exact) == 1 else None


def add_user(runtime: Runtime, name: str) -> User | None:
    """Add an account with a name, once for all callers; None if the name is taken."""
    user = User(id=derived_id("user", name), username=name, created_at=runtime.clock())
    change = AddUser(user=user)
    runtime.store.changes.apply(
        ChangeSet(actor=runtime.actor, at=runtime.clock(), changes=(change,))
    )
    return find_user(runtime, name)
