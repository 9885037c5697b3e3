"""What is known of a change: who made it, what came of it, its audit entry, and its version."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from edenmem.models.memory import Fact
from edenmem.models.scope import Scope


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """Who does it: a person's or engine's name, from which host, by which command, in which run."""

    name: str
    host: str
    command: str
    run_id: str | None = None


class ChangeStatus(StrEnum):
    """What became of one change."""

    APPLIED = "applied"
    ALREADY = "already"  # this very change was applied before
    DUPLICATE = "duplicate"  # the scope has the same fact; ``target_id`` names it
    ADDED_INSTEAD = "added_instead"  # the target had changed, so ``or_add`` was inserted
    CONFLICT = "conflict"
    MISSING = "missing"


class ChangeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one change; ``detail`` explains a conflict to a person."""

    change_id: str
    status: ChangeStatus
    target_id: str
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether the memory now is as the change wanted it."""
        return self.status not in (ChangeStatus.CONFLICT, ChangeStatus.MISSING)


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change as it happened. ``before`` and ``after`` are whole documents without vectors.

    ``id`` is the change's id, ``action`` its tag. ``agent_id`` is "" where a person's account is
    the target. ``undoes`` is the id of the entry that this change took back. ``status`` is "done",
    or "pending" if the process died between writing the entry and finishing the change (never on a
    store with transactions).
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
        """The reflections that this change put back into a buffer, in order."""
        before = set(_buffer(self.before))
        return tuple(each for each in _buffer(self.after) if each not in before)


def _buffer(document: dict[str, Any] | None) -> list[str]:
    return msgspec.convert((document or {}).get("unabsorbed_ids", []), list[str])


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a fact or of a consolidated text.

    ``at`` is when this version came to be, ``action`` how: "form", "add", "consolidate", "edit",
    "restore", "migrate", or "delete" for the tombstone of a fact, whose ``snapshot`` is the whole
    fact (JSON of `Fact`, with its vector), so that it can be restored without loss. A version of a
    text with the ``content`` "" says that from then on there was none.
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
