"""The file as a whole: its state, its creation, and the removal of deleted data.

SQLite overwrites deleted rows (``secure_delete``), but the full-text index keeps words of deleted
facts in segments that are not merged yet, the log keeps older pages, and moved rows leave copies
behind. So the index is rebuilt, the file is rewritten, and the log is emptied.
"""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from edenmem.models.forgetting import Compaction
from edenmem.models.indexes import Preparation
from edenmem.models.integrity import Finding
from edenmem.store.common import migrations
from edenmem.store.protocol.database import StoreInfo
from edenmem.store.sqlite.core import schema as expected
from edenmem.store.sqlite.core.connections import Connections
from edenmem.store.sqlite.core.faults import translate_errors
from edenmem.store.sqlite.core.part import Part
from edenmem.store.sqlite.core.schema import FileState, file_state
from edenmem.store.sqlite.core.source_words import merge_index
from edenmem.store.sqlite.core.words import rebuild_text_index

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
        return StoreInfo(
            kind="sqlite",
            location=str(path),
            initialized=True,
            schema_version=str(version),
            server_version=there.server_version,
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
        from edenmem.store.sqlite.core.salvage import copy_readable

        new = Connections(path, busy_timeout=1, read_only=False)
        new.create()
        with self._db.salvaging() as damaged, new.alone() as connection:
            found = list(copy_readable(damaged, connection))
        new.close()
        return found

    def rewrite_file(self) -> list[Finding]:
        import tempfile  # loaded on first use, like the rest

        from edenmem.store.sqlite.core.salvage import DERIVED, copy_readable

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
