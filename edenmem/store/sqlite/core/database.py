"""The file as a whole: its state, schema migrations, repair, and the removal of deleted data.

SQLite overwrites deleted rows (``secure_delete``), but the full-text index keeps words of deleted
facts in segments that are not merged yet, the log keeps older pages, and moved rows leave copies
behind. So the index is rebuilt, the file is rewritten, and the log is emptied.

A damaged file is copied row by row. A table is read in the order of its rows, without indexes,
which may be damaged too. Where a page cannot be read, the next readable row is searched for.
"""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path

import msgspec

from edenmem.models.forgetting import Compaction
from edenmem.models.ids import utc_now
from edenmem.models.indexes import Preparation
from edenmem.models.integrity import Finding
from edenmem.models.migration import MigrationRun, SchemaStep
from edenmem.store.common import migrations
from edenmem.store.protocol.database import StoreInfo
from edenmem.store.sqlite.core import schema as expected
from edenmem.store.sqlite.core import source_words
from edenmem.store.sqlite.core.codec import Row, time, to_ms
from edenmem.store.sqlite.core.connections import Connections, translate_errors
from edenmem.store.sqlite.core.part import Part
from edenmem.store.sqlite.core.schema import FileState, file_state, schema
from edenmem.store.sqlite.core.source_words import merge_index
from edenmem.store.sqlite.core.words import is_empty, rebuild_text_index

_COUNTED = (
    "agents",
    "users",
    "sessions",
    "messages",
    "facts",
    "reflections",
    "consolidations",
    "policies",
    "formations",
    "history",
    "audit",
)

#: Maximum number of faults that SQLite reports.
_FAULTS = 20

#: Data beyond the reach of edenmem.
_BEYOND = (
    "copies and backups of the database file, and exports",
    "blocks released by the disk or the file system",
)

_HINT = "close all programs that use the file (a service, 'cold run --watch', a sqlite3 shell)"


