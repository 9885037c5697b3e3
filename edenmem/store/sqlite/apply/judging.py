"""What all changes share: the set that they are of, the results, and the audit entry.

Every judgement is made before the first write of its change, and under ``BEGIN IMMEDIATE``
nobody else can write in between, so a change is applied whole or not at all without savepoints.
An error (a vector that is none, a full disk) undoes the whole set.

An audit entry's action is the change's tag. That of an addition which met with a duplicate is
`log.VOID`: such an entry is shown to nobody, and says that applying the change again has the same
end, whatever became of the duplicate since.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from edenmem.models.changes import Change, ChangeResult, ChangeSet, ChangeStatus
from edenmem.models.scope import Scope
from edenmem.store.sqlite.core import scopes
from edenmem.store.sqlite.core.codec import to_ms
from edenmem.store.sqlite.memory import log


class Judging:
    """One set on its way into the database, inside the caller's transaction."""

    def __init__(self, connection: sqlite3.Connection, changes: ChangeSet) -> None:
        self._db = connection
        self._set = changes
        self._now = to_ms(changes.at)

    def _touch(self, scope: Scope, *, reflections: int = 0, pending: int = 0) -> None:
        number = scopes.make_number(self._db, scope)
        scopes.touch(self._db, number, self._now, reflections=reflections, pending=pending)

    def _audit(
        self,
        change: Change,
        target_type: str,
        target_id: str,
        scope: Scope | None,
        before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None,
        *,
        action: str | None = None,
    ) -> None:
        log.add_audit(
            self._db,
            change.id,
            change_set_id=self._set.id,
            at=self._set.at,
            actor=self._set.actor,
            action=action or str(change.__struct_config__.tag),
            target_type=target_type,
            target_id=target_id,
            agent_id=_agent_of(scope, target_type, target_id),
            scope_id=scopes.number_of(self._db, scope) if scope else None,
            before=before,
            after=after,
            reason=change.reason,
            undoes=change.undoes,
        )


def _agent_of(scope: Scope | None, target_type: str, target_id: str) -> str:
    if scope is not None:
        return scope.agent_id
    return target_id if target_type == "agent" else ""


def result(change: Change, status: ChangeStatus, target_id: str, detail: str = "") -> ChangeResult:
    """What became of a change."""
    return ChangeResult(change_id=change.id, status=status, target_id=target_id, detail=detail)


def absent(change: Change, target_id: str) -> ChangeResult:
    """The target is not there."""
    return result(change, ChangeStatus.MISSING, target_id, "it is not there, or not in this scope")


def stale(change: Change, target_id: str, found: int, expected: int) -> ChangeResult:
    """The target is not of the version that the change was decided on."""
    return result(
        change,
        ChangeStatus.CONFLICT,
        target_id,
        f"somebody changed it: it is version {found} now, and version {expected} was expected",
    )
