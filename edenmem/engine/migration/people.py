"""Add the agents and users of a plan to a store that manages the accounts itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from edenmem.engine.migration.comparison import has_own_accounts
from edenmem.engine.migration.source import StagedPlan, join_names
from edenmem.engine.runtime.runtime import Runtime
from edenmem.models.changes import AddAgent, AddUser, Change, ChangeSet
from edenmem.models.host import Agent, User
from edenmem.models.v1 import V1Account, V1Problem, V1ProblemKind
from edenmem.store.protocol.store import Store, batched

_BATCH = 500


#: Advice on an account whose name is taken, by kind.
_TAKEN = {
    "agent": "its memory is kept under its ID: name the agent with "
    "'edenmem agent add NAME --id ID'",
    "user": "its memory is kept under its ID: name the user with 'edenmem user add NAME --id ID', "
    "or move the memory with 'edenmem user merge' if both are one person",
}


class People(NamedTuple):
    """The agents to add, accounts with a taken name, and IDs of unknown agents."""

    agents: list[V1Account]
    taken: list[V1Problem]
    strangers: list[str]


def survey(store: Store, plan: StagedPlan) -> People:
    """Compare the people of a plan with those of a store."""
    own, taken = has_own_accounts(store), list(_find_taken_names(store, plan))
    unknown = [person for person in plan.agents() if store.host.agent(person.id) is None]
    known = [person for person in unknown if own and is_addable(person)]
    not_added = {problem.document_id for problem in taken}
    return People(
        agents=[person for person in known if person.id not in not_added],
        taken=taken,
        strangers=[person.id for person in unknown if person not in known],
    )


def add_people(runtime: Runtime, plan: StagedPlan) -> tuple[list[V1Problem], list[str]]:
    """Add the agents and users of the plan; return accounts with a taken name, and notices.

    Raises:
        StoreError: the database cannot be used.
    """
    host, found = runtime.store.host, survey(runtime.store, plan)
    refused = _add(runtime, found.agents)
    not_added = {problem.document_id for problem in found.taken}
    for people in batched(plan.users(), _BATCH) if has_own_accounts(runtime.store) else ():
        known = {*not_added, *host.users_by_ids([person.id for person in people])}
        refused += _add(runtime, [p for p in people if p.id not in known and is_addable(p)])
    notices = [f"not added: {reason}" for reason in refused]
    if silent := [each.username for each in found.agents if not each.user_memory_enabled]:
        notices.append(
            f"user memory is off for {join_names(silent)}, as in the "
            "source: 'edenmem agent set NAME --user-memory' turns it on"
        )
    return found.taken, notices + strangers_notice(found.strangers)


def is_addable(person: V1Account) -> bool:
    """Return whether the source has the person's username, and the person still exists."""
    return bool(person.username and person.known)


def _find_taken_names(store: Store, plan: StagedPlan) -> Iterator[V1Problem]:
    """Yield a problem for each account whose username is taken, here or in the source."""
    if not has_own_accounts(store):
        return
    host = store.host
    names = {agent.username: agent.id for agent in host.agents()}
    new = (person for person in plan.agents() if host.agent(person.id) is None)
    yield from _find_holders("agent", new, names)
    names = {user.username: user.id for user in host.users()}
    for people in batched(plan.users(), _BATCH):
        known = host.users_by_ids([person.id for person in people])
        new = (person for person in people if person.id not in known)
        yield from _find_holders("user", new, names)


def _find_holders(
    kind: Literal["agent", "user"], people: Iterable[V1Account], names: dict[str, str]
) -> Iterator[V1Problem]:
    for person in filter(is_addable, people):
        holder = names.setdefault(person.username, person.id)
        if holder != person.id:
            yield V1Problem(
                collection="users3",
                document_id=person.id,
                agent_id=person.id if kind == "agent" else None,
                kind=V1ProblemKind.NAME_TAKEN,
                detail=f"{kind} name {person.username!r} is taken by {holder}; {_TAKEN[kind]}",
            )


def strangers_notice(agent_ids: Sequence[str]) -> list[str]:
    """Return a notice on agents that the host does not know, if there are any."""
    if not agent_ids:
        return []
    count = "1 agent is" if len(agent_ids) == 1 else f"{len(agent_ids)} agents are"
    return [
        f"{count} unknown to the host; memory is kept under the ID "
        f"({join_names(agent_ids)}): add an agent with "
        "'edenmem agent add NAME --id ID'"
    ]


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
    return [f"{found.target_id}: {found.detail}" for found in results if not found.ok]
