"""The stage of a migration: all documents of v1 in a temporary file, to be looked up and joined.

The file is removed as soon as it is open, so that nothing of it is left whatever happens to the
process. It is on disk all the same, so that memory stays flat.
"""
# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from edenmem.errors import StoreError
from edenmem.models.ids import derived_id, is_id
from edenmem.models.memory import content_hash
from edenmem.models.v1 import MEMORIES, SHARDS, USER_TEXTS, V1Ref
from edenmem.models.v1_documents import (
    Note,
    V1Account,
    V1Document,
    V1Memory,
    V1Read,
    V1Shard,
    V1Staged,
    V1UserText,
)
from edenmem.store.sqlite import v1_settling
from edenmem.text import clean

#: Small and written often: what is asked is joined on these. Bodies are kept apart, so that what
#: is settled and sorted stays small. ``users`` is ",id,id,"; ``text`` identifies a fact's content.
_TABLES = """
CREATE TABLE documents (
    number INTEGER PRIMARY KEY, collection TEXT NOT NULL, id TEXT NOT NULL, agent TEXT NOT NULL,
    kind TEXT NOT NULL, owner TEXT NOT NULL, users TEXT NOT NULL, sole TEXT NOT NULL,
    at INTEGER NOT NULL, text TEXT NOT NULL, bad INTEGER NOT NULL, scope TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE TABLE bodies (
    number INTEGER PRIMARY KEY, hash TEXT NOT NULL, body BLOB, notes BLOB
) STRICT;
CREATE TABLE listed (
    lister INTEGER NOT NULL, role TEXT NOT NULL, place INTEGER NOT NULL, id TEXT NOT NULL
) STRICT;
CREATE TABLE accounts (
    id TEXT PRIMARY KEY, memory_id TEXT NOT NULL, is_agent INTEGER NOT NULL, account BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX accounts_by_person ON accounts (memory_id);
"""

#: Documents that are written at once: so many, or so many bytes.
_BATCH = 2000
_BATCH_BYTES = 8 * 1024 * 1024

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

_BODY = msgspec.msgpack.Decoder(V1Document)
_NOTES = msgspec.msgpack.Decoder(tuple[Note, ...])
_ACCOUNT = msgspec.msgpack.Decoder(V1Account)
_STAGED = "d.number, d.collection, d.id, b.hash, b.body, b.notes"


