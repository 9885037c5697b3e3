"""The state of memory while changes are planned: what they need, and the effect of each.

`Needs` are the data that a store loads before changes can be planned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from edenmem.errors import ScopeError
from edenmem.models.changes import (
    AddAgent,
    AddFact,
    AddReflection,
    AddUser,
    Change,
    ChangeSet,
    ChangeStatus,
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
from edenmem.models.host import Agent, User
from edenmem.models.ids import derived_id
from edenmem.models.memory import (
    Consolidation,
    Fact,
    FactFields,
    Held,
    Policy,
    Reflection,
    content_hash,
)
from edenmem.models.records import AuditEntry, ChangeResult, HistoryEntry
from edenmem.models.scope import Scope


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The last history entry of a target.

    ``life`` counts how often a fact was restored; a store that does not need it to order versions
    may leave it at 0.
    """

    version: int
    life: int = 0


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a version. ``at`` is None if the document has the time."""

    action: str
    actor: str = ""
    change_id: str | None = None
    at: datetime | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a change applied before. ``void``: it met the duplicate ``target_id``."""

    target_id: str
    void: bool = False


class Disorder(msgspec.Struct, frozen=True, kw_only=True):
    """A defect of a buffer as the store keeps it: found and expected, for the audit entry."""

    before: dict[str, Any]
    after: dict[str, Any]


#: What an agent or account may have, in words, by the names in `State.used` and `State.grown`.
_USES = {
    "facts": "has facts",
    "reflections": "has reflections",
    "held": "has items that wait for review",
    "texts": "has a text",
    "policies": "has a policy",
    "sessions": "has sessions",
    "agents": "has agents",
}


class State(msgspec.Struct, kw_only=True):
    """What a store loaded for some `Needs`, updated by `fold`.

    A present key is known; its value None means that the object does not exist. A working copy for
    one batch or dry run: `fold` modifies it. ``buffers`` has the IDs of pending reflections with
    the times that order them. ``origins`` complements ``heads`` for targets whose version history
    lacks; keys of both are a target type and an ID. ``used`` counts the data of agents and
    accounts by kind; other references are named in words. The numbers need not be exact above the
    number of changes of a batch.

    More may be loaded later (`missing`, `take`). Folded data takes precedence over data loaded
    later, since the store has none of it.
    """

    facts: dict[str, Fact | None] = msgspec.field(default_factory=dict)
    reflections: dict[str, Reflection | None] = msgspec.field(default_factory=dict)
    held: dict[str, Held | None] = msgspec.field(default_factory=dict)
    owners: dict[tuple[Scope, str], str | None] = msgspec.field(default_factory=dict)
    keys: dict[tuple[Scope, str], str | None] = msgspec.field(default_factory=dict)
    heads: dict[tuple[str, str], Head | None] = msgspec.field(default_factory=dict)
    origins: dict[tuple[str, str], Origin] = msgspec.field(default_factory=dict)
    texts: dict[Scope, Consolidation | None] = msgspec.field(default_factory=dict)
    buffers: dict[Scope, dict[str, datetime]] = msgspec.field(default_factory=dict)
    policies: dict[Scope, Policy | None] = msgspec.field(default_factory=dict)
    agents: dict[str, Agent | None] = msgspec.field(default_factory=dict)
    users: dict[str, User | None] = msgspec.field(default_factory=dict)
    ids: dict[str, bool] = msgspec.field(default_factory=dict)
    names: dict[tuple[str, str], bool] = msgspec.field(default_factory=dict)
    used: dict[tuple[str, str], dict[str, int]] = msgspec.field(default_factory=dict)
    repairs: dict[Scope, Disorder | None] = msgspec.field(default_factory=dict)
    answers: dict[str, Answer | None] = msgspec.field(default_factory=dict)
    blocks: dict[str, bool] = msgspec.field(default_factory=dict)
    #: Folded changes of buffers and uses, known or not: time or None by ID, numbers by name.
    moved: dict[Scope, dict[str, datetime | None]] = msgspec.field(default_factory=dict)
    grown: dict[tuple[str, str], dict[str, int]] = msgspec.field(default_factory=dict)

    def missing(self, needs: Needs) -> Needs:
        """Return the part of ``needs`` that is unknown."""
        left = Needs()
        for name in left.__struct_fields__:
            known = getattr(self, name)
            setattr(left, name, {key for key in getattr(needs, name) if key not in known})
        return left

    def take(self, loaded: State) -> None:
        """Add what was loaded for `missing` needs."""
        for name in self.__struct_fields__:
            mine = getattr(self, name)
            for key, value in getattr(loaded, name).items():
                mine.setdefault(key, value)

    def waiting(self, scope: Scope) -> dict[str, datetime]:
        """Return the pending reflections in a known buffer, with their times."""
        times = {**self.buffers.get(scope, {}), **self.moved.get(scope, {})}
        return {each: at for each, at in times.items() if at is not None}

    def buffer(self, scope: Scope) -> tuple[str, ...]:
        """Return the IDs of the pending reflections in a known buffer, in order."""
        times = self.waiting(scope)
        return tuple(sorted(times, key=lambda each: (times[each], each)))

    def use(self, kind: str, account_id: str) -> str:
        """Return what an agent ("agent") or account ("user") has, in words; "" if nothing."""
        used = Counter(self.used.get((kind, account_id), {}))
        used.update(self.grown.get((kind, account_id), {}))
        names = (name for name in (*_USES, *used) if used[name] > 0)
        return next((_USES.get(name, name) for name in names), "")


