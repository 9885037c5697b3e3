"""Accounts that v1's source knows and an embedded store does not.

A store that is a file of its own has no platform beside it that knows who the agents and users
are, and without them nobody could look at what was migrated. Into a platform's own collection
nothing is written.
"""

from __future__ import annotations

from datetime import datetime

from edenmem.engine.migration.plan import V1Plan
from edenmem.models.changes import Actor, AddAgent, AddUser, Change, ChangeSet
from edenmem.models.host import Agent, User
from edenmem.models.v1 import V1Person
from edenmem.store.protocol.store import Store, batched

_BATCH = 500
_NAMED = 5


def has_own_accounts(store: Store) -> bool:
    """Whether accounts are the store's own, and not a platform's."""
    return store.info().kind == "sqlite"


def add_people(store: Store, plan: V1Plan, *, actor: Actor, at: datetime) -> list[str]:
    """Make the agents and users of the plan known; what to tell of those that are not.

    Raises:
        StoreError: the database cannot be used.
    """
    unknown = [person for person in plan.agents() if store.agent(person.id) is None]
    added = [person for person in unknown if is_addable(person)] if has_own_accounts(store) else []
    refused = _apply(store, [_agent(person) for person in added], actor, at)
    if has_own_accounts(store):
        for people in batched(plan.users(), _BATCH):
            known = store.users_by_ids([person.id for person in people])
            new = [p for p in people if p.id not in known and is_addable(p)]
            refused += _apply(store, [_user(person) for person in new], actor, at)
    notices = [f"not added: {reason}" for reason in refused]
    if refused:
        notices.append(
            "what is theirs is kept under these ids, apart from whoever has the name here: "
            "'edenmem agent add' or 'user add' with another name and --id HEX lets it be seen"
        )
    silent = [person.username for person in added if not person.user_memory_enabled]
    if silent:
        more = f" and {len(silent) - _NAMED} more" if len(silent) > _NAMED else ""
        notices.append(
            f"user memory is off for {', '.join(map(str, silent[:_NAMED]))}{more}, as in the "
            "source: 'edenmem agent enable NAME --user-memory' turns it on"
        )
    strangers = [person.id for person in unknown if person not in added]
    if strangers:
        notices.append(strangers_notice(strangers))
    return notices


def is_addable(person: V1Person) -> bool:
    """Whether the source knows enough of the person, and that they still exist."""
    return bool(person.username) and person.known is True


def namesakes_notice(store: Store, plan: V1Plan) -> list[str]:
    """That agents have the names of others that are here, if some do, before anything is done."""
    here = {agent.username: agent.id for agent in store.agents()}
    names = [p.username for p in plan.agents() if here.get(p.username or "", p.id) != p.id]
    if not names:
        return []
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return [
        f"other agents are called {', '.join(map(str, names[:_NAMED]))}{more} here: v1's memory "
        "would be kept under v1's ids, apart from theirs"
    ]


def strangers_notice(agent_ids: list[str]) -> str:
    """That agents are not known, and what to do."""
    more = f" and {len(agent_ids) - _NAMED} more" if len(agent_ids) > _NAMED else ""
    return (
        f"the host does not know {len(agent_ids)} of the agents; their memory is kept under "
        f"their ids ({', '.join(agent_ids[:_NAMED])}{more}): 'edenmem agent add NAME --id HEX' "
        "makes one known"
    )


def _agent(person: V1Person) -> Change:
    agent = Agent(
        id=person.id,
        username=person.username or person.id,
        name=person.name or "",
        owner=person.owner,
        user_memory_enabled=person.user_memory_enabled,
    )
    return AddAgent(agent=agent, reason="known to the source of v1")


def _user(person: V1Person) -> Change:
    user = User(id=person.id, username=person.username or person.id)
    return AddUser(user=user, reason="known to the source of v1")


def _apply(store: Store, changes: list[Change], actor: Actor, at: datetime) -> list[str]:
    if not changes:
        return []
    results = store.apply(ChangeSet(actor=actor, at=at, changes=tuple(changes)))
    return [f"{found.target_id}: {found.detail}" for found in results if not found.ok]
