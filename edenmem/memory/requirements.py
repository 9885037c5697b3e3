"""The data that is required before a change can be planned."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

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
        _NAMED[type(change)](change, found)
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


def _add_fact(change: AddFact, found: Needs) -> None:
    _name_fact(change.fact, found)


def _revise_fact(change: ReviseFact, found: Needs) -> None:
    found.facts.add(change.fact_id)
    found.heads.add(("fact", change.fact_id))
    found.owners.add((change.scope, content_hash(change.content)))
    if change.fields is not None and change.fields.key is not None:
        found.keys.add((change.scope, change.fields.key))
    if change.or_add is not None:
        _name_fact(change.or_add, found)


def _remove_fact(change: RemoveFact, found: Needs) -> None:
    found.facts.add(change.fact_id)
    found.heads.add(("fact", change.fact_id))


def _set_privacy(change: SetPrivacy, found: Needs) -> None:
    if change.target_type == "fact":
        found.facts.add(change.target_id)
        found.heads.add(("fact", change.target_id))  # if the same fact is added next
    elif change.target_type == "reflection":
        found.reflections.add(change.target_id)


def _insert_reflection(change: AddReflection | RestoreReflection, found: Needs) -> None:
    found.reflections.add(change.reflection.id)
    home = home_of(change.reflection)
    if home is not None:
        found.texts.add(home)


def _named_reflection(change: ReviseReflection | RemoveReflection, found: Needs) -> None:
    found.reflections.add(change.reflection_id)


def _hold_item(change: HoldItem, found: Needs) -> None:
    found.held.add(change.held.id)


def _remove_held(change: RemoveHeld, found: Needs) -> None:
    found.held.add(change.held_id)


def _write_consolidation(change: WriteConsolidation, found: Needs) -> None:
    found.texts.add(change.scope)
    found.buffers.add(change.scope)
    found.reflections.update(change.absorbed_ids)


def _revert_consolidation(change: RevertConsolidation, found: Needs) -> None:
    found.texts.add(change.scope)
    found.buffers.add(change.scope)
    found.reflections.update(change.released_ids)


def _repair_buffer(change: RepairBuffer, found: Needs) -> None:
    found.texts.add(change.scope)
    found.repairs.add(change.scope)


def _write_policy(change: WritePolicy, found: Needs) -> None:
    home = home_of(change.policy)
    if home is not None:
        found.policies.add(home)


def _remove_policy(change: RemovePolicy, found: Needs) -> None:
    found.policies.add(change.scope)


def _set_agent_toggles(change: SetAgentToggles, found: Needs) -> None:
    found.agents.add(change.agent_id)


def _add_agent(change: AddAgent, found: Needs) -> None:
    found.ids.add(change.agent.id)
    found.names.add(("agent", change.agent.username))


def _add_user(change: AddUser, found: Needs) -> None:
    found.ids.add(change.user.id)
    found.names.add(("user", change.user.username))


def _remove_agent(change: RemoveAgent, found: Needs) -> None:
    found.agents.add(change.agent_id)
    found.used.add(("agent", change.agent_id))


def _remove_user(change: RemoveUser, found: Needs) -> None:
    found.users.add(change.user_id)
    found.used.add(("user", change.user_id))


_NAMED: dict[type, Callable[[Any, Needs], None]] = {
    AddFact: _add_fact,
    ReviseFact: _revise_fact,
    RemoveFact: _remove_fact,
    SetPrivacy: _set_privacy,
    AddReflection: _insert_reflection,
    RestoreReflection: _insert_reflection,
    ReviseReflection: _named_reflection,
    RemoveReflection: _named_reflection,
    HoldItem: _hold_item,
    RemoveHeld: _remove_held,
    WriteConsolidation: _write_consolidation,
    RevertConsolidation: _revert_consolidation,
    RepairBuffer: _repair_buffer,
    WritePolicy: _write_policy,
    RemovePolicy: _remove_policy,
    SetAgentToggles: _set_agent_toggles,
    AddAgent: _add_agent,
    AddUser: _add_user,
    RemoveAgent: _remove_agent,
    RemoveUser: _remove_user,
}