class Database(Part):
    """See `edenmem.store.protocol.database.Database`."""

    def info(self) -> StoreInfo:
        path = self._db.path
        there = StoreInfo(
            kind="sqlite",
            location=str(path),
            initialized=False,
            server_version=f"SQLite {sqlite3.sqlite_version}",
        )
        if file_state(path) in (FileState.MISSING, FileState.EMPTY):
            return there
        with self._db.reading() as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (page_size,) = connection.execute("PRAGMA page_size").fetchone()
            counts = {
                table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in _COUNTED
            }
        return msgspec.structs.replace(
            there,
            initialized=True,
            schema_version=str(version),
            size_bytes=pages * page_size,
            counts=counts,
        )

    def initialize(self) -> Sequence[str]:
        return self._db.create()

    def require_writable(self) -> None:
        with self._db.writing():
            pass

    def preparation(self) -> Preparation:
        path = self._db.path
        match file_state(path):
            case FileState.MISSING | FileState.EMPTY as state:
                steps = [f"migration {step.name}" for step in migrations.pending({})]
                made = [f"file {path}"] if state is FileState.MISSING else []
                return Preparation(steps=(*made, *steps))
            case FileState.OLDER:
                return Preparation(
                    warnings=(f"{path} has an older schema; 'edenmem migrate up' updates it",)
                )
            case _:
                return Preparation()

    def snapshot(self) -> AbstractContextManager[None]:
        return self._db.snapshot()

    def is_beside_platform(self) -> bool:
        return False  # the platform uses no files

    def close(self) -> None:
        self._db.close()

    def file_faults(self) -> Iterator[Finding]:
        said, broken, missing = list[str](), list[tuple[str, int, str, int]](), list[Finding]()
        with self._db.reading() as connection:
            try:
                said += [row[0] for row in connection.execute(f"PRAGMA quick_check({_FAULTS})")]
                missing += _missing(connection)
                broken += connection.execute("PRAGMA foreign_key_check").fetchmany(_FAULTS)
            except sqlite3.DatabaseError as error:
                said.append(str(error))
        file = str(self._db.path)
        for line in said:
            if line != "ok":
                yield Finding(target_type="file", target_id=file, detail=line)
        for table, row, parent, _ in broken:
            detail = f"row {row} of {table} points to a missing row of {parent}"
            yield Finding(target_type="file", target_id=f"{table}/{row}", detail=detail)
        yield from missing

    def repair_schema(self) -> int:
        with self._db.writing() as connection:
            lost = [
                part
                for part in expected.schema().parts.values()
                if part.type == "trigger" and not _is_there(connection, part)
            ]
            for part in lost:
                connection.execute(part.sql)
        return len(lost)

    def salvage(self, path: Path) -> list[Finding]:
        new = Connections(path, busy_timeout=1, read_only=False)
        new.create()
        with self._db.salvaging() as damaged, new.alone() as connection:
            found = list(copy_readable(damaged, connection))
        new.close()
        return found

    def rewrite_file(self) -> list[Finding]:
        import tempfile  # loaded on first use, like the rest

        with tempfile.TemporaryDirectory(prefix="edenmem-") as folder:
            new = Connections(Path(folder) / "rewritten.db", busy_timeout=1, read_only=False)
            new.create()
            with self._db.exclusive() as damaged, new.alone() as connection:
                found = list(copy_readable(damaged, connection))
                lost = [each for each in found if each.target_id not in DERIVED]
                if not lost:
                    connection.backup(damaged)  # in one transaction
            new.close()
        return lost

    def compact(self) -> Compaction:
        with self._db.writing() as connection:
            rebuild_text_index(connection)
        merge_index(self._db)
        with translate_errors(self._db.path):
            return self._rewrite()

    def _rewrite(self) -> Compaction:
        try:
            with self._db.alone() as connection:
                # The temporary copy has no deleted data; it may be large.
                connection.execute("PRAGMA temp_store = FILE")
                connection.execute("VACUUM")
                connection.execute("PRAGMA temp_store = MEMORY")
                busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            return Compaction(done=False, left=f"another process uses the file: {_HINT}")
        if busy:
            return Compaction(
                done=False, left=f"another process reads an older state of the file: {_HINT}"
            )
        return Compaction(beyond=_BEYOND)


def _is_there(connection: sqlite3.Connection, part: expected.Part) -> bool:
    found = connection.execute(
        "SELECT 1 FROM sqlite_schema WHERE type = ? AND name = ?", (part.type, part.name)
    )
    return found.fetchone() is not None


