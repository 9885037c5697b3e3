"""What an undo says of each entry: what would be, or was done, or what stands in the way."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from edenmem.models.changes import AuditEntry, Change


class UndoOutcome(StrEnum):
    """What became of one entry, or would."""

    PLANNED = "planned"  # nothing was written: it can be done
    DONE = "done"
    ALREADY = "already"  # what it did is not so any more
    REFUSED = "refused"


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """The way back of one entry, judged on what there is now.

    ``change`` takes it back; None: there is nothing to do (``why`` says so) or no way, not even by
    force (``blocked``). ``differs``: the target is not as the entry left it, so that the way back
    takes later work away too. ``why`` says what is the matter. ``before`` and ``after`` are the
    target as it is and would be, without vectors.
    """

    change: Change | None = None
    differs: bool = False
    blocked: bool = False
    why: str = ""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    by: tuple[str, ...] = ()  # ids of entries of other targets that are in the way
    notices: tuple[str, ...] = ()


class UndoStep(msgspec.Struct, frozen=True, kw_only=True):
    """One entry on its way back.

    ``entry`` is what was asked for, ``of`` what is taken back if that is another: the latest entry
    that made the same change again. ``undo_id`` is the id of the entry that takes it back.
    ``in_the_way`` are the later entries of the target, newest first; there may be ``more``.
    ``forced`` says that they were overruled, ``forceable`` that they can be.
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


#: Why a change that wrote what was there already needs no way back.
NO_CHANGE = "it changed nothing"


def nothing_to_do(why: str, now: dict[str, Any] | None = None) -> Way:
    """What the entry did is not so any more."""
    return Way(why=why, before=now, after=now)


def no_way(why: str, now: dict[str, Any] | None = None, *, by: tuple[str, ...] = ()) -> Way:
    """It cannot be taken back, not even by force."""
    return Way(blocked=True, why=why, before=now, by=by)
