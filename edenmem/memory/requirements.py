"""The data that is required before a change can be planned."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from edenmem.errors import ScopeError
from edenmem.models.changes import (
    AddAgent,
    AddFact,
    AddReflection,
    AddUser,
    Change,
    HoldItem,
    RemoveAgent,
    RemoveFact,
    RemoveHeld,
    RemovePolicy,
    RemoveReflection,
    RemoveUser,
    RepairBuffer,
    RestoreReflection,
    RevertConsolidation,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    SetPrivacy,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.forgetting import keys_of_change
from edenmem.models.memory import Fact, Held, Policy, Reflection, content_hash
from edenmem.models.scope import Scope


class Needs(msgspec.Struct, kw_only=True):
    """The data that a store has to load; the field of `State` of the same name answers each field.

    Attributes:
        facts: IDs, in any scope; whole, with the vector.
        reflections: IDs, in any scope.
        held: IDs, in any scope.
        owners: Scopes with a content hash: the fact of the scope with that text. One that
            expires is loaded too, with its head.
        keys: Scopes with a key: the fact of the scope with that key.
        heads: Target types with an ID: the last entry of history for each, and the origin of the
            current version, if history lacks it.
        texts: Scopes: their consolidated documents, with or without pending reflections.
        buffers: Scopes: their pending reflections, and for their texts the same as ``heads``.
        policies: Scopes.
        agents: IDs of agents, unless deleted.
        users: IDs of accounts, unless deleted.
        ids: IDs: whether an agent or account has it, even a deleted one.
        names: Kinds ("agent", "user") with a username: whether one has it, even a deleted one.
        used: Kinds with an ID: the data of an agent or account.
        repairs: Scopes: defects of the buffer as the store keeps it.
        answers: IDs of changes: their results, if they were applied before.
        blocks: Keys of erasures: whether one of them refuses the change.
    """

    facts: set[str] = msgspec.field(default_factory=set)
    reflections: set[str] = msgspec.field(default_factory=set)
    held: set[str] = msgspec.field(default_factory=set)
    owners: set[tuple[Scope, str]] = msgspec.field(default_factory=set)
    keys: set[tuple[Scope, str]] = msgspec.field(default_factory=set)
    heads: set[tuple[str, str]] = msgspec.field(default_factory=set)
    texts: set[Scope] = msgspec.field(default_factory=set)
    buffers: set[Scope] = msgspec.field(default_factory=set)
    policies: set[Scope] = msgspec.field(default_factory=set)
    agents: set[str] = msgspec.field(default_factory=set)
    users: set[str] = msgspec.field(default_factory=set)
    ids: set[str] = msgspec.field(default_factory=set)
    names: set[tuple[str, str]] = msgspec.field(default_factory=set)
    used: set[tuple[str, str]] = msgspec.field(default_factory=set)
    repairs: set[Scope] = msgspec.field(default_factory=set)
    answers: set[str] = msgspec.field(default_factory=set)
    blocks: set[str] = msgspec.field(default_factory=set)

    def __or__(self, other: Needs) -> Needs:
        """Return the union of both."""
        fields = self.__struct_fields__
        return Needs(**{name: getattr(self, name) | getattr(other, name) for name in fields})

    def __bool__(self) -> bool:
        """Return whether there is anything to load."""
        return any(getattr(self, name) for name in self.__struct_fields__)


def needs(changes: Iterable[Change], *, automatic: bool = False) -> Needs:
    """Name everything needed to plan these changes, in any order.

    Args:
        changes: Some or all of a set.
        automatic: Whether the set is automatic; see `ChangeSet`.
    """
    found = Needs()
    for change in changes:
        found.answers.add(change.id)
        found.blocks |= blocks_of(change)
        if automatic:
            scopes = kept_scopes(change)
            found.policies.update(scopes)
            found.agents.update(scope.agent_id for scope in scopes)
        _name(change, found)
    return found


def kept_scopes(change: Change) -> tuple[Scope, ...]:
    """Return the scopes whose facts and reflections a change may add, replace or remove.

    Marking as private is always allowed.
    """
    match change:
        case AddFact(fact=added) | AddReflection(reflection=added) | HoldItem(held=added):
            homes: tuple[Scope | None, ...] = (home_of(added),)
        case ReviseFact(scope=scope, or_add=added):
            homes = (scope, None if added is None else home_of(added))
        case RemoveFact(scope=scope):
            homes = (scope,)
        case _:
            homes = ()
    return tuple(home for home in homes if home is not None)


def blocks_of(change: Change) -> set[str]:
    """Return the keys by which an erasure refuses the change."""
    try:
        return keys_of_change(change)
    except ScopeError:  # without an owner, and refused for that
        return set()


def home_of(owned: Fact | Reflection | Held | Policy) -> Scope | None:
    """Return the scope of a document, or None if its fields name none."""
    try:
        return owned.home
    except ScopeError:
        return None


def _name_fact(fact: Fact, found: Needs) -> None:
    found.facts.add(fact.id)
    found.heads.add(("fact", fact.id))
    home = home_of(fact)
    if home is not None:
        found.owners.add((home, fact.hash))
    if home is not None and fact.key is not None:
        found.keys.add((home, fact.key))


def _name(change: Change, found: Needs) -> None:
    match change:
        case AddFact(fact=fact):
            _name_fact(fact, found)
        case ReviseFact():
            found.facts.add(change.fact_id)
            found.heads.add(("fact", change.fact_id))
            found.owners.add((change.scope, content_hash(change.content)))
            if change.fields is not None and change.fields.key is not None:
                found.keys.add((change.scope, change.fields.key))
            if change.or_add is not None:
                _name_fact(change.or_add, found)
        case RemoveFact(fact_id=id) | SetPrivacy(target_type="fact", target_id=id):
            found.facts.add(id)
            found.heads.add(("fact", id))
        case (
            ReviseReflection(reflection_id=id)
            | RemoveReflection(reflection_id=id)
            | SetPrivacy(target_type="reflection", target_id=id)
        ):
            found.reflections.add(id)
        case AddReflection(reflection=made) | RestoreReflection(reflection=made):
            found.reflections.add(made.id)
            if (home := home_of(made)) is not None:
                found.texts.add(home)
        case HoldItem(held=Held(id=id)) | RemoveHeld(held_id=id):
            found.held.add(id)
        case (
            WriteConsolidation(scope=scope, absorbed_ids=ids)
            | RevertConsolidation(scope=scope, released_ids=ids)
        ):
            found.texts.add(scope)
            found.buffers.add(scope)
            found.reflections.update(ids)
        case RepairBuffer(scope=scope):
            found.texts.add(scope)
            found.repairs.add(scope)
        case WritePolicy(policy=policy):
            if (home := home_of(policy)) is not None:
                found.policies.add(home)
        case RemovePolicy(scope=scope):
            found.policies.add(scope)
        case SetAgentToggles(agent_id=id):
            found.agents.add(id)
        case AddAgent(agent=account) | AddUser(user=account):
            found.ids.add(account.id)
            found.names.add(("agent" if isinstance(change, AddAgent) else "user", account.username))
        case RemoveAgent(agent_id=id):
            found.agents.add(id)
            found.used.add(("agent", id))
        case RemoveUser(user_id=id):
            found.users.add(id)
            found.used.add(("user", id))
