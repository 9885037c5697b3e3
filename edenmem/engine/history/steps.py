"""What an undo says of each entry: what would be, or was done, or what is in the way."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from edenmem.models.changes import AuditEntry


class UndoOutcome(StrEnum):
    """What became of one entry, or would."""

    PLANNED = "planned"  # nothing was written: it can be done
    DONE = "done"
    ALREADY = "already"  # what it did is not so any more
    REFUSED = "refused"


class UndoStep(msgspec.Struct, frozen=True, kw_only=True):
    """One entry on its way back.

    Attributes:
        entry: What was asked for.
        outcome: What became of it.
        undo_id: The id of the entry that takes it back.
        of: What is taken back if that is another: the latest entry that made the same change again.
        before: The target as it is, without its vector.
        after: The target as it is afterwards; None where it goes, or nothing is known of it.
        why: What is the matter, where it is refused or there is nothing to do.
        in_the_way: Later entries of the target, newest first.
        more: How many more of them there are.
        forced: Whether they were overruled.
        forceable: Whether they can be.
        notices: What a person should know.
    """

    entry: AuditEntry
    outcome: UndoOutcome
    undo_id: str
    of: AuditEntry | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    why: str = ""
    in_the_way: tuple[AuditEntry, ...] = ()
    more: int = 0
    forced: bool = False
    forceable: bool = False
    notices: tuple[str, ...] = ()
