"""Load the records of a backup: the rules, over the rows of either store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from edenmem.memory.facts import KEY_TAKEN
from edenmem.models.backup import LoadResult, LoadStatus, Record, RecordKind, compare_records
from edenmem.models.memory import Consolidation, Fact
from edenmem.models.scope import Scope

ADDED = LoadResult(status=LoadStatus.ADDED)
SAME = LoadResult(status=LoadStatus.SAME)

#: Kinds with one record per scope, which is found by its scope.
BY_SCOPE = frozenset({RecordKind.POLICY, RecordKind.CONSOLIDATION})
#: Why a new record was not inserted, if that is not an ID in use.
_TAKEN = {
    RecordKind.CONSOLIDATION: "another text has this ID",
    RecordKind.FACT: "another process has just added the same fact",
    RecordKind.FORMATION: "another formation has its number in the session, or its messages",
}


def refuse(detail: str) -> LoadResult:
    """Return the result for a record that the store cannot hold."""
    return LoadResult(status=LoadStatus.REFUSED, detail=detail)


class RecordRows(Protocol):
    """The rows of records, to read and to insert. Positions count in the given records."""

    def stored(self, kind: RecordKind, records: Sequence[Any]) -> Mapping[Any, Record | None]:
        """Return the stored records by `record_key`; None for an unreadable one."""

    def sessions(self, ids: Sequence[str]) -> set[str]:
        """Return which of these sessions exist."""

    def taken_names(self, kind: RecordKind, names: Sequence[str]) -> set[str]:
        """Return which usernames another agent or user has."""

    def twins(self, facts: Sequence[Fact]) -> Mapping[tuple[Scope, str], str]:
        """Return the stored facts with these scopes and hashes."""

    def taken_keys(self, facts: Sequence[Fact]) -> set[tuple[Scope, str | None]]:
        """Return which keys of these facts stored facts of their scopes have."""

    def obstacles(self, kind: RecordKind, records: Sequence[Any]) -> Mapping[int, str]:
        """Return the positions of new records that the store cannot hold, with the reason."""

    def insert(
        self, kind: RecordKind, records: Sequence[Any], stored: Mapping[Any, Record | None]
    ) -> Mapping[int, str]:
        """Insert new records; return the positions of the others with the reason, or "".

        Without a reason, another record has the ID or another unique value. ``stored`` are the
        buffers that texts replace, among other stored records.
        """

    def complete(self, kind: RecordKind, added: Sequence[Any], there: Sequence[Any]) -> None:
        """Write what follows from the added records, and what an interrupted load left out.

        ``there`` are the added records and those that exist with the same content.
        """


def record_key(kind: RecordKind, record: Any) -> Any:
    """Return what identifies a record: its scope or its ID, and the session of a message."""
    if kind is RecordKind.MESSAGE:
        return record.id, record.session_id
    return record.home if kind in BY_SCOPE else record.id


def load_records(
    rows: RecordRows, kind: RecordKind, records: Sequence[Any], *, dry_run: bool
) -> list[LoadResult]:
    """Insert the new records and compare the others; see `Walk.load`."""
    stored = rows.stored(kind, records)
    answers: dict[int, LoadResult] = {}
    for place, record in enumerate(records):
        key = record_key(kind, record)
        if key in stored and not _replaces_buffer(stored[key], record):
            answers[place] = _compare(kind, stored[key], record)
    fresh = [place for place in range(len(records)) if place not in answers]
    obstacles = dict(rows.obstacles(kind, [records[place] for place in fresh]))
    if kind is RecordKind.MESSAGE and not dry_run:
        wanted = [records[place].session_id for place in fresh]
        known = rows.sessions(list(dict.fromkeys(wanted)))
        missing = {
            n: f"session does not exist: {id}" for n, id in enumerate(wanted) if id not in known
        }
        obstacles |= missing
    answers |= {fresh[order]: refuse(reason) for order, reason in obstacles.items()}
    answers |= _repeated(rows, kind, records, [place for place in fresh if place not in answers])
    places = [place for place in fresh if place not in answers]
    failed = {} if dry_run else rows.insert(kind, [records[place] for place in places], stored)
    for order, place in enumerate(places):
        reason = _TAKEN.get(kind, f"another {kind} has this ID")
        answers[place] = refuse(failed[order] or reason) if order in failed else ADDED
    if not dry_run:
        answered = [(answers[place].status, record) for place, record in enumerate(records)]
        added = [record for status, record in answered if status is LoadStatus.ADDED]
        there = [record for status, record in answered if status in (ADDED.status, SAME.status)]
        rows.complete(kind, added, there)
    return [answers[place] for place in range(len(records))]


def _replaces_buffer(stored: Record | None, record: Record) -> bool:
    """Return whether the stored record is a buffer without a text, and the given one a text."""
    is_buffer = isinstance(stored, Consolidation) and not stored.version
    return is_buffer and isinstance(record, Consolidation) and record.version > 0


def _compare(kind: RecordKind, stored: Record | None, record: Record) -> LoadResult:
    if stored is None:
        return LoadResult(status=LoadStatus.DIFFERS, detail="stored, but cannot be read")
    return compare_records(kind, stored, record)


def _repeated(
    rows: RecordRows, kind: RecordKind, records: Sequence[Any], places: Sequence[int]
) -> dict[int, LoadResult]:
    """Return the results for new records whose ID, name or sentence is taken, also among them."""
    answers: dict[int, LoadResult] = {}
    new = [records[place] for place in places]
    named = kind in (RecordKind.AGENT, RecordKind.USER)
    names = rows.taken_names(kind, [record.username for record in new]) if named else set[str]()
    twins = dict(rows.twins(new)) if kind is RecordKind.FACT else {}
    keyed = [fact for fact in new if kind is RecordKind.FACT and fact.key is not None]
    keys = rows.taken_keys(keyed) if keyed else set()
    first: dict[Any, Record] = {}
    for place, record in zip(places, new, strict=True):
        key = record_key(kind, record)
        if key in first:
            answers[place] = _compare(kind, first[key], record)
        elif named and record.username in names:
            answers[place] = refuse(f"username is taken by another {kind}: {record.username!r}")
        elif twins and (twin := twins.get((record.home, record.hash))):
            answers[place] = LoadResult(
                status=LoadStatus.SAME, detail=f"the scope has the same fact: {twin}"
            )
        elif kind is RecordKind.FACT and (record.home, record.key) in keys:
            answers[place] = refuse(f"{KEY_TAKEN}: {record.key!r}")
        else:
            first[key] = record
            if named:
                names.add(record.username)
            elif kind is RecordKind.FACT:
                twins[record.home, record.hash] = record.id
                keys |= set() if record.key is None else {(record.home, record.key)}
    return answers
