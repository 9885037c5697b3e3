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
from edenmem.text import clean

__all__ = ["SqliteV1Stage", "TargetRow"]

#: Small rows for joins; bodies are in a table of their own, so that sorting stays cheap. ``users``
#: is ",id,id,"; ``text`` identifies the content of a fact.
_TABLES = """
CREATE TABLE documents (
    number INTEGER PRIMARY KEY, collection TEXT NOT NULL, id TEXT NOT NULL, agent TEXT NOT NULL,
    kind TEXT NOT NULL, owner TEXT NOT NULL, users TEXT NOT NULL, sole TEXT NOT NULL,
    at INTEGER NOT NULL, text TEXT NOT NULL, bad INTEGER NOT NULL, damage TEXT,
    scope TEXT NOT NULL DEFAULT ''
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

# Assignment of v1 memories to lists, for all staged documents in one pass. The result does not
# depend on the order of the documents: among equal claims the lowest ID wins.

#: A repeated ID is invalid, and its document is named after its place among the duplicates.
_SAME_IDS = """
CREATE INDEX documents_by_id ON documents (collection, id, bad);
CREATE TEMP TABLE same AS
    SELECT d.number, row_number() OVER (
        PARTITION BY d.collection, d.id ORDER BY d.bad, d.number
    ) AS nth FROM documents d JOIN (
        SELECT collection, id FROM documents GROUP BY collection, id HAVING count(*) > 1
    ) USING (collection, id);
UPDATE documents SET bad = 2, damage = 'duplicate_id', id = documents.id || '#' || same.nth
    FROM same WHERE same.number = documents.number AND same.nth > 1;
DROP TABLE same;
"""

#: A memory without an agent belongs to the agent whose lists have it, if it is a single agent.
_ADOPTION = """
CREATE INDEX listed_by_id ON listed (id);
CREATE TEMP TABLE adopted AS
    SELECT d.number, min(x.agent) AS agent
    FROM documents d
    JOIN listed l ON l.id = d.id
    JOIN documents x ON x.number = l.lister AND NOT x.bad
    WHERE d.collection = 'memory_sessions' AND d.agent = '' AND NOT d.bad
    GROUP BY d.number HAVING count(DISTINCT x.agent) = 1;
UPDATE documents SET agent = adopted.agent FROM adopted WHERE adopted.number = documents.number;
DROP TABLE adopted;
DROP INDEX listed_by_id;
"""

_SCOPES = """
UPDATE documents SET bad = 1
    WHERE collection = 'memory_sessions' AND agent = '' AND NOT bad;
UPDATE documents SET scope = CASE
        WHEN collection = 'memory_user' THEN 'user/' || owner
        WHEN kind = 'active' AND :merge THEN 'agent'
        ELSE 'shard/' || owner
    END
    WHERE collection IN ('memory_user', 'memory_agent') AND NOT bad;
CREATE INDEX documents_by_agent ON documents (agent, collection, owner);
"""

#: Every listed ID once for each list, with its defect. A suggestion among facts stays in its list;
#: personal memory never moves to a shard. A memory without a type may belong to any kind of scope:
#: it goes to the narrowest kind with a list that has it.
_JUDGING = """
CREATE TABLE judged AS
    SELECT l.lister, l.role, l.id AS listed_id, min(l.place) AS place,
        CASE WHEN x.collection = 'memory_user' THEN 2 WHEN x.scope <> 'agent' THEN 1 ELSE 0
            END AS narrow,
        x.agent, x.scope, x.id AS lister_id, d.number AS memory, d.text, d.at, d.id,
        CASE
            WHEN d.number IS NULL THEN 'dangling'
            WHEN d.agent <> x.agent THEN 'foreign_agent'
            WHEN x.collection = 'memory_agent' AND d.kind NOT IN ('fact', 'suggestion', '')
                THEN 'wrong_type'
            WHEN d.kind NOT IN ('directive', 'fact', 'suggestion', '') THEN 'wrong_type'
            WHEN x.collection = 'memory_user' AND d.users <> ''
                AND instr(d.users, ',' || x.owner || ',') = 0 THEN 'foreign_user'
            ELSE ''
        END AS verdict
    FROM listed l
    JOIN documents x ON x.number = l.lister AND NOT x.bad
    LEFT JOIN documents d ON d.collection = 'memory_sessions' AND d.id = l.id AND NOT d.bad
    GROUP BY l.lister, l.role, l.id;
