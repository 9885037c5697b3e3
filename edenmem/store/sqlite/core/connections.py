"""The file: opening it, connections for threads and processes, transactions, and errors.

Reads see one snapshot and never wait. Writes take turns: within the process by a lock, which is
fair where SQLite's own waiting is not, and between processes by ``BEGIN IMMEDIATE``. A commit is
durable when it returns (``synchronous = FULL``), so a reported write survives a power cut; the sync
takes a fraction of a millisecond on solid-state disks.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

from edenmem.errors import (
    DocumentDamaged,
    EdenmemError,
    InputError,
    StoreDamaged,
    StoreError,
    StoreReadOnly,
    WriteRefused,
)
from edenmem.store.common.migrations import require_first
from edenmem.store.sqlite.core.schema import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    FileState,
    file_state,
    identity_of,
    log_of,
    may_be_written,
    version_state,
)

#: Five vectors of 1,536 dimensions fill such a page to 94 %; one fills 75 % of an 8 K page.
PAGE_SIZE = 32_768
_CACHE_KIB = 65_536
#: Maximum size of the memory mapping. A page is five times the size of a vector, and copying whole
#: pages took half of the time of a search.
_MAPPED = 0x7FFF0000
#: Seconds between retries where SQLite does not wait by itself.
_PAUSE = 0.01
#: Primary result codes of a read that cannot create the index of the log.
_NO_LOG = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


class Connections:
    """A file and a pool of connections to it, shared by threads and safe after a fork."""

    def __init__(self, path: Path, *, busy_timeout: float, read_only: bool) -> None:
        self.path = path
        self._timeout = busy_timeout
        self._read_only = read_only
        #: ``connection`` is that of the thread's `snapshot`.
        self._shared = threading.local()
        self._forked_in_use = False
        self._generation = 0
        #: Device and inode of the file that the connections belong to.
        self._identity: tuple[int, int] | None = None
        self._forget_connections()
        _databases.add(self)

    def _forget_connections(self) -> None:
        self._idle: list[sqlite3.Connection] = []
        self._in_use = 0
        self._generation += 1
        self._pool_lock = threading.Lock()
        self._turn = threading.Lock()

    # -- transactions ------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection that sees one snapshot of the database; see `snapshot`."""
        shared: sqlite3.Connection | None = getattr(self._shared, "connection", None)
        if shared is not None:
            with translate_errors(self.path):
                yield shared
            return
        with translate_errors(self.path), self._borrow() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all reads of this thread see one snapshot, until the body ends."""
        with self.reading() as connection:
            outer = getattr(self._shared, "connection", None)
            self._shared.connection = connection
            try:
                yield
            finally:
                self._shared.connection = outer

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a transaction that is rolled back if the body raises.

        ``durable``: wait until the commit is on the disk. Otherwise a power failure may lose it,
        which only caches and counts of accesses can afford.
        """
        with (
            translate_errors(self.path),
            self._write_lock_held(),
            self._borrow() as connection,
            nullcontext() if durable else _without_waiting(connection),
        ):
            with _transaction(connection):
                yield connection
            self._require_same_file()  # else the commit went to a file without this name

    @contextmanager
    def alone(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection without a transaction, for maintenance of the whole file.

        Other writers of this process wait. Errors of SQLite are not translated.
        """
        with self._write_lock_held(), self._borrow() as connection:
            yield connection

    @contextmanager
    def _write_lock_held(self) -> Iterator[None]:
        """Hold this process's right to write, if there is one."""
        if self._read_only:
            raise WriteRefused(f"{self.path} is open for reading only")
        turn = self._turn  # a fork in the body replaces the lock
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
    def _borrow(self) -> Iterator[sqlite3.Connection]:
        if self._forked_in_use:
            raise StoreError(
                f"{self.path} was in use when this process was forked from another",
                hint="fork while no thread uses the store, or start processes by 'spawn'",
            )
        self._require_same_file()
        with self._pool_lock:
            generation = self._generation
            connection = self._idle.pop() if self._idle else None
            self._in_use += 1
        try:
            connection = connection or self._open()
            yield connection
        except sqlite3.Error:
            generation = 0  # in an unknown state: not reused
            raise
        finally:
            with self._pool_lock:
                self._in_use -= 1
                keep = connection is not None and generation == self._generation
                if keep and connection is not None:
                    self._idle.append(connection)
            if not keep and connection is not None:
                connection.close()

    def close(self) -> None:
        """Close all connections; those in use when they are returned."""
        with self._pool_lock:
            self._generation += 1
            identity, self._identity = self._identity, None
        self._close_idle(was_replaced=identity != identity_of(self.path))

    def _close_idle(self, *, was_replaced: bool) -> None:
        """Close connections; what was committed moves from the log into a replaced file."""
        with self._pool_lock:
            idle, self._idle = self._idle, []
        if idle and was_replaced:
            with suppress(sqlite3.Error):  # as far as other connections allow
                idle[0].execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for connection in idle:
            connection.close()

    def _require_same_file(self) -> None:
        """Check that the path still names the file of the connections.

        A write would be lost with a deleted file, and SQLite would take the log of a replaced file
        for that of the new one. So what was committed moves from the log into the old file.

        Raises:
            StoreError: the file was replaced, moved or deleted.
        """
        if self._identity is None or self._identity == identity_of(self.path):
            return
        self._close_idle(was_replaced=True)
        raise StoreError(
            f"{self.path} was replaced, moved or deleted while it was in use",
            hint="put the file back, or restart this process to use the file that is there now",
        )

    # -- forks -------------------------------------------------------------------------------
    #
    # A connection must not survive a fork: the child would assume that it holds the locks of the
    # parent, and either could remove the log of the other. So idle connections are closed before.
    # If one is in use, SQLite is unusable in the child.

    def before_fork(self) -> None:
        """Close idle connections, and block new ones until the fork is done."""
        self._pool_lock.acquire()
        for connection in self._idle:
            connection.close()
        self._idle = []

    def after_fork(self, *, in_child: bool) -> None:
        """Resume; in the child with new locks, since the threads that held them are gone."""
        if not in_child:
            self._pool_lock.release()
            return
        self._forked_in_use = self._forked_in_use or self._in_use > 0
        self._forget_connections()

    def _open(self) -> sqlite3.Connection:
        self._require_file()
        self._identity = self._identity or identity_of(self.path)
        writable = not self._read_only and may_be_written(self.path)
        connection = self._connect(writable=True) if writable else self._connect_for_reading()
        try:
            self._require_current(connection)
            self._require_own_schema(connection)
            if writable:
                _retry(lambda: _use_log(connection), self._timeout)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_for_reading(self) -> sqlite3.Connection:
        """Open the file for reading.

        SQLite needs the log and its index also to read. If it cannot create them and no log has
        content, the file is read alone.
        """
        log = log_of(self.path)
        if log.exists() or may_be_written(self.path):
            try:
                return self._connect(writable=False)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in _NO_LOG:
                    raise
                if log.exists() and log.stat().st_size:
                    raise StoreError(
                        f"{self.path} was not closed cleanly: its latest writes are in"
                        f" {log.name}, which cannot be read without write access",
                        hint="run a command as a user who may write the file and its folder, or"
                        " copy both files to a folder of your own",
                    ) from error
        return self._connect(writable=False, immutable=True)

    def _connect(self, *, writable: bool, immutable: bool = False) -> sqlite3.Connection:
        place = self.path.absolute().as_uri()
        query = "immutable=1" if immutable else "mode=rw" if writable else "mode=ro"
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
            "secure_delete = ON",  # overwrite deleted rows
            f"query_only = {'OFF' if writable else 'ON'}",
        ):
            try:
                connection.execute(f"PRAGMA {pragma}")
            except sqlite3.Error:
                connection.close()
                raise
        return connection

    # -- making it ---------------------------------------------------------------------------

    def create(self) -> list[str]:
        """Create the file with the newest schema and return what was created. Safe to repeat.

        Raises:
            StoreError: the file has an older schema, which other processes may still rely on; only
                ``migrate up`` updates it.
        """
        made: list[str] = []
        with translate_errors(self.path), self._write_lock_held():
            made += self._make_file()
            if made:
                self.close()  # a file of this name was in use before
            if file_state(self.path) is FileState.CURRENT and not made:
                return made
            _retry(lambda: self._make_tables(made), self._timeout)
        return made

    def _make_tables(self, made: list[str]) -> None:
        """Bring a file to the newest schema; append the created parts to ``made``."""
        from edenmem.store.sqlite.core.database import apply_pending, read_applied

        with closing(self._connect(writable=True)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")  # no effect on a file with pages
            with _transaction(connection):
                if read_applied(connection):  # created meanwhile, or older
                    self._require_current(connection)
                taken = apply_pending(connection)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            made += [f"migration {name}" for name in taken]
            _use_log(connection)
            # Readers without SQLite need the header to identify the file. Concurrent creators are
            # not waited for: they wait for this one.
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    @contextmanager
    def _only(self) -> Iterator[sqlite3.Connection]:
        """Yield the only connection of this process to the file."""
        self._require_file()
        with translate_errors(self.path), self._write_lock_held():
            self.close()  # prepared statements belong to one schema
            with closing(self._connect(writable=True)) as connection:
                yield connection
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def upgrading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a write transaction, for any schema version."""
        with self._only() as connection, _transaction(connection):
            yield connection

    @contextmanager
    def exclusive(self) -> Iterator[sqlite3.Connection]:
        """Yield the only connection of all processes to the file, which may be damaged."""
        with self._only() as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._require_current(connection)
            yield connection

    @contextmanager
    def salvaging(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection that reads what is left of a damaged file."""
        self._require_file()
        uri = f"{self.path.absolute().as_uri()}?mode=ro"
        with translate_errors(self.path), closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("PRAGMA writable_schema = ON")  # reads even a truncated file
            self._require_current(connection)
            yield connection

    @contextmanager
    def looking(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection for reading, for any schema version."""
        self._require_file()
        with translate_errors(self.path), closing(self._connect_for_reading()) as connection:
            yield connection

    def _require_file(self) -> None:
        if file_state(self.path) in (FileState.MISSING, FileState.EMPTY):
            raise StoreError(
                f"no edenmem database: {self.path}", hint="create it with 'edenmem init'"
            )

    def _require_current(self, connection: sqlite3.Connection) -> None:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version_state(self.path, version) is FileState.OLDER:
            raise StoreError(
                f"{self.path} has schema version {version}, this edenmem needs {SCHEMA_VERSION}",
                hint="'edenmem migrate up' updates it",
            )

    def _require_own_schema(self, connection: sqlite3.Connection) -> None:
        """Check that this version's first step made the file."""
        try:
            row = connection.execute("SELECT digest FROM migrations WHERE number = 1").fetchone()
        except sqlite3.OperationalError:  # no such column
            row = None
        require_first(row and row[0], str(self.path))

    def _make_file(self) -> list[str]:
        """Create the file and its folders; return what was created."""
        above = [folder for folder in self.path.absolute().parents if not folder.exists()]
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return []
        except OSError as error:
            raise StoreError(
                f"cannot create {self.path}: {error.strerror}",
                hint="check that its folder is writable",
            ) from error
        os.close(descriptor)
        return [*(f"folder {folder}" for folder in reversed(above)), f"file {self.path}"]


_databases: weakref.WeakSet[Connections] = weakref.WeakSet()
_held: list[Connections] = []


def _before_fork() -> None:
    _held[:] = _databases
    for database in _held:
        database.before_fork()


def _after_fork(*, in_child: bool) -> None:
    for database in _held:
        database.after_fork(in_child=in_child)
    _held.clear()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=partial(_after_fork, in_child=False),
    after_in_child=partial(_after_fork, in_child=True),
)


def map_file(connection: sqlite3.Connection) -> None:
    """Read the file by memory mapping, for searches, which read little of many pages."""
    connection.execute(f"PRAGMA mmap_size = {_MAPPED}")


def _use_log(connection: sqlite3.Connection) -> None:
    """Switch to a write-ahead log, so that readers and a writer do not wait for each other."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        connection.execute("PRAGMA journal_mode = WAL")


def _retry(work: Callable[[], None], timeout: float) -> None:
    """Retry until the timeout.

    SQLite reports a locked file without waiting while another process switches to a write-ahead
    log.
    """
    end = time.monotonic() + timeout
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        time.sleep(_PAUSE)


@contextmanager
def _without_waiting(connection: sqlite3.Connection) -> Iterator[None]:
    """Let commits return before they are on the disk; the file stays consistent."""
    connection.execute("PRAGMA synchronous = NORMAL")
    try:
        yield
    finally:
        connection.execute("PRAGMA synchronous = FULL")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a write transaction; roll it back if the body raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


#: Primary result code → text after the file name, and hint.
_FAULTS: dict[int, tuple[str, str | None]] = {
    sqlite3.SQLITE_BUSY: (
        "is locked by another process for longer than the timeout",
        "wait for the other process, or raise store.busy_timeout_seconds",
    ),
    sqlite3.SQLITE_LOCKED: (
        "is locked by another connection",
        "try again, or raise store.busy_timeout_seconds",
    ),
    sqlite3.SQLITE_READONLY: (
        "cannot be written",
        "check who owns the file and its folder: SQLite also writes '-wal' and '-shm' files there",
    ),
    sqlite3.SQLITE_PERM: ("may not be opened", "check who owns the file and its folder"),
    sqlite3.SQLITE_AUTH: ("may not be opened", "check who owns the file and its folder"),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened",
        "check that its folder exists and is writable, also for '-wal' and '-shm'",
    ),
    sqlite3.SQLITE_FULL: ("cannot grow: the disk is full", "free some space and try again"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written: the disk reports an error", None),
    sqlite3.SQLITE_CORRUPT: (
        "is damaged",
        "try 'edenmem doctor --fix', restore a backup, or save what can be read with 'edenmem"
        " export --salvage FILE'",
    ),
    sqlite3.SQLITE_NOTADB: (
        "is not an edenmem database",
        "name another file with --uri or EDENMEM_URI",
    ),
    sqlite3.SQLITE_NOMEM: ("cannot be used: there is not enough memory", None),
}


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Translate errors of SQLite and the system into `StoreError`.

    Text or numbers that no database can hold are an `InputError`. Programming errors are not
    translated.
    """
    try:
        yield
    except EdenmemError:
        raise
    except sqlite3.Error as error:
        raise _translate(error, path) from error
    except UnicodeEncodeError as error:
        raise InputError(
            "text has lone surrogates, which no database can hold",
            hint="pass it through edenmem.text.clean() first",
        ) from error
    except OverflowError as error:
        raise InputError("a number does not fit into 64 bits") from error


def _translate(error: sqlite3.Error, path: Path) -> Exception:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None and str(error).startswith("Could not decode to UTF-8"):
        return DocumentDamaged(
            f"{path} has text that is not UTF-8",
            hint="'edenmem doctor --full' lists the unreadable rows",
        )
    if code is None:  # raised by the module: a programming error
        return error
    if code & 0xFF == sqlite3.SQLITE_TOOBIG:
        return InputError("a text or vector is larger than SQLite can hold")
    if code & 0xFF == sqlite3.SQLITE_CORRUPT:
        return StoreDamaged(str(path), _FAULTS[sqlite3.SQLITE_CORRUPT][1])
    said, hint = _FAULTS.get(code & 0xFF, (f"gave an error: {error}", None))
    kind = StoreReadOnly if code & 0xFF == sqlite3.SQLITE_READONLY else StoreError
    return kind(f"{path} {said}", hint=hint)
