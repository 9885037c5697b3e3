"""Everything stored: read document by document, and loaded from a backup."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import msgspec

from edenmem.models.backup import (
    TOMBSTONE,
    Document,
    LoadResult,
    Record,
    RecordKind,
    Selection,
)
from edenmem.models.changes import HistoryEntry
from edenmem.models.integrity import PresenceKind
from edenmem.models.records import AuditEntry
from edenmem.store.protocol.walk import ALL
from edenmem.store.sqlite.core import codec
from edenmem.store.sqlite.core.codec import Row
from edenmem.store.sqlite.core.part import BATCH, GIVEN, Part, json_array
from edenmem.store.sqlite.memory.history import place_version
from edenmem.store.sqlite.walk.loading import Loader
from edenmem.store.sqlite.walk.sources import (
    FACTS_WITH_VECTORS,
    SOURCES,
    UNWRITTEN,
    Source,
    Where,
)

#: Keys that are read from an index at a time.
KEYS = 50_000
#: Maximum size of a page in bytes; its last row may exceed it.
PAGE_BYTES = 4_000_000

#: The order of a row as bytes, so that invalid text keeps its place; then its number.
_Key = tuple[bytes | int, ...]
_Borrow = Callable[[], AbstractContextManager[sqlite3.Connection]]

_PRESENT: dict[PresenceKind, str] = {
    "agent": f"SELECT id FROM agents WHERE id {GIVEN} AND NOT deleted",
    "person": (
        f"SELECT id FROM users WHERE id {GIVEN} AND NOT deleted UNION"
        f" SELECT eden_user_id FROM users WHERE eden_user_id {GIVEN} AND NOT deleted"
    ),
    "session": f"SELECT id FROM sessions WHERE id {GIVEN} AND NOT deleted",
    "group": f"SELECT DISTINCT group_id FROM sessions WHERE group_id {GIVEN} AND NOT deleted",
    "message": f"SELECT id FROM messages WHERE id {GIVEN}",
    "reflection": f"SELECT id FROM reflections WHERE id {GIVEN}",
    "consolidation": f"SELECT id FROM consolidations WHERE id {GIVEN}",
}


class Walk(Part):
    """See `edenmem.store.protocol.walk.Walk`."""

    def documents(
        self,
        kinds: Sequence[RecordKind],
        selection: Selection = ALL,
        *,
        with_vectors: bool = False,
        snapshot: bool = False,
        unwritten: bool = False,
    ) -> Iterator[Document]:
        if snapshot:
            with self._db.reading() as connection:
                yield from _walk(
                    lambda: nullcontext(connection), kinds, selection, with_vectors, unwritten
                )
        else:
            yield from _walk(self._db.reading, kinds, selection, with_vectors, unwritten)

    def present(self, kind: PresenceKind, ids: Sequence[str]) -> set[str]:
        return {row[0] for row in self._fetch(_PRESENT[kind], (json_array(ids),))}

    def set_aside(self, entry: AuditEntry) -> bool:
        return False  # rows belong to tables that refer to each other

    def put_back(self, entry: AuditEntry, undo: AuditEntry) -> bool:
        return False

    def load(
        self, kind: RecordKind, records: Sequence[Record], *, dry_run: bool = False
    ) -> list[LoadResult]:
        if dry_run:
            with self._db.reading() as connection:
                return Loader(connection, dry_run=True).load(kind, records)
        with self._db.writing() as connection:
            return Loader(connection, dry_run=False).load(kind, records)


# -- the walk --------------------------------------------------------------------------------------


def _walk(
    borrow: _Borrow,
    kinds: Sequence[RecordKind],
    selection: Selection,
    with_vectors: bool,
    unwritten: bool,
) -> Iterator[Document]:
    for kind in RecordKind:
        if kind not in kinds:
            continue
        if kind is RecordKind.HISTORY:
            yield from _versions(borrow, selection, unwritten)
            continue
        source = FACTS_WITH_VECTORS if kind is RecordKind.FACT and with_vectors else SOURCES[kind]
        where = source.narrow(selection)
        for condition in source.classes:
            for _, document in _read(borrow, kind, source, where, condition):
                yield document


def _versions(borrow: _Borrow, selection: Selection, unwritten: bool) -> Iterator[Document]:
    """Yield versions with their places, by target, including versions without a row."""
    source = SOURCES[RecordKind.HISTORY]
    where = source.narrow(selection)
    for condition in source.classes:
        written = _place(_read(borrow, RecordKind.HISTORY, source, where, condition))
        if unwritten and "= 'fact'" in condition:
            never_changed = _read(
                borrow, RecordKind.HISTORY, UNWRITTEN, UNWRITTEN.narrow(selection), "1"
            )
            written = heapq.merge(written, never_changed, key=lambda found: found[0][0])
        for _, document in written:
            entry = document.record
            if selection.since is None or entry is None or entry.at >= selection.since:  # type: ignore[union-attr]
                yield document


def _place(found: Iterator[tuple[_Key, Document]]) -> Iterator[tuple[_Key, Document]]:
    """Add the place of each version among those of its target."""
    target, life, ended = None, 0, False
    for key, document in found:
        if key[0] != target:
            target, life, ended = key[0], 0, False
        entry = document.record
        if isinstance(entry, HistoryEntry):
            life, ended = life + ended, entry.action == TOMBSTONE
            document = msgspec.structs.replace(document, record=place_version(entry, life))
        yield key, document


def _read(
    borrow: _Borrow, kind: RecordKind, source: Source, where: Where, condition: str
) -> Iterator[tuple[_Key, Document]]:
    """Yield the rows of a kind in pages; no transaction is open between pages."""
    last: _Key | None = None
    while True:
        with borrow() as connection:
            keys = _find_keys(connection, source, where, condition, last)
        done = 0
        while done < len(keys):
            with borrow() as connection:
                page, looked = _read_page(connection, kind, source, keys[done : done + BATCH])
            yield from page
            done += looked
        if len(keys) < KEYS:
            return
        last = keys[-1]


def _find_keys(
    connection: sqlite3.Connection,
    source: Source,
    where: Where,
    condition: str,
    last: _Key | None,
) -> list[_Key]:
    """Find the keys of the next rows.

    A narrowing condition is used as the index, if there is one (the "+" keeps the planner from the
    index of the order). Keys are sorted without texts, which would not fit into the memory of a
    sorter.
    """
    number = [source.number] if source.number else []
    first, *others = (*source.order, *number)
    order = ", ".join((f"+{first}" if where.is_indexed else first, *others))
    columns = ", ".join((*(f"CAST({text} AS BLOB)" for text in source.order), *number))
    after = ""
    if last is not None:
        marks = ", ".join((*("CAST(? AS TEXT)" for _ in source.order), *("?" for _ in number)))
        after = f" AND ({order}) > ({marks})"
    return connection.execute(
        f"SELECT {columns} FROM {source.rows} WHERE {where.text} AND {condition}{after}"
        f" ORDER BY {order} LIMIT ?",
        (*where.values, *(last or ()), KEYS),
    ).fetchall()


def _read_page(
    connection: sqlite3.Connection, kind: RecordKind, source: Source, keys: list[_Key]
) -> tuple[list[tuple[_Key, Document]], int]:
    """Read documents of the first rows up to the page size; also return the number of rows read."""
    try:
        return _fill_page(connection, kind, source, keys, None)
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) is not None:
            raise  # an error of SQLite, not of invalid text
    lenient = _Lenient()
    connection.text_factory = lenient
    try:
        return _fill_page(connection, kind, source, keys, lenient)
    finally:
        connection.text_factory = str


def _fill_page(
    connection: sqlite3.Connection,
    kind: RecordKind,
    source: Source,
    keys: list[_Key],
    lenient: _Lenient | None,
) -> tuple[list[tuple[_Key, Document]], int]:
    page: list[tuple[_Key, Document]] = []
    size = 0
    for row in _read_rows(connection, source, keys):
        id, agent_id, index = row[-3:]
        record, fault = None, lenient.fault() if lenient else ""
        if not fault:
            try:
                record = source.decode(connection, row)
                fault = lenient.fault() if lenient else ""
            except codec.UNREADABLE as error:
                fault = f"{type(error).__name__}: {error}"
        document = Document(
            kind=kind,
            id=id,
            agent_id=agent_id or "",
            record=None if fault else record,
            fault=fault,
            raw="\n".join(value for value in row if isinstance(value, str)) if fault else "",
        )
        page.append((keys[index], document))
        for place in source.long:
            size += len(row[place] or "")
        if size > PAGE_BYTES:
            return page, index + 1
    return page, len(keys)


def _read_rows(connection: sqlite3.Connection, source: Source, keys: list[_Key]) -> Iterator[Row]:
    """Read the rows that still exist, in the order of their keys, each ending with its place.

    They are joined to the list of keys, whose order they keep without sorting.
    """
    column = source.number or source.order[-1]
    try:
        named = json_array(last if isinstance(last, int) else last.decode() for *_, last in keys)
    except UnicodeDecodeError:  # cannot be encoded in JSON
        select = _select_with_place(source, "?", f"{source.table} WHERE {column} = CAST(? AS TEXT)")
        return (
            row
            for index, key in enumerate(keys)
            for row in connection.execute(select, (index, key[-1]))
        )
    listed = (
        "(SELECT key AS nth, value AS named FROM json_each(?)) CROSS JOIN"
        f" {source.table} ON {column} = named"
    )
    return connection.execute(_select_with_place(source, "nth", listed), (named,))


def _select_with_place(source: Source, place: str, rows: str) -> str:
    """Add the place of a row to its columns; sub-selects of the columns stay as they are."""
    return source.select.replace(f" FROM {source.table}", f", {place} FROM {rows}", 1)


class _Lenient:
    """Decodes bytes that are not UTF-8 too, and records that there were some."""

    def __init__(self) -> None:
        self._is_broken = False

    def __call__(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self._is_broken = True
            return raw.decode(errors="backslashreplace")

    def fault(self) -> str:
        """Return the defect of the texts since the last call; empty without one."""
        broken, self._is_broken = self._is_broken, False
        return "text is not UTF-8" if broken else ""