#: Documents that changes can write.
Model = Fact | Reflection | Held | Consolidation | Policy | Agent | User

#: The field of `State` with the documents of a kind.
FIELDS = {
    "fact": "facts",
    "reflection": "reflections",
    "held": "held",
    "consolidation": "texts",
    "policy": "policies",
    "agent": "agents",
    "user": "users",
}
_KINDS: dict[type, str] = {
    Fact: "fact",
    Reflection: "reflection",
    Held: "held",
    Consolidation: "consolidation",
    Policy: "policy",
    Agent: "agent",
    User: "user",
}


class Write(msgspec.Struct, frozen=True):
    """One document before and after. ``old`` is None for an insert, ``new`` for a deletion.

    A store writes the fields that differ, provided that the document still equals ``old`` (same
    version). A fact's vector is kept if ``embedding`` is the same object in both.

    ``unabsorbed_ids`` of a consolidated text is for the audit entry, and complete only if a version
    is written. The flags determine what is pending. A store that also keeps a list adds and removes
    the reflections whose `waits` differs, and leaves unknown ones.
    """

    old: Model | None
    new: Model | None

    @property
    def model(self) -> Model:
        """Return the document that identifies the write: the new one, or the deleted one."""
        found = self.old if self.new is None else self.new
        assert found is not None
        return found

    @property
    def kind(self) -> str:
        """Return "fact", "reflection", "held", "consolidation", "policy", "agent" or "user"."""
        return _KINDS[type(self.model)]

    @property
    def waits(self) -> tuple[bool, bool]:
        """Return whether it was, and will be, in its scope's buffer.

        The buffer has existing reflections that are not absorbed.
        """
        return _waits(self.old), _waits(self.new)


def _waits(model: Model | None) -> bool:
    return isinstance(model, Reflection) and not model.absorbed


