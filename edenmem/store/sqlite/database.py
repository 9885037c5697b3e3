"""The file: opening it, connections for threads and processes, and transactions.

Reads see one snapshot and never wait. Writes take turns: within the process by a lock, which is
fair where SQLite's own waiting is not, and between processes by ``BEGIN IMMEDIATE``. A commit is
on the disk when it returns (``synchronous = FULL``): a memory that was reported as written is
there after a power cut, and the sync costs a fraction of a millisecond on solid-state disks.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edenmem.errors import StoreError
from edenmem.store.sqlite.faults import translated
from edenmem.store.sqlite.header import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    FileState,
    file_state,
    version_state,
)

#: Five vectors of 1,536 dimensions fill such a page to 94 %; one would fill 75 % of a page of 8 K.
PAGE_SIZE = 32_768
_CACHE_KIB = 65_536

#: Connections that a parent process opened. A child may not even close them: that could end the
#: parent's locks, or fold the log into the file under it.
_of_parents: list[sqlite3.Connection] = []


class Database:
    """A file and a pool of connections to it, shared by threads and safe after a fork."""

    def __init__(self, path: Path, *, busy_timeout: float, read_only: bool) -> None:
        self.path = path
        self._timeout = busy_timeout
        self._read_only = read_only
        self._forget_connections()

    def _forget_connections(self) -> None:
        self._pid = os.getpid()
        self._idle: list[sqlite3.Connection] = []
        self._generation = 0
        self._pool_lock = threading.Lock()
        self._turn = threading.Lock()

    # -- transactions ------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one state of the database for as long as it is held."""
        with translated(self.path), self._borrowed() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction that is committed, or undone if the body raises."""
        if self._read_only:
            raise StoreError(f"{self.path} is open for reading only")
        with translated(self.path), self._my_turn(), self._borrowed() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        """Hold this process's right to write."""
        self._after_fork()
        turn = self._turn  # a fork in the body makes a new one
        if not turn.acquire(timeout=self._timeout):
            raise StoreError(
                f"{self.path} is being written by another thread for longer than the timeout",
                hint="raise store.busy_timeout_seconds",
            )
        try:
            yield
        finally:
            turn.release()

    # -- connections -------------------------------------------------------------------------

    @contextmanager
    def _borrowed(self) -> Iterator[sqlite3.Connection]:
        self._after_fork()
        with self._pool_lock:
            generation = self._generation
            connection = self._idle.pop() if self._idle else None
        connection = connection or self._open()
        try:
            yield connection
        except sqlite3.Error:
            connection.close()  # whatever state it is in, nobody else shall meet it
            raise
        except BaseException:
            self._give_back(connection, generation)
            raise
        self._give_back(connection, generation)

    def _give_back(self, connection: sqlite3.Connection, generation: int) -> None:
        with self._pool_lock:
            if generation == self._generation:
                self._idle.append(connection)
                return
        connection.close()

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            _of_parents.extend(self._idle)
            self._forget_connections()

    def close(self) -> None:
        """Close every connection, those in use as soon as they are given back."""
        self._after_fork()
        with self._pool_lock:
            idle, self._idle = self._idle, []
            self._generation += 1
        for connection in idle:
            connection.close()

    def _open(self) -> sqlite3.Connection:
        state = file_state(self.path)
        if state in (FileState.MISSING, FileState.EMPTY):
            raise StoreError(
                f"there is no edenmem database at {self.path}", hint="make it with 'edenmem init'"
            )
        connection = self._connect(writable=not self._read_only)
        try:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if version_state(self.path, version) is FileState.OLDER:
                raise StoreError(
                    f"{self.path} has schema version {version}, this edenmem needs "
                    f"{SCHEMA_VERSION}",
                    hint="bring it up to date with 'edenmem migrate up'",
                )
            if not self._read_only:
                _use_log(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self, *, writable: bool) -> sqlite3.Connection:
        place = self.path.absolute().as_uri()
        query = "mode=rw" if writable else "mode=ro"
        if not writable and self._sealed():
            query = "immutable=1"
        connection = sqlite3.connect(
            f"{place}?{query}",
            uri=True,
            timeout=self._timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        for pragma in (
            "foreign_keys = ON",
            "synchronous = FULL",
            f"cache_size = -{_CACHE_KIB}",
            "temp_store = MEMORY",
            f"query_only = {'OFF' if writable else 'ON'}",
        ):
            connection.execute(f"PRAGMA {pragma}")
        return connection

    def _sealed(self) -> bool:
        """Whether nobody can be writing: the folder is not writable and there is no log. SQLite
        would want to make one in order to read."""
        log = self.path.with_name(self.path.name + "-wal")
        return not os.access(self.path.parent, os.W_OK) and not log.exists()

    # -- making it ---------------------------------------------------------------------------

    def create(self) -> list[str]:
        """Make the file and bring its schema up to date; what was made. Safe to call again."""
        from edenmem.store import migrations

        if self._read_only:
            raise StoreError(f"{self.path} is open for reading only")
        made = []
        with translated(self.path), self._my_turn():
            if self._make_file():
                made.append(f"file {self.path}")
            if file_state(self.path) is FileState.CURRENT and not made:
                return made
            connection = self._connect(writable=True)
            try:
                connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")  # no effect once it has pages
                connection.execute("BEGIN IMMEDIATE")
                for migration in migrations.pending(_ledger(connection)):
                    migration.up("sqlite", connection)
                    connection.execute(
                        "INSERT INTO migrations VALUES (?, ?, ?)",
                        (migration.number, migration.name, time.time_ns() // 1_000_000),
                    )
                    connection.execute(f"PRAGMA user_version = {migration.number}")
                    made.append(f"migration {migration.name}")
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute("COMMIT")
                _use_log(connection)
                # The header must say what the file is to those who read it without SQLite.
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                connection.close()
        return made

    def _make_file(self) -> bool:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return False
        except OSError as error:
            raise StoreError(
                f"{self.path} cannot be made: {error.strerror}",
                hint="check that its folder may be written",
            ) from error
        os.close(descriptor)
        return True


def _use_log(connection: sqlite3.Connection) -> None:
    """Switch to a write-ahead log, in which readers and a writer do not wait for each other."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        connection.execute("PRAGMA journal_mode = WAL")


def _ledger(connection: sqlite3.Connection) -> set[str]:
    """The names of the migrations that the file has had."""
    known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migrations'").fetchone()
    return {row[0] for row in connection.execute("SELECT name FROM migrations")} if known else set()
