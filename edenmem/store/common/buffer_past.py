"""The buffer of a scope as it was at a moment, from what was done since."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from edenmem.models.memory import Reflection
from edenmem.models.records import AuditEntry, HistoryEntry

#: The changes by which a buffer's past differs from what the flags of today say.
REWRITING = ("revise_reflection", "remove_reflection", "restore_reflection", "revert_consolidation")


def buffer_at(
    moment: datetime,
    reflections: Iterable[Reflection],
    entries: Iterable[AuditEntry],
    versions: Sequence[HistoryEntry],
) -> list[Reflection]:
    """The reflections that were pending at ``moment``, oldest first.

    Args:
        moment: When.
        reflections: The scope's reflections as they are now.
        entries: The scope's `REWRITING` entries after the moment, latest first, so that what the
            earliest of them found stands last.
        versions: The history of the scope's text.
    """
    then = {now.id: stood for now in reflections if (stood := now.pending_at(moment))}
    for entry in entries:
        if entry.action == "restore_reflection":
            then.pop(entry.target_id, None)
        elif entry.action == "revert_consolidation":
            for released in entry.released_ids:
                if _was_absorbed(released, _version(entry), versions, moment):
                    then.pop(released, None)
        elif entry.before is not None:
            before = msgspec.convert(entry.before, Reflection).pending_at(moment)
            if before is not None:
                then[before.id] = before
    return sorted(then.values(), key=lambda one: one.order)


def _version(entry: AuditEntry) -> int:
    return int((entry.after or {}).get("version", 0))


def _was_absorbed(
    reflection_id: str, before: int, versions: Sequence[HistoryEntry], moment: datetime
) -> bool:
    """Whether the last version under ``before`` that absorbed it stood by then."""
    absorbing = [v for v in versions if v.version < before and reflection_id in v.absorbed_ids]
    return bool(absorbing) and absorbing[-1].at <= moment
