"""The staging area of a migration: all documents of v1 and their targets, in a file.

A file without a name is unlinked when it is opened, so nothing remains after a crash. A named one
stays until it is discarded, for the next process of an interrupted run. It is on disk, so that
memory use stays flat.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from edenmem.errors import StoreError
from edenmem.models.ids import derived_id, is_id
from edenmem.models.memory import content_hash
from edenmem.models.v1 import (
    SHARDS,
    V1Account,
    V1Document,
    V1Memory,
    V1Read,
    V1Shard,
    V1UserText,
)
from edenmem.store.sqlite.v1.queries import EPOCH, OUTCOMES, TARGETS, TargetRow, V1Queries
from edenmem.store.sqlite.v1.settling import settle
from edenmem.text import clean

__all__ = ["SqliteV1Stage", "TargetRow"]

#: Small rows for joins; bodies are in a table of their own, so that sorting stays cheap. ``users``
#: is ",id,id,"; ``text`` identifies the content of a fact.
_TABLES = """
CREATE TABLE documents (
    number INTEGER PRIMARY KEY, collection TEXT NOT NULL, id TEXT NOT NULL, agent TEXT NOT NULL,
    kind TEXT NOT NULL, owner TEXT NOT NULL, users TEXT NOT NULL, sole TEXT NOT NULL,
    at INTEGER NOT NULL, text TEXT NOT NULL, bad INTEGER NOT NULL, scope TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE TABLE bodies (number INTEGER PRIMARY KEY, body BLOB, notes BLOB) STRICT;
CREATE TABLE listed (
    lister INTEGER NOT NULL, role TEXT NOT NULL, place INTEGER NOT NULL, id TEXT NOT NULL
) STRICT;
CREATE TABLE accounts (
    id TEXT PRIMARY KEY, memory_id TEXT NOT NULL, is_agent INTEGER NOT NULL, account BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX accounts_by_person ON accounts (memory_id);
CREATE TABLE people (
    id TEXT PRIMARY KEY, memory_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE notes (complete INTEGER NOT NULL, note BLOB NOT NULL) STRICT;
"""

#: The page cache, also the size of a sort in memory.
_CACHE_KIB = 8 * 1024
#: Limit of all SQLite caches in this process while the staging area is open.
_HEAP_BYTES = 16 * 1024 * 1024
#: Documents in one write: by number and by bytes.
_BATCH = 2000
_BATCH_BYTES = 8 * 1024 * 1024

#: Maximum number of reported unknown fields.
_MOST_FIELDS = 1000

_MILLISECOND = timedelta(milliseconds=1)


class SqliteV1Stage(V1Queries):
    """All documents of a source in a file, for joins without holding them in memory.

    Call `add_accounts` and `add`, then `settle` once, then the queries. `settle` decides which
    memories a list *uses*: an ID counts once per scope and role, and only if the memory exists,
    belongs to the same agent, and may be in such a list; all others are refused. The targets are
    then added and compared with what is found in the store and written in its log.

    A scope of v1 is a text here: ``agent``, ``shard/`` with the shard's ID, or ``user/`` with the
    user's ID. The scope of a target is the key of its scope in v2.

    Args:
        path: The file of an unfinished run, which may exist; None for a file without a name in the
            system's folder of temporary files.

    Raises:
        StoreError: the file cannot be created.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._fields: Counter[str] = Counter()
        self._number = 0
        # Recently seen people; a complete mapping would grow with the users of the host.
        self.canonical = lru_cache(4096)(self._look_up_canonical)
        self._path = path
        self._folder = Path(tempfile.gettempdir()) if path is None else path.parent
        with self._translate_errors():
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if path is None or not self._reopen(path):
                self._create(path)
            # The target store has caches too, one for each connection.
            (self._heap,) = self._db.execute("PRAGMA soft_heap_limit").fetchone()
            self._db.execute(f"PRAGMA soft_heap_limit = {_HEAP_BYTES}")

    def _reopen(self, path: Path) -> bool:
        """Open the complete stage of an earlier process, if there is one."""
        if not path.exists():
            return False
        self._connect(path)
        try:
            row = self._db.execute("SELECT note FROM notes WHERE complete").fetchone()
        except sqlite3.DatabaseError:  # written by another version, or in use by another process
            row = None
        if row is None:
            self._db.close()
            return False
        self.note = row[0]
        return True

    def _create(self, path: Path | None) -> None:
        handle, name = tempfile.mkstemp(prefix="edenmem-v1-", suffix=".db", dir=self._folder)
        os.close(handle)
        self._connect(Path(name))
        self._db.executescript(_TABLES + TARGETS)
        self.note = b""
        if path is None:
            Path(name).unlink()
        else:
            Path(name).replace(path)

    def _connect(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._db.executescript(OUTCOMES)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate errors of the file, such as a full disk."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"the temporary file of the migration in {self._folder} cannot be used: {error}",
                hint="set TMPDIR to a folder with more space",
            ) from error

    # -- filling it --------------------------------------------------------------------------

    def add_accounts(self, accounts: Iterable[V1Account]) -> None:
        """Stage users and agents; the first of a repeated ID counts."""
        encode = self._encoder.encode
        rows = ((each.id, each.memory_id, each.is_agent, encode(each)) for each in accounts)
        self._insert("INSERT OR IGNORE INTO accounts VALUES (?, ?, ?, ?)", rows)

    def add_people(self, people: Iterable[tuple[str, str]]) -> None:
        """Stage (account, canonical ID) pairs from elsewhere; the accounts take precedence."""
        self._insert("INSERT OR IGNORE INTO people VALUES (?, ?)", people)

    def _insert(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        with self._translate_errors():
            self._db.execute("BEGIN")
            self._db.executemany(statement, rows)
            self._db.execute("COMMIT")

    def _look_up_canonical(self, account_id: str) -> str:
        row = self._db.execute(
            "SELECT coalesce((SELECT memory_id FROM accounts"
            " WHERE id = ?1 AND NOT is_agent AND memory_id <> id),"
            " (SELECT memory_id FROM people WHERE id = ?1), ?1)",
            (account_id,),
        ).fetchone()
        return str(row[0])

    def add(self, reads: Iterable[V1Read]) -> None:
        """Stage documents."""
        documents: list[tuple[Any, ...]] = []
        bodies: list[tuple[Any, ...]] = []
        size = 0
        with self._translate_errors():
            self._db.execute("BEGIN")
            for read in reads:
                self._number += 1
                document = read.document
                assert not isinstance(document, V1Account)
                body = self._encoder.encode(document) if document is not None else None
                notes = self._encoder.encode(read.notes) if read.notes else None
                bodies.append((self._number, body, notes))
                documents.append((self._number, read.collection, read.id, *_columns(document)))
                if document is not None and not isinstance(document, V1Memory):
                    self._lay_out_lists(document)
                if document is not None and document.extra:
                    self._count_fields(read.collection, document.extra)
                size += len(body or b"") + len(notes or b"")
                if len(documents) == _BATCH or size > _BATCH_BYTES:
                    self._write(documents, bodies)
                    size = 0
            self._write(documents, bodies)
            self._db.execute("COMMIT")

    def _write(self, documents: list[tuple[Any, ...]], bodies: list[tuple[Any, ...]]) -> None:
        self._db.executemany(
            "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '')", documents
        )
        self._db.executemany("INSERT INTO bodies VALUES (?, ?, ?)", bodies)
        documents.clear()
        bodies.clear()

    def _lay_out_lists(self, document: V1UserText | V1Shard) -> None:
        lists = {"pending": document.pending}
        if isinstance(document, V1Shard):
            lists["fact"] = document.facts
        for role, ids in lists.items():
            self._db.executemany(
                "INSERT INTO listed VALUES (?, ?, ?, ?)",
                ((self._number, role, place, each) for place, each in enumerate(ids)),
            )

    def _count_fields(self, collection: str, extra: str) -> None:
        for name in msgspec.json.decode(extra.encode("utf-8", "surrogatepass")):
            field = f"{collection}.{name}"
            if field in self._fields or len(self._fields) < _MOST_FIELDS:
                self._fields[field] += 1

    def settle(self, *, merge: bool) -> None:
        """Resolve all lists. ``merge``: active shards belong to the agent's own scope."""
        with self._translate_errors():
            settle(self._db, merge=merge)

    def complete(self, note: bytes) -> None:
        """Mark the stage as complete, with a note for the process that opens it next."""
        with self._translate_errors():
            self._db.execute("INSERT INTO notes VALUES (1, ?)", (note,))
        self.note = note

    def close(self, *, keep: bool = False) -> None:
        """Close the file; remove it unless it is kept for the next process."""
        with suppress(sqlite3.ProgrammingError):  # already closed
            self._db.execute(f"PRAGMA soft_heap_limit = {self._heap}")
        self._db.close()
        if self._path is not None and not keep:
            self._path.unlink(missing_ok=True)


def _milliseconds(moment: datetime) -> int:
    return (moment - EPOCH) // _MILLISECOND


def _columns(document: V1Document | None) -> tuple[str, str, str, str, str, int, str, int]:
    """Return agent, kind, owner, users, sole, at, text, bad."""
    match document:
        case None:
            return "", "", "", "", "", 0, "", 1
        case V1Memory():
            return _columns_of_memory(document)
        case V1UserText():
            owner, kind, bad = document.user_id, "user_text", not document.user_id
        case V1Shard():
            owner = document.id if is_id(document.id) else derived_id("v1", SHARDS, document.id)
            kind, bad = "active" if document.active else "paused", False
    at = document.last_updated_at or document.updated_at or document.created_at
    bad = bad or not document.agent_id
    return document.agent_id, kind, owner, "", "", _milliseconds(at), "", int(bad)


def _columns_of_memory(memory: V1Memory) -> tuple[str, str, str, str, str, int, str, int]:
    # An unidentified person is treated as unknown: such a memory belongs to no known user.
    users = [user if is_id(user) else "?" for user in memory.users]
    is_fact = memory.memory_type not in ("directive", "episode")
    return (
        memory.agent_id,
        memory.memory_type,
        memory.shard_id,
        f",{','.join(users)}," if users else "",
        users[0] if len(users) == 1 else "",
        _milliseconds(memory.created_at),
        content_hash(clean(memory.content).strip()) if is_fact else "",
        0,
    )