def _missing(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Yield the missing parts of the schema, without indexes, which are reported elsewhere."""
    schema = expected.schema()
    for part in schema.parts.values():
        if part.type == "index":
            continue
        lacks = ""
        if not _is_there(connection, part):
            lacks = f"the {part.type} {part.name} is missing"
        elif part.type == "table":
            gone = schema.columns[part.name] - expected.columns_of(connection, part.name)
            lacks = f"the table {part.name} has no {', '.join(sorted(gone))}" if gone else ""
        if lacks:
            yield Finding(target_type=part.type, target_id=part.name, detail=lacks)


#: The lease of data migrations: only one runs at a time.
_LEASE = "data"


class Migrations(Part):
    """See `edenmem.store.protocol.database.Migrations`."""

    def schema(self) -> list[SchemaStep]:
        had: dict[str, int] = {}
        if file_state(self._db.path) not in (FileState.MISSING, FileState.EMPTY):
            with self._db.looking() as connection:
                had = read_applied(connection)
        return migrations.list_steps({name: time(at) for name, at in had.items()})

    def migrate_up(self) -> Sequence[str]:
        with self._db.upgrading() as connection:
            return apply_pending(connection)

    def migrate_down(self, to: int) -> Sequence[str]:
        with self._db.upgrading() as connection:
            return revert_to(connection, to)

    def take_migration_lease(
        self, holder: str, *, now: datetime, until: datetime
    ) -> tuple[str, datetime] | None:
        with self._db.writing() as connection:
            row = connection.execute(
                "SELECT holder, until FROM migration_leases"
                " WHERE name = ? AND until > ? AND holder <> ?",
                (_LEASE, to_ms(now), holder),
            ).fetchone()
            if row is not None:
                return str(row[0]), time(row[1])
            connection.execute(
                "INSERT OR REPLACE INTO migration_leases (name, holder, until) VALUES (?, ?, ?)",
                (_LEASE, holder, to_ms(until)),
            )
        return None

    def end_migration_lease(self, holder: str) -> None:
        self._write("DELETE FROM migration_leases WHERE name = ? AND holder = ?", (_LEASE, holder))

    def put_migration_run(self, run: MigrationRun) -> None:
        self._write(
            "INSERT INTO migration_runs (id, started_at, document) VALUES (?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET document = excluded.document",
            (run.id, to_ms(run.started_at), msgspec.json.encode(run).decode()),
        )

    def migration_runs(self) -> list[MigrationRun]:
        rows = self._fetch("SELECT document FROM migration_runs ORDER BY started_at DESC, id DESC")
        return [msgspec.json.decode(document, type=MigrationRun) for (document,) in rows]


def read_applied(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the applied migrations with their times in milliseconds."""
    known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migrations'").fetchone()
    return dict(connection.execute("SELECT name, applied_at FROM migrations")) if known else {}


def apply_pending(connection: sqlite3.Connection) -> list[str]:
    """Apply the pending migrations and return their names."""
    taken = []
    for migration in migrations.pending(read_applied(connection)):
        migration.up("sqlite", connection)
        connection.execute(
            "INSERT INTO migrations (number, name, digest, applied_at) VALUES (?, ?, ?, ?)",
            (migration.number, migration.name, migration.digest, to_ms(utc_now())),
        )
        taken.append(migration.name)
    if taken:
        _fill_text_indexes(connection)
    _mark(connection)
    return taken


def _fill_text_indexes(connection: sqlite3.Connection) -> None:
    """Fill the full-text indexes that a migration left empty, by the rules of this version."""
    if is_empty(connection, "facts_text"):
        rebuild_text_index(connection)
    if source_words.has_index(connection) and is_empty(connection, source_words.INDEX):
        source_words.rebuild_index(connection)


def revert_to(connection: sqlite3.Connection, to: int) -> list[str]:
    """Revert the migrations after number ``to``, newest first, and return their names.

    Raises:
        ConflictError: a step is irreversible.
    """
    steps = migrations.reversible(read_applied(connection), to)
    for step in steps:
        step.down("sqlite", connection)
        connection.execute("DELETE FROM migrations WHERE name = ?", (step.name,))
    _mark(connection)
    return [step.name for step in steps]


def _mark(connection: sqlite3.Connection) -> None:
    """Write the schema version into the header."""
    (newest,) = connection.execute("SELECT coalesce(max(number), 0) FROM migrations").fetchone()
    connection.execute(f"PRAGMA user_version = {newest}")


#: The ledger of the schema, which a new file has.
_LEDGER = "migrations"
#: Derived from other tables, or a cache: losing rows loses no memory.
DERIVED = frozenset({"vector_codes", "cached_contexts"})
#: Above all row numbers of a table.
_END = 2**62


def copy_readable(damaged: sqlite3.Connection, new: sqlite3.Connection) -> Iterator[Finding]:
    """Copy all readable rows; yield the ranges of rows that cannot be read."""
    parts = schema().parts.values()
    triggers = [part for part in parts if part.type == "trigger"]
    damaged.text_factory = lambda raw: raw.decode(errors="replace")
    new.execute("PRAGMA foreign_keys = OFF")
    new.execute("BEGIN IMMEDIATE")
    for trigger in triggers:
        new.execute(f"DROP TRIGGER {trigger.name}")
    for part in parts:
        is_virtual = part.sql.startswith("CREATE VIRTUAL")
        if part.type == "table" and part.name != _LEDGER and not is_virtual:
            yield from _Table(damaged, new, part.name, "WITHOUT ROWID" in part.sql).copy()
    for trigger in triggers:
        new.execute(trigger.sql)
    rebuild_text_index(new)
    new.execute("COMMIT")
    broken = Counter((row[0], row[2]) for row in new.execute("PRAGMA foreign_key_check"))
    for (table, parent), count in broken.items():
        yield _lost(table, f"rows that refer to missing rows of {parent}: {count:,}")


def _lost(table: str, detail: str) -> Finding:
    return Finding(target_type="table", target_id=table, detail=detail)


class _Table:
    def __init__(
        self, damaged: sqlite3.Connection, new: sqlite3.Connection, name: str, has_key: bool
    ) -> None:
        self._damaged = damaged
        self._new = new
        self._name = name
        columns = new.execute("SELECT name, pk FROM pragma_table_info(?)", (name,)).fetchall()
        names = ", ".join(f'"{column}"' for column, _ in columns)
        marks = ", ".join("?" * len(columns))
        self._insert = f"INSERT OR IGNORE INTO {name} ({names}) VALUES ({marks})"
        self._select = f"SELECT {names} FROM {name} NOT INDEXED"
        self._numbered = f"SELECT rowid, {names} FROM {name} NOT INDEXED WHERE rowid > ?"
        self._key = [column for column, place in sorted(columns, key=lambda c: c[1]) if place]
        self._has_key = has_key

    def copy(self) -> Iterator[Finding]:
        """Copy the readable rows, and yield the others."""
        self._new.execute(f"DELETE FROM {self._name}")
        yield from self._copy_by_key() if self._has_key else self._copy_by_number()

    def _put(self, row: Row) -> Iterator[Finding]:
        try:
            if self._new.execute(self._insert, row).rowcount:
                return
            why = "it repeats the key of another row"
        except sqlite3.Error as error:
            why = str(error)
        yield _lost(self._name, f"a row is not valid: {why}")

    def _copy_by_key(self) -> Iterator[Finding]:
        """Copy a table without row numbers from both of its ends."""
        failures = 0
        for direction in ("ASC", "DESC"):
            order = ", ".join(f"{column} {direction}" for column in self._key)
            try:
                for row in self._damaged.execute(f"{self._select} ORDER BY {order}"):
                    self._new.execute(self._insert, row)
            except sqlite3.Error as error:
                failures += 1
                if failures == 2:
                    found = self._new.execute(f"SELECT count(*) FROM {self._name}").fetchone()[0]
                    detail = f"all rows but {found:,} cannot be read: {error}"
                    yield _lost(self._name, detail)
            else:
                if failures:
                    yield _lost(self._name, "rows cannot be read")
                return

    def _copy_by_number(self) -> Iterator[Finding]:
        last = -1
        while True:
            try:
                for number, *row in self._damaged.execute(
                    f"{self._numbered} ORDER BY rowid", (last,)
                ):
                    if number <= last:  # a damaged page is read twice
                        break
                    last = number
                    yield from self._put(tuple(row))
                else:
                    return
            except sqlite3.Error:
                pass
            following = self._find_after(last)
            if following is None:
                yield _lost(self._name, f"all rows after {last} cannot be read")
                return
            count = following - last - 1
            yield _lost(
                self._name,
                f"rows {last + 1} to {following - 1} cannot be read: at most {count:,}",
            )
            last = following - 1

    def _find_after(self, last: int) -> int | None:
        """Return the next readable row after an unreadable one; None if there is none."""
        step = 1
        while not self._reads(last + step):
            step *= 2
            if last + step >= _END:
                return None
        between = range(last + step // 2 + 1, last + step)
        high = step // 2 + 1 + bisect_left(between, True, key=self._reads)
        row = self._damaged.execute(
            f"{self._numbered} ORDER BY rowid LIMIT 1", (last + high,)
        ).fetchone()
        return None if row is None else max(int(row[0]), last + high + 1)

    def _reads(self, after: int) -> bool:
        try:
            self._damaged.execute(f"{self._numbered} ORDER BY rowid LIMIT 1", (after,)).fetchone()
        except sqlite3.Error:
            return False
        return True