DROP TABLE listed;
CREATE INDEX judged_by_memory ON judged (memory);
UPDATE judged SET verdict = 'wider'
    FROM (
        SELECT j.memory, max(j.narrow) AS narrowest
        FROM judged j JOIN documents d ON d.number = j.memory
        WHERE j.verdict = '' AND d.kind = ''
        GROUP BY j.memory HAVING max(j.narrow) > min(j.narrow)
    ) AS many
    WHERE many.memory = judged.memory AND judged.verdict = '' AND judged.narrow < many.narrowest;
CREATE TABLE refused AS
    SELECT lister, role, place, listed_id AS id, verdict, memory FROM judged WHERE verdict <> '';
CREATE INDEX refused_by_lister ON refused (lister, role, place);
CREATE TABLE uses AS
    SELECT agent, scope, role, memory, min(lister_id) AS first, lister, place,
        text, at, id
    FROM judged WHERE verdict = '' GROUP BY scope, role, memory;
DROP TABLE judged;
CREATE INDEX uses_by_memory ON uses (memory, role);
CREATE INDEX uses_in_order ON uses (agent, role, scope, text, at, id);
"""

#: Memories without an item of another kind, with the scope of the text that absorbed them.
_LEFTOVERS = """
CREATE TABLE homes (
    agent TEXT, owner TEXT, scope TEXT NOT NULL, PRIMARY KEY (agent, owner)
) STRICT, WITHOUT ROWID;
INSERT OR IGNORE INTO homes
    SELECT agent, CASE collection WHEN 'memory_user' THEN 'user/' ELSE 'shard/' END || owner, scope
    FROM documents WHERE scope <> '';
CREATE TABLE leftovers AS
    SELECT number, agent, collection, id,
        CASE WHEN bad = 2 THEN 'duplicate'
            WHEN number IN (SELECT number FROM bodies WHERE body IS NULL) THEN 'unreadable'
            ELSE 'bad' END AS cause, '' AS scope
    FROM documents WHERE bad
    UNION ALL
    SELECT number, agent, collection, id, 'episode', '' FROM documents
    WHERE collection = 'memory_sessions' AND NOT bad AND kind = 'episode'
    UNION ALL
    SELECT d.number, d.agent, d.collection, d.id,
        CASE
            WHEN d.number IN (SELECT memory FROM refused WHERE memory IS NOT NULL) THEN 'refused'
            WHEN d.kind = 'fact' AND x.scope IS NULL AND (d.owner <> '' OR NOT EXISTS (
                SELECT 1 FROM homes h
                WHERE h.agent = d.agent AND h.owner >= 'shard/' AND h.owner < 'shard0'
            )) THEN 'shardless'
            WHEN d.kind = 'fact' THEN 'unlisted'
            WHEN d.kind IN ('directive', 'suggestion') AND x.scope IS NOT NULL THEN 'absorbed'
            WHEN d.kind = 'directive' AND d.users <> '' AND d.sole = '' THEN 'shared'
            WHEN d.kind IN ('directive', 'suggestion') THEN 'orphan'
            ELSE 'unknown'
        END,
        coalesce(x.scope, '')
    FROM documents d
    LEFT JOIN homes x ON x.agent = d.agent AND x.owner = CASE d.kind
        WHEN 'directive' THEN 'user/' || d.sole
        WHEN 'suggestion' THEN 'shard/' || d.owner
        WHEN 'fact' THEN 'shard/' || d.owner
    END
    WHERE d.collection = 'memory_sessions' AND NOT d.bad AND d.kind <> 'episode'
        AND NOT EXISTS (SELECT 1 FROM uses WHERE uses.memory = d.number);
CREATE INDEX leftovers_in_order ON leftovers (agent, cause, scope, id);
CREATE INDEX leftovers_by_number ON leftovers (number);
PRAGMA analysis_limit = 1000;
ANALYZE;
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
                body = self._encoder.encode(document) if document is not None else None
                notes = self._encoder.encode(read.notes) if read.notes else None
                bodies.append((self._number, body, notes))
                own = *_columns(document), read.damage
                documents.append((self._number, read.collection, read.id, *own))
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
            "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '')", documents
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
            self._db.executescript(_SAME_IDS)
            if self.has("ownerless"):
                self._db.executescript(_ADOPTION)
            self._db.executescript(_SCOPES.replace(":merge", str(int(merge))))
            self._db.executescript(_JUDGING + _LEFTOVERS)

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