class SqliteV1Stage:
    """See `edenmem.store.v1.protocol.V1Stage`.

    Args:
        folder: Where the file is; by default where the system keeps temporary files.

    Raises:
        StoreError: there is no place for it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._fields: Counter[str] = Counter()
        self._number = 0
        self._folder = folder or Path(tempfile.gettempdir())
        with self._told():
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(prefix="edenmem-v1-", suffix=".db", dir=self._folder)
            os.close(handle)
            try:
                self._db = sqlite3.connect(name, isolation_level=None, check_same_thread=False)
                self._db.execute("PRAGMA journal_mode = OFF")
                self._db.execute("PRAGMA synchronous = OFF")
                self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
                self._db.execute("PRAGMA cache_size = -65536")  # KiB
                self._db.executescript(_TABLES)
            finally:
                Path(name).unlink()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say where there was no room, or what else kept the file from being used."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"the temporary file of the migration in {self._folder} cannot be used: {error}",
                hint="name a folder with more room by TMPDIR",
            ) from error

    # -- filling it --------------------------------------------------------------------------

    def add_accounts(self, accounts: Iterable[V1Account]) -> None:
        """Lay out users and agents; of two with one id the first counts."""
        encode = self._encoder.encode
        with self._told():
            self._db.execute("BEGIN")
            self._db.executemany(
                "INSERT OR IGNORE INTO accounts VALUES (?, ?, ?, ?)",
                ((each.id, each.memory_id, each.is_agent, encode(each)) for each in accounts),
            )
            self._db.execute("COMMIT")

    def canonical(self) -> dict[str, str]:
        """Account → canonical id, of people whose two differ."""
        return dict(
            self._db.execute(
                "SELECT id, memory_id FROM accounts WHERE NOT is_agent AND memory_id <> id"
            )
        )

    def add(self, reads: Iterable[V1Read]) -> None:
        """Lay out documents."""
        documents: list[tuple[Any, ...]] = []
        bodies: list[tuple[Any, ...]] = []
        size = 0
        with self._told():
            self._db.execute("BEGIN")
            for read in reads:
                self._number += 1
                document = read.document
                assert not isinstance(document, V1Account)
                body = self._encoder.encode(document) if document is not None else None
                digest = hashlib.blake2b(body or read.raw, digest_size=16).hexdigest()
                notes = self._encoder.encode(read.notes) if read.notes else None
                bodies.append((self._number, digest, body, notes))
                documents.append((self._number, read.collection, read.id, *_columns(document)))
                if document is not None and not isinstance(document, V1Memory):
                    self._lay_out_lists(document)
                if document is not None and document.extra:
                    self._count_fields(read.collection, document.extra)
                size += len(body or b"")
                if len(documents) == _BATCH or size > _BATCH_BYTES:
                    self._write(documents, bodies)
                    size = 0
            self._write(documents, bodies)
            self._db.execute("COMMIT")

    def _write(self, documents: list[tuple[Any, ...]], bodies: list[tuple[Any, ...]]) -> None:
        self._db.executemany(
            "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '')", documents
        )
        self._db.executemany("INSERT INTO bodies VALUES (?, ?, ?, ?)", bodies)
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
            self._fields[f"{collection}.{name}"] += 1

    def settle(self, *, merge: bool) -> None:
        """Judge all lists."""
        with self._told():
            v1_settling.settle(self._db, merge=merge)

    def close(self) -> None:
        """Remove the file, which has no name any more."""
        self._db.close()

    # -- asking it ---------------------------------------------------------------------------

    def counts(self, agents: Sequence[str] = ()) -> dict[str, int]:
        """Documents by collection."""
        counted = dict.fromkeys((USER_TEXTS, SHARDS, MEMORIES), 0)
        wanted = {"", *agents}
        for collection, agent, count in self._db.execute(
            "SELECT collection, agent, count(*) FROM documents GROUP BY collection, agent"
        ):
            if not agents or agent in wanted:
                counted[collection] += count
        return counted

    def agents(self) -> list[str]:
        """All agents, in order."""
        return [
            row[0] for row in self._db.execute("SELECT DISTINCT agent FROM documents ORDER BY 1")
        ]

    def account(self, account_id: str) -> V1Account | None:
        """A user or agent."""
        row = self._db.execute(
            "SELECT account FROM accounts WHERE id = ?1 OR memory_id = ?1"
            " ORDER BY id <> ?1 LIMIT 1",
            (account_id,),
        ).fetchone()
        return _ACCOUNT.decode(row[0]) if row else None

    def has_accounts(self, *, agents: bool) -> bool:
        """Whether there are any."""
        row = self._db.execute("SELECT 1 FROM accounts WHERE is_agent = ? LIMIT 1", (agents,))
        return row.fetchone() is not None

    def unknown_fields(self) -> dict[str, int]:
        """How often each was met."""
        return dict(sorted(self._fields.items()))

    def find(self, ref: V1Ref) -> V1Staged | None:
        """One document."""
        query = "WHERE d.collection = ? AND d.id = ? AND b.hash = ? LIMIT 1"
        return next(self._documents(query, (ref.collection, ref.id, ref.content_hash)), None)

    def shards(self, agent_id: str) -> list[V1Staged]:
        """The agent's shards."""
        query = "WHERE d.agent = ? AND d.collection = ? AND NOT d.bad"
        found = list(self._documents(query, (agent_id, SHARDS)))
        return sorted(found, key=lambda each: (_created(each), each.id))

    def user_texts(self, agent_id: str) -> Iterator[V1Staged]:
        """The texts of users."""
        query = "WHERE d.agent = ? AND d.collection = ? AND NOT d.bad ORDER BY d.owner, d.at, d.id"
        return self._documents(query, (agent_id, USER_TEXTS))

    def user_ids(self, agent_id: str) -> Iterator[str]:
        """The users with a text."""
        for row in self._db.execute(
            "SELECT DISTINCT owner FROM documents WHERE agent = ? AND collection = ? AND NOT bad"
            " ORDER BY owner",
            (agent_id, USER_TEXTS),
        ):
            yield row[0]

    def facts(self, agent_id: str) -> Iterator[tuple[str, int, int, V1Staged]]:
        """Facts in use."""
        for scope, times, spread, *row in self._db.execute(
            f"SELECT u.scope, u.times, u.spread, {_STAGED} FROM uses u"
            " JOIN documents d ON d.number = u.memory JOIN bodies b ON b.number = d.number"
            " WHERE u.agent = ? AND u.role = 'fact' ORDER BY u.scope, u.text, u.at, u.id",
            (agent_id,),
        ):
            yield scope, times, spread, _staged(row)

    def pending_scopes(self, agent_id: str) -> list[tuple[str, list[int]]]:
        """Scopes and the documents whose lists they have."""
        scopes: dict[str, list[int]] = {}
        for scope, lister in self._db.execute(
            "SELECT DISTINCT scope, lister FROM uses WHERE agent = ? AND role = 'pending'"
            " ORDER BY scope, lister",
            (agent_id,),
        ):
            scopes.setdefault(scope, []).append(lister)
        return list(scopes.items())

    def pending(self, lister: int, scope: str) -> Iterator[tuple[int, int, V1Staged]]:
        """One list, in order."""
        for times, spread, *row in self._db.execute(
            f"SELECT u.times, u.spread, {_STAGED} FROM uses u"
            " JOIN documents d ON d.number = u.memory JOIN bodies b ON b.number = d.number"
            " WHERE u.lister = ? AND u.role = 'pending' AND u.scope = ? ORDER BY u.place",
            (lister, scope),
        ):
            yield times, spread, _staged(row)

    def absorbed_scopes(self, agent_id: str) -> list[str]:
        """Scopes with absorbed ones."""
        query = (
            "SELECT DISTINCT scope FROM leftovers WHERE agent = ? AND fate = 'absorbed' ORDER BY 1"
        )
        return [row[0] for row in self._db.execute(query, (agent_id,))]

    def text_written_at(self, agent_id: str, scope: str) -> datetime | None:
        """When a scope's text was last written."""
        kind, _, owner = scope.partition("/")
        where, values = "collection = ? AND scope = ?", [agent_id, SHARDS, scope]
        if kind == "user":
            where, values = "collection = ? AND owner = ?", [agent_id, USER_TEXTS, owner]
        row = self._db.execute(
            f"SELECT max(at) FROM documents WHERE agent = ? AND {where} AND NOT bad", values
        ).fetchone()
        return _moment(row[0])

    def absorbed(self, agent_id: str, scope: str) -> Iterator[V1Staged]:
        """Absorbed ones of one scope."""
        return self._documents(
            "JOIN leftovers l ON l.number = d.number"
            " WHERE l.agent = ? AND l.fate = 'absorbed' AND l.scope = ? ORDER BY l.id, d.number",
            (agent_id, scope),
        )

    def refused(self, lister: int) -> Iterator[tuple[str, str]]:
        """What a document lists in vain."""
        yield from self._db.execute(
            "SELECT id, verdict FROM refused WHERE lister = ? ORDER BY role, place", (lister,)
        )

    def episodes(self, agent_id: str) -> Iterator[V1Staged]:
        """The agent's episodes."""
        query = "WHERE d.agent = ? AND d.collection = ? AND d.kind = 'episode' AND NOT d.bad"
        return self._documents(f"{query} ORDER BY d.id", (agent_id, MEMORIES))

    def leftovers(self, agent_id: str) -> Iterator[tuple[str, V1Staged]]:
        """What no list uses, and what cannot be used."""
        for fate, *row in self._db.execute(
            f"SELECT l.fate, {_STAGED} FROM leftovers l"
            " JOIN documents d ON d.number = l.number JOIN bodies b ON b.number = d.number"
            " WHERE l.agent = ? ORDER BY l.collection, l.id, l.number",
            (agent_id,),
        ):
            yield fate, _staged(row)

    def last_activity(self, agent_id: str, scope: str) -> datetime | None:
        """When something was last written."""
        return _moment(v1_settling.last_activity(self._db, agent_id, scope))

    def _documents(self, query: str, values: tuple[Any, ...]) -> Iterator[V1Staged]:
        for row in self._db.execute(
            f"SELECT {_STAGED} FROM documents d JOIN bodies b ON b.number = d.number {query}",
            values,
        ):
            yield _staged(row)


def _staged(row: Sequence[Any]) -> V1Staged:
    number, collection, document_id, digest, body, notes = row
    return V1Staged(
        number=number,
        collection=collection,
        id=document_id,
        hash=digest,
        document=_BODY.decode(body) if body is not None else None,
        notes=_NOTES.decode(notes) if notes is not None else (),
    )


def _created(staged: V1Staged) -> datetime:
    assert staged.document is not None
    return staged.document.created_at


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)


def _milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MILLISECOND


def _columns(document: V1Document | None) -> tuple[str, str, str, str, str, int, str, int]:
    """agent, kind, owner, users, sole, at, text, bad."""
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
    # Somebody who cannot be told is nobody else: such a memory is of none of the users we know.
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
