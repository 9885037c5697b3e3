"""Add the agents and users of a plan to a store that manages the accounts itself."""

from __future__ import annotations

from collections.abc import Sequence

from edenmem.engine.migration.comparison import has_own_accounts
from edenmem.engine.migration.source import StagedPlan, join_names
from edenmem.engine.runtime.runtime import Runtime
from edenmem.models.changes import AddAgent, AddUser, Change, ChangeSet
from edenmem.models.host import Agent, User
from edenmem.models.v1 import V1Account
from edenmem.store.protocol.store import Store, batched

_BATCH = 500


def find_new_agents(store: Store, plan: StagedPlan) -> tuple[list[V1Account], list[str]]:
    """Return the agents to add, and a notice if others stay unknown to the host."""
    unknown = [person for person in plan.agents() if store.host.agent(person.id) is None]
    new = list(filter(_is_addable, unknown)) if has_own_accounts(store) else []
    added = {person.id for person in new}
    strangers = [person.id for person in unknown if person.id not in added]
    if not strangers:
        return new, []
    count = "1 agent is" if len(strangers) == 1 else f"{len(strangers)} agents are"
    return new, [
        f"{count} unknown to the host; memory is kept under the ID "
        f"({join_names(strangers)}): add an agent with "
        "'edenmem agent add NAME --id ID'"
    ]


def add_people(runtime: Runtime, plan: StagedPlan) -> list[str]:
    """Add the agents and users of the plan; return notices.

    The memory of an account that is not added, since its username is taken, keeps its ID.

    Raises:
        StoreError: the database cannot be used.
    """
    agents, notices = find_new_agents(runtime.store, plan)
    refused = _add(runtime, agents)
    for people in batched(plan.users(), _BATCH) if has_own_accounts(runtime.store) else ():
        known = runtime.store.host.users_by_ids([person.id for person in people])
        refused += _add(runtime, [p for p in people if p.id not in known and _is_addable(p)])
    added = [f"not added: {reason}" for reason in refused]
    if silent := [each.username for each in agents if not each.user_memory_enabled]:
        added.append(
            f"user memory is off for {join_names(silent)}, as in the "
            "source: 'edenmem agent set NAME --user-memory' turns it on"
        )
    return added + notices


def _is_addable(person: V1Account) -> bool:
    """Return whether the source has the person's username, and the person still exists."""
    return bool(person.username and person.known)


def describe_agent(person: V1Account) -> Agent:
    """Return the agent that a run adds for a v1 agent."""
    return Agent(
        id=person.id,
        username=person.username or person.id,
        name=person.name,
        persona=person.persona,
        owner=person.owner or None,
        user_memory_enabled=person.user_memory_enabled,
    )


def describe_user(person: V1Account) -> User:
    """Return the account that a run adds for a v1 user."""
    return User(
        id=person.id,
        username=person.username or person.id,
        eden_user_id=person.eden_user_id or None,
    )


def _add(runtime: Runtime, people: Sequence[V1Account]) -> list[str]:
    """Add accounts, and return what the store refused."""
    if not people:
        return []
    why = "known to the source of v1"
    changes: list[Change] = [
        AddAgent(agent=describe_agent(person), reason=why)
        if person.is_agent
        else AddUser(user=describe_user(person), reason=why)
        for person in people
    ]
    results = runtime.store.changes.apply(
        ChangeSet(actor=runtime.actor, at=runtime.clock(), changes=tuple(changes))
    )
    return [
        f"{found.detail}; its memory is kept under its ID: add it under another name with "
        f"'edenmem {'agent' if person.is_agent else 'user'} add NAME --id {person.id}'"
        for person, found in zip(people, results, strict=True)
        if not found.ok
    ]
