"""The known state of memory while changes are planned, and the effect and answer of each change."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import msgspec

from edenmem.memory.requirements import Needs
from edenmem.models.changes import Change, ChangeSet, ChangeStatus
from edenmem.models.host import Agent, User
from edenmem.models.ids import derived_id
from edenmem.models.memory import Consolidation, Fact, FactFields, Held, Policy, Reflection
from edenmem.models.records import AuditEntry, ChangeResult, HistoryEntry
from edenmem.models.scope import Scope


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The last history entry of a target.

    ``life`` counts how often a fact was restored; a store that does not need it to order versions
    may leave it at 0.
    """

    version: int
    action: str
    life: int = 0

    @property
    def is_tombstone(self) -> bool:
        """Return whether the entry records a removal."""
        return self.action == "delete"


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

    A dry run may load more later (`missing`, `take`). Folded data takes precedence over data loaded
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

    def buffer(self, scope: Scope) -> tuple[str, ...]:
        """Return the IDs of the pending reflections in a known buffer, in order."""
        times: dict[str, datetime | None] = dict(self.buffers.get(scope, {}))
        times.update(self.moved.get(scope, {}))
        ordered = sorted((at, each) for each, at in times.items() if at is not None)
        return tuple(each for _, each in ordered)

    def use(self, kind: str, account_id: str) -> str:
        """Return what an agent ("agent") or account ("user") has, in words; "" if nothing."""
        used = Counter(self.used.get((kind, account_id), {}))
        used.update(self.grown.get((kind, account_id), {}))
        names = (name for name in (*_USES, *used) if used[name] > 0)
        return next((_USES.get(name, name) for name in names), "")


#: Documents that changes can write.
Model = Fact | Reflection | Held | Consolidation | Policy | Agent | User

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
        reads: Scopes that do not change, but on which the answer depends.
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
    reads: tuple[Scope, ...] = ()
    repairs: Scope | None = None


#: The status of a hidden audit entry: an addition that met a duplicate. Applying the change again
#: has the same result, even if the duplicate has changed since.
VOID = "void"

_RARE = ("related_users", "place", *FactFields.__struct_fields__)

NOT_THERE = "not found in this scope"


def result(change: Change, status: ChangeStatus, target_id: str, detail: str = "") -> ChangeResult:
    """Return the result of a change."""
    return ChangeResult(change_id=change.id, status=status, target_id=target_id, detail=detail)


def conflict(change: Change, target_id: str, detail: str, *reads: Scope) -> Effect:
    """Refuse a change; the answer depends on what is in ``reads``."""
    answer = result(change, ChangeStatus.CONFLICT, target_id, detail)
    return Effect(change=change, result=answer, reads=reads)


def stale(change: Change, target_id: str, found: int, expected: int, *reads: Scope) -> Effect:
    """Refuse a change whose target has another version than expected."""
    detail = f"changed in the meantime: version {found}, expected {expected}"
    return conflict(change, target_id, detail, *reads)


def missing(change: Change, target_id: str, detail: str = NOT_THERE, *reads: Scope) -> Effect:
    """Answer that the target does not exist."""
    answer = result(change, ChangeStatus.MISSING, target_id, detail)
    return Effect(change=change, result=answer, reads=reads)


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
        reads=(scope,),
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


def rewrite(old: Model, **fields: Any) -> Write:
    """Return a write of some fields of an existing document."""
    return Write(old, msgspec.structs.replace(old, **fields))
