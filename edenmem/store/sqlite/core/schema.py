"""The state of a file, read from its header without SQLite, which might write to the file."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from enum import Enum
from functools import cache
from pathlib import Path

import msgspec

from edenmem.errors import StoreError
from edenmem.store.common import migrations
from edenmem.store.common.migrations import newest


class Part(msgspec.Struct, frozen=True):
    """A table, trigger or index of every file, with its table and its SQL statement."""

    type: str
    name: str
    table: str
    sql: str

    @property
    def is_unique(self) -> bool:
        """Return whether the part is a unique index."""
        return self.sql.upper().startswith("CREATE UNIQUE")


class Schema(msgspec.Struct, frozen=True):
    """The parts of a new file by name, and the columns of its tables."""

    parts: dict[str, Part]
    columns: dict[str, frozenset[str]]


@cache
def schema() -> Schema:
    """Build the schema of the migrations, without parts that SQLite and FTS5 create."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for migration in migrations.migrations():
            migration.up("sqlite", connection)
        rows = connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL"
        ).fetchall()
        virtual = [name for _, name, _, sql in rows if sql.startswith("CREATE VIRTUAL")]
        parts = {
            row[1]: Part(*row)
            for row in rows
            if not any(row[1].startswith(f"{table}_") for table in virtual)
        }
        tables = [part.name for part in parts.values() if part.type == "table"]
        return Schema(parts, {name: columns_of(connection, name) for name in tables})
    finally:
        connection.close()


def columns_of(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    """Return the columns of a table; none if the table is missing."""
    rows = connection.execute("SELECT name FROM pragma_table_xinfo(?)", (table,))
    return frozenset(name for (name,) in rows)


#: "EdMm" as the application ID in the header.
APPLICATION_ID = 0x45644D6D
#: The number of the newest migration, stored in ``PRAGMA user_version``.
SCHEMA_VERSION = newest()

_MAGIC = b"SQLite format 3\0"

#: Open files by device and inode; more than a process uses at a time.
_opened: dict[tuple[int, int], int] = {}
_MOST_OPENED = 64
_lock = threading.Lock()


class FileState(Enum):
    """The state of a path."""

    MISSING = "missing"
    EMPTY = "empty"  # a file of zero bytes, which `initialize` may use
    OLDER = "older"  # an edenmem database with an older schema
    CURRENT = "current"


def file_state(path: Path) -> FileState:
    """Return the state of ``path``.

    Raises:
        StoreError: the file is not an edenmem database, is of a newer edenmem, or is unreadable.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise StoreError(f"{path} is not a file", hint="name a file with --uri or EDENMEM_URI")
        header = _first_bytes(path)
    except FileNotFoundError:
        return FileState.MISSING
    except NotADirectoryError:
        raise StoreError(f"{path} cannot exist: part of its path is a file") from None
    except OSError as error:
        raise StoreError(
            f"{path} cannot be read: {error.strerror}", hint="check who owns the file"
        ) from error
    if not header:
        return FileState.EMPTY
    application = int.from_bytes(header[68:72], "big")
    if len(header) < 100 or not header.startswith(_MAGIC) or application != APPLICATION_ID:
        raise StoreError(
            f"{path} is not an edenmem database",
            hint="name another file with --uri or EDENMEM_URI; this file was not changed",
        )
    return version_state(path, int.from_bytes(header[60:64], "big"))


def _first_bytes(path: Path) -> bytes:
    """Read the header of a file.

    Closing a file releases all locks of this process on it, including the lock that keeps other
    processes from deleting the log. So a file stays open once it was opened, and is read through
    the same descriptor.
    """
    status = path.stat()
    key = (status.st_dev, status.st_ino)
    with _lock:
        descriptor = _opened.pop(key, None)
        if descriptor is None:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        _opened[key] = descriptor  # moves to the end: most recently used
        header = os.pread(descriptor, 100, 0)
        if len(_opened) > _MOST_OPENED:
            os.close(_opened.pop(next(iter(_opened))))
    return header


def identity_of(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file with content; None if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - called for each transaction
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if status.st_size else None


def version_state(path: Path, version: int) -> FileState:
    """Compare a schema version with the newest one.

    Raises:
        StoreError: the version is newer.
    """
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema version {version}; this edenmem knows up to {SCHEMA_VERSION}",
            hint="install a newer edenmem; the file was not changed",
        )
    return FileState.CURRENT if version == SCHEMA_VERSION else FileState.OLDER


def log_of(path: Path) -> Path:
    """Return the path of the write-ahead log."""
    return path.with_name(path.name + "-wal")


def may_be_written(path: Path) -> bool:
    """Return whether this process may write the file and its log, or create a log."""
    log = log_of(path)
    target = log if log.exists() else path.parent
    return os.access(path, os.W_OK) and os.access(target, os.W_OK)
