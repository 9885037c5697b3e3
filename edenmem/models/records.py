"""Actors, results, audit entries and history versions of changes."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from edenmem.models.memory import Fact
from edenmem.models.scope import Scope


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """The author of changes: name, host, command and run."""

    name: str
    host: str
    command: str
    run_id: str | None = None


class ChangeStatus(StrEnum):
    """The status of a change."""

    APPLIED = "applied"
    ALREADY = "already"  # the change was applied before
    DUPLICATE = "duplicate"  # the scope already has the fact ``target_id``
    ADDED_INSTEAD = "added_instead"  # the target had changed, so ``or_add`` was inserted
    CONFLICT = "conflict"
    MISSING = "missing"


class ChangeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one change; ``detail`` explains a conflict."""

    change_id: str
    status: ChangeStatus
    target_id: str
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Check whether memory now has the state of the change."""
        return self.status not in (ChangeStatus.CONFLICT, ChangeStatus.MISSING)


#: The action of an entry that holds an unreadable document, which undo restores.
SET_ASIDE = "set_aside"


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a change. ``before`` and ``after`` are full documents without vectors.

    ``id`` is the ID of the change, ``action`` its tag. ``agent_id`` is "" for user accounts.
    ``undoes`` is the ID of the entry that this change undid. ``status`` is "done", or "pending"
    after a crash between the entry and the change (never on stores with transactions).
    """

    id: str
    change_set_id: str
    at: datetime
    actor: Actor
    action: str
    target_type: str
    target_id: str
    agent_id: str
    scope: Scope | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    reason: str = ""
    status: str = "done"
    undoes: str | None = None

    @property
    def released_ids(self) -> tuple[str, ...]:
        """Return the reflections that this change returned to a buffer, in order."""
        before = set(_buffer(self.before))
        return tuple(each for each in _buffer(self.after) if each not in before)


def _buffer(document: dict[str, Any] | None) -> list[str]:
    return msgspec.convert((document or {}).get("unabsorbed_ids", []), list[str])


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a fact or consolidated text.

    ``at`` is the creation time of the version, ``action`` its cause: "form", "add", "consolidate",
    "edit", "restore", "migrate", or "delete" for the tombstone of a fact. The ``snapshot`` of a
    tombstone is the full fact (JSON of `Fact`, with its vector) for a lossless restore. An empty
    ``content`` means that the text was removed.
    """

    id: str
    target_type: str
    target_id: str
    scope: Scope
    version: int
    content: str
    at: datetime
    action: str
    actor: str = ""
    change_id: str | None = None
    absorbed_ids: tuple[str, ...] = ()
    snapshot: Fact | None = None
