"""Shared parts of all plans: answers in words, and the audit entry."""

from __future__ import annotations

from typing import Any

import msgspec

from edenmem.memory.state import Effect, Model, Write
from edenmem.models.changes import Change, ChangeResult, ChangeSet, ChangeStatus
from edenmem.models.ids import derived_id
from edenmem.models.memory import Fact, FactFields
from edenmem.models.records import AuditEntry, HistoryEntry
from edenmem.models.scope import Scope

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
