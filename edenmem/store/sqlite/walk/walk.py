"""Everything stored: read document by document, and loaded from a backup."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import msgspec

from edenmem.errors import InputError
from edenmem.models.backup import (
    TOMBSTONE,
    Document,
    LoadResult,
    LoadStatus,
    Record,
    RecordKind,
    Selection,
    StoredVersion,
    compare_records,
    forgotten_ids,
)
from edenmem.models.changes import HistoryEntry
from edenmem.models.ids import new_id
from edenmem.models.integrity import PresenceKind
from edenmem.models.memory import Consolidation, Fact, Policy
from edenmem.models.records import AuditEntry
from edenmem.models.scope import Scope
from edenmem.store.common.loading import ADDED, BY_SCOPE, load_records, record_key
from edenmem.store.protocol.walk import ALL
from edenmem.store.sqlite.core import codec, scopes
from edenmem.store.sqlite.core.codec import Row, to_ms
from edenmem.store.sqlite.core.part import AMONG, BATCH, GIVEN, Part, json_array
from edenmem.store.sqlite.core.source_words import index_late_messages, refresh_words
from edenmem.store.sqlite.formations.formations import insert_formation
from edenmem.store.sqlite.formations.usage import ENTRIES, INSERT_ENTRY
from edenmem.store.sqlite.host.rows import (
    INSERT_MESSAGE,
    MESSAGES,
    insert_account,
    insert_session,
)
from edenmem.store.sqlite.memory import documents, log, vectors
from edenmem.store.sqlite.memory.documents import (
    insert_held,
    insert_reflection,
    put_policy,
    put_text,
)
from edenmem.store.sqlite.memory.log import (
    HISTORY,
    history_from,
    only_version,
    place_version,
    place_versions,
)
from edenmem.store.sqlite.walk.sources import FACTS_WITH_VECTORS, SOURCES, UNWRITTEN, Source, Where

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
        with ExitStack() as stack:
            borrow: _Borrow = self._db.reading
            if snapshot:
                one = nullcontext(stack.enter_context(self._db.reading()))
                borrow = lambda: one  # noqa: E731 - the reading of all pages
            for kind in RecordKind:
                if kind is RecordKind.HISTORY and kind in kinds:
                    yield from _versions(borrow, selection, unwritten)
                elif kind in kinds:
                    is_long = kind is RecordKind.FACT and with_vectors
                    source = FACTS_WITH_VECTORS if is_long else SOURCES[kind]
                    where = source.narrow(selection)
                    for _, document in _read(borrow, kind, source, where, "1"):
                        yield document

    def present(self, kind: PresenceKind, ids: Sequence[str]) -> set[str]:
        return {row[0] for row in self._fetch(_PRESENT[kind], (json_array(ids),))}

    def set_aside(self, entry: AuditEntry) -> bool:
        return False  # rows belong to tables that refer to each other

    def put_back(self, entry: AuditEntry, undo: AuditEntry) -> bool:
        return False

    def load(
        self, kind: RecordKind, records: Sequence[Record], *, dry_run: bool = False
    ) -> list[LoadResult]:
        with self._db.reading() if dry_run else self._db.writing() as connection:
            return Loader(connection, dry_run=dry_run).load(kind, records)


# -- the walk --------------------------------------------------------------------------------------


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


#: Kinds whose records belong to the memory of one scope.
_OF_MEMORY = BY_SCOPE | {RecordKind.REFLECTION, RecordKind.FACT, RecordKind.HELD}


class Loader:
    """Stores the records of one batch in one transaction."""

    def __init__(self, connection: sqlite3.Connection, *, dry_run: bool) -> None:
        self._db = connection
        self._dry_run = dry_run

    def load(self, kind: RecordKind, records: Sequence[Record]) -> list[LoadResult]:
        """Store records of a kind; return one result for each, in order."""
        if kind is RecordKind.HISTORY:
            return [self._put_version(record) for record in records]  # type: ignore[arg-type]
        return load_records(self, kind, records, dry_run=self._dry_run)

    # -- rows --------------------------------------------------------------------------------

    def complete(self, kind: RecordKind, added: Sequence[Any], there: Sequence[Any]) -> None:
        if kind is not RecordKind.MESSAGE:
            return
        marked = forgotten_ids(there)
        self._db.execute(
            "INSERT OR IGNORE INTO forgotten_messages SELECT value FROM json_each(?)",
            (json_array(marked),),
        )
        refresh_words(self._db, marked)
        index_late_messages(self._db, [record.id for record in added])

    def stored(self, kind: RecordKind, records: Sequence[Any]) -> dict[Any, Record | None]:
        source, column = SOURCES[kind], SOURCES[kind].order[-1]
        keys: dict[Any, Any] = {record.id: record_key(kind, record) for record in records}
        if kind in BY_SCOPE:
            column = f"{source.table.split()[1]}.scope_id"
            numbers = scopes.numbers_of(self._db, [record.home for record in records])
            keys = {number: scope for scope, number in numbers.items()}
        rows = f" FROM {source.table}"
        select = source.select.replace(rows, f", {column}{rows}", 1)
        found: dict[Any, Record | None] = {}
        for row in self._db.execute(f"{select} WHERE {column} {AMONG}", (json_array(keys),)):
            try:
                found[keys[row[-1]]] = source.decode(self._db, row)
            except codec.UNREADABLE:
                found[keys[row[-1]]] = None
        return found

    def sessions(self, ids: Sequence[str]) -> set[str]:
        select = f"SELECT id FROM sessions WHERE id {AMONG}"
        return {id for (id,) in self._db.execute(select, (json_array(ids),))}

    def taken_names(self, kind: RecordKind, names: Sequence[str]) -> set[str]:
        select = f"SELECT username FROM {kind}s WHERE username {AMONG}"
        return {name for (name,) in self._db.execute(select, (json_array(names),))}

    def twins(self, facts_: Sequence[Fact]) -> dict[tuple[Scope, str], str]:
        found = {}
        numbers = scopes.numbers_of(self._db, [fact.home for fact in facts_])
        for fact in facts_:
            if fact.home in numbers:
                twin = documents.fact_with_hash(self._db, numbers[fact.home], fact.hash)
                if twin is not None:
                    found[fact.home, fact.hash] = twin
        return found

    def taken_keys(self, facts_: Sequence[Fact]) -> set[tuple[Scope, str | None]]:
        numbers = scopes.numbers_of(self._db, [fact.home for fact in facts_])
        return {
            (fact.home, fact.key)
            for fact in facts_
            if documents.fact_with_key(self._db, numbers.get(fact.home), fact.key) is not None
        }

    def obstacles(self, kind: RecordKind, records: Sequence[Any]) -> dict[int, str]:
        found = {}
        for place, record in enumerate(records):
            if kind in BY_SCOPE and (reason := self._elsewhere(kind, record)):
                found[place] = reason
            elif kind is RecordKind.FACT and record.embedding is not None:
                try:
                    vectors.check_vector(record.embedding)
                except InputError as error:
                    found[place] = error.message
        return found

    def _elsewhere(self, kind: RecordKind, record: Policy | Consolidation) -> str:
        """Return the reason if another scope has the ID of a policy or text."""
        table = SOURCES[kind].table.split()[0]
        number = scopes.number_of(self._db, record.home)
        found = self._db.execute(
            f"SELECT 1 FROM {table} WHERE id = ? AND scope_id IS NOT ?", (record.id, number)
        ).fetchone()
        noun = "policy" if kind is RecordKind.POLICY else "text"
        return f"another {noun} has this ID" if found else ""

    def insert(
        self, kind: RecordKind, records: Sequence[Any], stored: Mapping[Any, Record | None]
    ) -> dict[int, str]:
        return {place: "" for place, record in enumerate(records) if not self._put(kind, record)}

    def _put(self, kind: RecordKind, record: Any) -> bool:
        """Insert a record; return False if another one has its unique value."""
        db = self._db
        number = scopes.make_number(db, record.home) if kind in _OF_MEMORY else 0
        match kind:
            case RecordKind.AGENT | RecordKind.USER:
                insert_account(db, record)
                if record.deleted:
                    db.execute(f"UPDATE {kind}s SET deleted = 1 WHERE id = ?", (record.id,))
            case RecordKind.SESSION:
                insert_session(db, record)
                db.execute(
                    "UPDATE sessions SET last_memory_message_id = ? WHERE id = ?",
                    (record.last_memory_message_id, record.id),
                )
            case RecordKind.MESSAGE:
                return db.execute(INSERT_MESSAGE, MESSAGES.values(record)).rowcount > 0
            case RecordKind.POLICY:
                put_policy(db, record, number)
                scopes.touch(db, number, to_ms(record.updated_at) or 0)
            case RecordKind.CONSOLIDATION:
                # The document of a buffer without a text is replaced by that of the text.
                db.execute("DELETE FROM consolidations WHERE scope_id = ?", (number,))
                put_text(db, record, number)
                scopes.touch(db, number, to_ms(record.updated_at) or 0)
            case RecordKind.REFLECTION:
                insert_reflection(db, record, number)
                pending = int(not record.absorbed)
                if pending:  # every buffer has a document
                    db.execute(
                        "INSERT OR IGNORE INTO consolidations (scope_id, id, content, words,"
                        " version, word_limit) VALUES (?, ?, '', 0, 0, 0)",
                        (number, new_id()),
                    )
                at = to_ms(record.updated_at or record.formed_at)
                scopes.touch(db, number, at, reflections=1, pending=pending)
            case RecordKind.FACT:
                documents.insert_fact(db, record, number)
                scopes.touch(db, number, to_ms(record.changed_at), facts=1)
            case RecordKind.HELD:
                insert_held(db, record, number)
            case RecordKind.FORMATION:
                return insert_formation(db, record)
            case RecordKind.USAGE:
                return db.execute(INSERT_ENTRY, ENTRIES.values(record)).rowcount > 0
            case RecordKind.AUDIT:
                scope_id = None if record.scope is None else scopes.make_number(db, record.scope)
                log.add_entries(db, [(record, scope_id)])
        return True

    # -- history -----------------------------------------------------------------------------

    def _put_version(self, version: StoredVersion) -> LoadResult:
        if self._is_of_another(version):
            return LoadResult(status=LoadStatus.KEPT, detail="its target differs here")
        stored = self._versions(version)
        for known in stored:
            if known.place == version.place:
                return compare_records(RecordKind.HISTORY, known, version)
        if stored and stored[-1].place > version.place:
            return LoadResult(status=LoadStatus.KEPT, detail="its target has another history here")
        if not self._dry_run:
            number = scopes.make_number(self._db, version.scope)
            log.add_versions(self._db, [(version, number)])
        return ADDED

    def _is_of_another(self, version: StoredVersion) -> bool:
        """Return whether the stored target cannot have had this version."""
        table = {"fact": "facts", "consolidation": "consolidations"}.get(version.target_type)
        if table is None:
            return True
        row = self._db.execute(
            f"SELECT version, content FROM {table} WHERE id = ?", (version.target_id,)
        ).fetchone()
        if row is None or version.version < row[0]:
            return False
        return bool(version.version > row[0] or version.content != row[1])

    def _versions(self, version: StoredVersion) -> list[StoredVersion]:
        """Return all known versions of the target, including the current one."""
        rows = self._db.execute(
            f"{HISTORY} WHERE h.target_id = ? AND h.target_type = ? ORDER BY h.history_no",
            (version.target_id, version.target_type),
        ).fetchall()
        if rows or version.target_type != "fact":
            return list(place_versions(map(history_from, rows)))
        row = self._db.execute(f"{codec.FACT} WHERE f.id = ?", (version.target_id,)).fetchone()
        if row is None:
            return []
        (only,) = place_versions([only_version(self._db, codec.fact_from(row))])
        return [only] if only == msgspec.structs.replace(version, id=only.id) else []