class Touch(msgspec.Struct, frozen=True):
    """A scope that changes: its revision grows, and its counts by these numbers."""

    scope: Scope
    facts: int = 0
    reflections: int = 0
    pending: int = 0


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of one change. A refused or repeated change has only a result.

    Attributes:
        change: The change.
        result: The answer.
        writes: Documents.
        versions: New entries of history, in order: the replaced version, if history lacks it,
            and the new one or the tombstone.
        life: The life of the versions; see `Head`.
        origin: The origin of the resulting version of a fact or text, if any.
        entry: The finished audit entry; ``status`` is "void" for an addition that met a
            duplicate, which is hidden and keeps the answer.
        touches: Scopes that change.
        repairs: The scope whose buffer the store repairs, in its own form.
    """

    change: Change
    result: ChangeResult
    writes: tuple[Write, ...] = ()
    versions: tuple[HistoryEntry, ...] = ()
    life: int = 0
    origin: Origin | None = None
    entry: AuditEntry | None = None
    touches: tuple[Touch, ...] = ()
    repairs: Scope | None = None


#: The status of a hidden audit entry: an addition that met a duplicate. Applying the change again
#: has the same result, even if the duplicate has changed since.
VOID = "void"

_RARE = ("related_users", "place", *FactFields.__struct_fields__)


def result(change: Change, status: ChangeStatus, target_id: str, detail: str = "") -> ChangeResult:
    """Return the result of a change."""
    return ChangeResult(change_id=change.id, status=status, target_id=target_id, detail=detail)


def conflict(change: Change, target_id: str, detail: str) -> Effect:
    """Refuse a change."""
    return Effect(change=change, result=result(change, ChangeStatus.CONFLICT, target_id, detail))


def stale(change: Change, target_id: str, found: int, expected: int) -> Effect:
    """Refuse a change whose target has another version than expected."""
    detail = f"changed in the meantime: version {found}, expected {expected}"
    return conflict(change, target_id, detail)


def missing(change: Change, target_id: str, detail: str = "not found in this scope") -> Effect:
    """Answer that the target does not exist."""
    return Effect(change=change, result=result(change, ChangeStatus.MISSING, target_id, detail))


def plain(model: msgspec.Struct | None) -> dict[str, Any] | None:
    """Return a document as audit entries store it: JSON values, without the vector."""
    if model is None:
        return None
    if isinstance(model, Fact) and model.embedding is not None:
        model = msgspec.structs.replace(model, embedding=None)
    fields: dict[str, Any] = msgspec.to_builtins(model)
    fields.pop("embedding", None)
    for rare in _RARE:  # most have none
        if not fields.get(rare):
            fields.pop(rare, None)
    return {name: list(each) if type(each) is tuple else each for name, each in fields.items()}


def audit(
    change: Change,
    context: ChangeSet,
    target_type: str,
    target_id: str,
    scope: Scope | None,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    *,
    status: str = "done",
) -> AuditEntry:
    """Return the audit entry of a change."""
    return AuditEntry(
        id=change.id,
        change_set_id=context.id,
        at=context.at,
        actor=context.actor,
        action=str(type(change).__struct_config__.tag),
        target_type=target_type,
        target_id=target_id,
        agent_id=scope.agent_id if scope else target_id if target_type == "agent" else "",
        scope=scope,
        before=before,
        after=after,
        reason=change.reason,
        status=status,
        undoes=change.undoes,
    )


def duplicate(
    change: Change, context: ChangeSet, target_type: str, target_id: str, scope: Scope, detail: str
) -> Effect:
    """Answer an addition that the scope already has."""
    return Effect(
        change=change,
        result=result(change, ChangeStatus.DUPLICATE, target_id, detail),
        entry=audit(change, context, target_type, target_id, scope, status=VOID),
    )


def version_id(target_type: str, target_id: str, version: int, change_id: str | None) -> str:
    """Return the deterministic ID of a version's history entry."""
    return derived_id("history", target_type, target_id, str(version), change_id or "")


def history_entry(
    target_type: str, target_id: str, scope: Scope, version: int, **fields: Any
) -> HistoryEntry:
    """Return the history entry of a version."""
    return HistoryEntry(
        id=version_id(target_type, target_id, version, fields.get("change_id")),
        target_type=target_type,
        target_id=target_id,
        scope=scope,
        version=version,
        **fields,
    )


def written(
    change: Change,
    context: ChangeSet,
    old: Model | None,
    new: Model | None,
    scope: Scope | None = None,
    *touches: Touch,
) -> Effect:
    """Return the effect of a change that writes one document and no version."""
    write = Write(old, new)
    target = write.model.id
    return Effect(
        change=change,
        result=result(change, ChangeStatus.APPLIED, target),
        writes=(write,),
        entry=audit(change, context, write.kind, target, scope, plain(old), plain(new)),
        touches=touches,
    )


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


#: The fields of changes with what they add.
ADDED = ("fact", "or_add", "reflection", "held", "policy")


def scopes_of(change: Change) -> tuple[Scope, ...]:
    """Return the scopes that a change names: of its target, and of what it adds."""
    added = (getattr(change, name, None) for name in ADDED)
    homes = (home_of(each) for each in added if each is not None)
    found = (getattr(change, "scope", None), *homes)
    return tuple(dict.fromkeys(each for each in found if each is not None))


def kept_scopes(change: Change) -> tuple[Scope, ...]:
    """Return the scopes whose facts and reflections a change may add, replace or remove.

    Marking as private is always allowed.
    """
    adds = AddFact | AddReflection | HoldItem | ReviseFact | RemoveFact
    return scopes_of(change) if isinstance(change, adds) else ()


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
