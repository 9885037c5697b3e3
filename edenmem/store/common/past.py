"""Reconstruct facts and buffers at a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from edenmem.models.backup import TOMBSTONE
from edenmem.models.memory import Fact, FactTimes, Reflection, content_hash
from edenmem.models.records import AuditEntry, HistoryEntry

#: The changes that current flags do not show.
REWRITING = ("revise_reflection", "remove_reflection", "restore_reflection", "revert_consolidation")


def facts_at(
    moment: datetime,
    facts: Iterable[Fact],
    moves: Iterable[HistoryEntry],
    find_versions: Callable[[Iterable[str]], Mapping[str, HistoryEntry]],
    *,
    limit: int,
) -> list[Fact]:
    """Return the facts as they were at ``moment``, newest first.

    Args:
        moment: The time of the facts.
        facts: The current facts, newest first.
        moves: The removals and restorations since the moment.
        find_versions: Returns the last versions of facts up to the moment, by their IDs.
        limit: Maximum number of facts.
    """
    then: dict[str, Fact] = {}
    moved: dict[str, Fact | None] = {}
    for entry in moves:
        moved[entry.target_id] = entry.snapshot or moved.get(entry.target_id)
    gone = (fact for fact in moved.values() if fact is not None and fact.formed_at <= moment)
    changed = {fact.id: fact for fact in gone}
    for fact in facts if limit > 0 else ():
        if fact.formed_at <= moment and (fact.changed_at > moment or fact.id in moved):
            changed[fact.id] = fact
        elif fact.changed_at <= moment and not fact.has_expired(moment):
            then[fact.id] = fact
            if len(then) == limit:
                break
    versions = find_versions(changed)
    for fact in changed.values():
        last = versions.get(fact.id)
        if last is None or last.action != TOMBSTONE:
            past = _before_history(fact) if last is None else as_version(fact, last, moment)
            if not past.has_expired(moment):
                then[past.id] = past
    newest = sorted(then.values(), key=lambda fact: (-fact.recent_at.timestamp(), fact.id))
    return newest[: max(0, limit)]


def _before_history(fact: Fact) -> Fact:
    """Return the previous state of a fact that another program changed, as far as known."""
    content = fact.previous_content or fact.content
    return msgspec.structs.replace(
        fact,
        content=content,
        hash=content_hash(content, fact.key),
        version=max(fact.version - 1, 1),
        previous_content=None,
        updated_at=None,
        embedding=None,
        embedding_model=None,
    )


def as_version(fact: Fact, entry: HistoryEntry, moment: datetime) -> Fact:
    """Return a fact with the text and times of the version that it had at ``moment``."""
    times = fact.times
    if entry.version != fact.version:
        said = fact.said_at if fact.said_at and fact.said_at <= moment else None
        times = FactTimes(said, entry.at if said and entry.action == "edit" else None)
    past = msgspec.structs.replace(
        fact,
        content=entry.content,
        version=entry.version,
        updated_at=entry.at if entry.at > fact.formed_at else None,
        said_at=times.said_at,
        edited_at=times.edited_at,
        previous_content=None,
        embedding=None,
        embedding_model=None,
    )
    return past.with_fields(entry.fields)


def buffer_at(
    moment: datetime,
    reflections: Iterable[Reflection],
    entries: Iterable[AuditEntry],
    versions: Sequence[HistoryEntry],
) -> list[Reflection]:
    """Return the reflections that were pending at ``moment``, oldest first.

    Args:
        moment: The time of the buffer.
        reflections: The scope's current reflections.
        entries: The scope's `REWRITING` entries after the moment, latest first, so that the
            earliest takes precedence.
        versions: The history of the scope's text.
    """
    then = {now.id: past for now in reflections if (past := now.pending_at(moment))}
    for entry in entries:
        if entry.action == "restore_reflection":
            then.pop(entry.target_id, None)
        elif entry.action == "revert_consolidation":
            version = int((entry.after or {}).get("version", 0))
            for released in entry.released_ids:
                if _was_absorbed(released, version, versions, moment):
                    then.pop(released, None)
        elif entry.before is not None:
            before = msgspec.convert(entry.before, Reflection).pending_at(moment)
            if before is not None:
                then[before.id] = before
    return sorted(then.values(), key=lambda one: one.order)


def _was_absorbed(
    reflection_id: str, before: int, versions: Sequence[HistoryEntry], moment: datetime
) -> bool:
    """Return whether the last absorbing version below ``before`` existed at ``moment``."""
    absorbing = [v for v in versions if v.version < before and reflection_id in v.absorbed_ids]
    return bool(absorbing) and absorbing[-1].at <= moment
