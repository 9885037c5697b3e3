"""Queries on staged documents and targets, and the comparison of targets with a store."""
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from edenmem.models.v1 import (
    MEMORIES,
    SHARDS,
    USER_TEXTS,
    Note,
    V1Account,
    V1Damage,
    V1DamageKind,
    V1Document,
    V1Item,
    V1Ref,
    V1StagedDocument,
)
from edenmem.text import many

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_BODY = msgspec.msgpack.Decoder(V1Document)
_NOTES = msgspec.msgpack.Decoder(tuple[Note, ...])
_ACCOUNT = msgspec.msgpack.Decoder(V1Account)
#: The users named by a memory, one per row.
_PEOPLE = """json_each('["' || replace(trim(d.users, ','), ',', '","') || '"]') AS person"""


#: Number of damaged documents to name; all are counted.
_NAMED = 10
#: Kind of damage → what the documents have.
_DAMAGED = {
    V1DamageKind.UNREADABLE: "that cannot be read",
    V1DamageKind.INVALID_UTF8: "with bytes that are not UTF-8, replaced by U+FFFD",
    V1DamageKind.WRONG_TYPE: "with an owner, text or kind of the wrong type",
    V1DamageKind.DUPLICATE_ID: "with the _id of another",
}
#: Collection → description of references to it, and the number of referenced documents.
_REFERENCES = {
    MEMORIES: (
        f"{USER_TEXTS} and {SHARDS}",
        "SELECT count(DISTINCT id) FROM refused WHERE verdict = 'dangling'",
    ),
    SHARDS: (
        f"facts and suggestions in {MEMORIES}",
        "SELECT count(*) FROM (SELECT DISTINCT agent, owner FROM documents"
        f" WHERE collection = '{MEMORIES}' AND kind IN ('fact', 'suggestion') AND NOT bad)",
    ),
    USER_TEXTS: (
        f"directives in {MEMORIES}",
        "SELECT count(*) FROM (SELECT DISTINCT agent, users FROM documents"
        f" WHERE collection = '{MEMORIES}' AND kind = 'directive' AND users <> '' AND NOT bad)",
    ),
}


class TargetRow(NamedTuple):
    """An item with the type, key, scope and digest of its target.

    ``origin`` names its documents, ``outcome`` is that of an empty store.
    """

    item: V1Item
    agent_id: str
    kind: str
    outcome: str
    reason: str
    type: str | None = None
    key: str | None = None
    scope: str | None = None
    digest: int | None = None
    origin: str | None = None


class Found(NamedTuple):
    """A stored document; ``pending``, ``at`` and ``place`` are of reflections.

    Of a text, ``at`` is the digest of its content, and ``buffer`` has the IDs that wait for it. A
    version in its history has the digest of its content as ``digest``.
    """

    type: str
    key: str
    id: str
    scope: str | None
    digest: int
    version: int = 0
    pending: bool = False
    at: int | None = None
    place: int | None = None
    buffer: str = ""


class Written(NamedTuple):
    """A document as a run wrote it, according to the log."""

    type: str
    key: str
    scope: str
    digest: int
    version: int
    origin: str
    run_id: str


#: What v2 must hold. A row of a document that no item uses has its ``document`` instead of an
#: ``item``. ``origins`` has the documents of texts and policies.
TARGETS = """
CREATE TABLE targets (
    no INTEGER PRIMARY KEY, agent TEXT NOT NULL, kind TEXT NOT NULL,
    outcome TEXT NOT NULL, reason TEXT NOT NULL, type TEXT, key TEXT, scope TEXT, digest INTEGER,
    origin TEXT, waits INTEGER, document INTEGER, item BLOB
) STRICT;
CREATE TABLE origins (type TEXT NOT NULL, collection TEXT NOT NULL, id TEXT NOT NULL) STRICT;
CREATE TABLE problems (
    kind TEXT NOT NULL, collection TEXT NOT NULL, document_id TEXT NOT NULL, problem BLOB NOT NULL
) STRICT;
"""

#: The present state of the store, its log, and the outcomes of this process.
_NOW = """
DROP TABLE IF EXISTS temp.found;
CREATE TEMP TABLE found (
    type TEXT NOT NULL, key TEXT NOT NULL, id TEXT NOT NULL, scope TEXT, digest INTEGER NOT NULL,
    version INTEGER NOT NULL, pending INTEGER NOT NULL, at INTEGER, place INTEGER, buffer TEXT
) STRICT;
"""
_LOG = """
DROP TABLE IF EXISTS temp.written;
CREATE TEMP TABLE written (
    type TEXT NOT NULL, key TEXT NOT NULL, scope TEXT NOT NULL, digest INTEGER NOT NULL,
    version INTEGER NOT NULL, origin TEXT NOT NULL, run TEXT NOT NULL
) STRICT;
"""
OUTCOMES = """
CREATE TEMP TABLE IF NOT EXISTS outcomes (no INTEGER PRIMARY KEY, outcome TEXT NOT NULL) STRICT;
DELETE FROM outcomes;
"""

#: A switch is never the same: the log notes also one that is as in v1.
_SAME = (
    "SELECT 1 FROM found f WHERE f.type = t.type AND f.key = t.key AND f.digest = t.digest"
    " AND f.type <> 'agent'"
)
_NO_TARGET = "SELECT 1 FROM targets t WHERE t.type = f.type AND t.key = f.key"
#: Pending reflections without a target, which v1 may have absorbed.
_STRAYS = (
    "SELECT f.id FROM found f WHERE f.type = 'reflection' AND f.pending AND f.scope = {}"
    f" AND NOT EXISTS ({_NO_TARGET})"
)
#: The buffers of v1 and of the store that are not the same: scope, IDs in v1.
_WRONG_BUFFERS = """
WITH wanted AS (
    SELECT scope, group_concat(key, ' ') AS buffer
    FROM (SELECT scope, key FROM targets WHERE waits ORDER BY no) GROUP BY scope
), has AS (SELECT key AS scope, buffer FROM found WHERE type = 'consolidation' AND buffer <> '')
SELECT scope, wanted.buffer FROM wanted LEFT JOIN has USING (scope)
    WHERE wanted.buffer IS NOT has.buffer
UNION ALL SELECT scope, '' FROM has WHERE scope NOT IN (SELECT scope FROM wanted)
"""
_PAGE = 500
#: Maximum number of bytes of the items of a page.
_PAGE_BYTES = 2 * 1024 * 1024

_ITEM = msgspec.msgpack.Decoder(V1Item)

#: What a stage can have.
_EXISTS = {
    # Of users or of agents.
    "accounts": "accounts WHERE is_agent = ?",
    "ownerless": "documents WHERE agent = '' AND NOT bad",
    # A document that queries find in the store.
    "found": "found WHERE type = ? AND key = ?",
    # A version in the history of a scope's text: number, digest.
    "version": "found WHERE type = 'history' AND key = ? AND version = ? AND digest = ?",
    "target": "targets WHERE type = ? AND key = ?",
    # A v1 document with this v1 scope.
    "scope": "documents WHERE agent = ? AND scope = ? AND NOT bad",
    # A v1 document from which a text or policy comes.
    "origin": "origins WHERE collection = ? AND id = ? AND type = ?",
    # A v1 document that is used in any scope.
    "used": "documents d WHERE d.collection = ? AND d.id = ? AND NOT d.bad"
    " AND (d.scope <> '' OR EXISTS (SELECT 1 FROM uses u WHERE u.memory = d.number))",
}
#: Columns of IDs and keys.
_COLUMNS = {
    "agents": "SELECT DISTINCT agent FROM documents ORDER BY 1",
    # Scopes of an agent whose texts have absorbed memories.
    "absorbed_scopes": "SELECT DISTINCT scope FROM leftovers WHERE agent = ?"
    " AND cause = 'absorbed' ORDER BY 1",
    "pending_scopes": "SELECT DISTINCT scope FROM uses WHERE agent = ? AND role = 'pending'",
    # Pending reflections of a scope without a target.
    "strays": _STRAYS.format("?"),
    # Keys of a type that several stored documents have.
    "repeated": "SELECT key FROM found WHERE type = ? GROUP BY key HAVING count(*) > 1",
}
_ACCOUNTS = {
    # A user or agent.
    "one": "id = ?1 OR memory_id = ?1 ORDER BY id <> ?1 LIMIT 1",
    "of_user": "memory_id = ? AND NOT is_agent ORDER BY id",
    "agents": "is_agent ORDER BY id",
}
#: Documents of an agent, or of an agent and scope.
_DOCUMENTS = {
    "shards": f"WHERE d.agent = ? AND d.collection = '{SHARDS}' AND NOT d.bad",
    "user_texts": f"WHERE d.agent = ? AND d.collection = '{USER_TEXTS}' AND NOT d.bad"
    " ORDER BY d.owner, d.at, d.id",
    "episodes": f"WHERE d.agent = ? AND d.collection = '{MEMORIES}' AND d.kind = 'episode'"
    " AND NOT d.bad ORDER BY d.id",
    # What lists add to a scope.
    "used": "JOIN uses u ON u.memory = d.number"
    " WHERE u.agent = ? AND u.role IN ('fact', 'pending') AND u.scope = ?",
    # What lists add to a scope's buffer, in order.
    "pending": "JOIN uses u ON u.memory = d.number"
    " WHERE u.agent = ? AND u.role = 'pending' AND u.scope = ? ORDER BY u.lister, u.place",
    # What the text of a scope has absorbed.
    "absorbed": "JOIN leftovers l ON l.number = d.number WHERE l.agent = ?"
    " AND l.cause = 'absorbed' AND l.scope = ? ORDER BY l.id, d.number",
    # One document, by its collection and ID.
    "one": "WHERE d.collection = ? AND d.id = ? LIMIT 1",
}


class V1Queries:
    """The queries after settling, and the comparison of targets with a store."""

    _db: sqlite3.Connection
    _translate_errors: Callable[[], AbstractContextManager[None]]
    _fields: Counter[str]

    def has(self, what: str, *values: Any) -> bool:
        """Return whether there is something of `_EXISTS` with these values."""
        query = f"SELECT 1 FROM {_EXISTS[what]} LIMIT 1"
        return self._db.execute(query, values).fetchone() is not None

    def column(self, what: str, *values: Any) -> list[str]:
        """Return a column of `_COLUMNS`."""
        return [row[0] for row in self._db.execute(_COLUMNS[what], values)]

    def documents(self, which: str, *values: Any) -> Iterator[V1StagedDocument]:
        """Return documents of `_DOCUMENTS`."""
        return (staged for _, staged in self._rows("1", _DOCUMENTS[which], *values))

    def counts(self, agents: Sequence[str] = ()) -> dict[str, int]:
        """Count documents by collection."""
        counted = dict.fromkeys((USER_TEXTS, SHARDS, MEMORIES), 0)
        wanted = {"", *agents}
        for collection, agent, count in self._db.execute(
            "SELECT collection, agent, count(*) FROM documents GROUP BY collection, agent"
        ):
            if not agents or agent in wanted:
                counted[collection] += count
        return counted

    def accounts(self, which: str, *values: str) -> list[V1Account]:
        """Return accounts of `_ACCOUNTS`."""
        query = f"SELECT account FROM accounts WHERE {_ACCOUNTS[which]}"
        return [_ACCOUNT.decode(row[0]) for row in self._db.execute(query, values)]

    def damage(self, collections: Mapping[str, str]) -> list[V1Damage]:
        """Return damaged documents, repeated IDs, and missing collections.

        ``collections`` maps those of the source to their files, or own names.
        """
        found = []
        damaged = "FROM documents WHERE damage IS NOT NULL"
        for collection, kind, count in self._db.execute(
            f"SELECT collection, damage, count(*) {damaged} GROUP BY 1, 2 ORDER BY 1, 2"
        ).fetchall():
            rows = self._db.execute(
                f"SELECT id {damaged} AND collection = ? AND damage = ? ORDER BY number LIMIT ?",
                (collection, kind, _NAMED),
            )
            ids = tuple(row[0] for row in rows)
            more = f" and {count - len(ids):,} more" if count > len(ids) else ""
            where = collections.get(collection, collection)
            what = f"{many(count, 'document')} {_DAMAGED[kind]}"
            found.append(
                V1Damage(
                    kind=V1DamageKind(kind),
                    where=where,
                    collection=collection,
                    documents=count,
                    places=ids,
                    detail=f"{where}: {what}: {', '.join(ids)}{more}",
                )
            )
        for missing, (referrers, query) in _REFERENCES.items():
            (count,) = self._db.execute(query).fetchone() if missing not in collections else (0,)
            if count:
                detail = f"{referrers} refer to {many(count, 'document')} of it"
                found.append(
                    V1Damage(
                        kind=V1DamageKind.NO_COLLECTION,
                        where=missing,
                        collection=missing,
                        documents=count,
                        detail=f"the collection {missing} is missing; {detail}",
                    )
                )
        return found

    def unknown_fields(self) -> dict[str, int]:
        """Return the count of each unknown field."""
        return dict(sorted(self._fields.items()))

    def find(self, ref: V1Ref) -> V1StagedDocument | None:
        """Return one document."""
        return next(self.documents("one", ref.collection, ref.id), None)

    def shards(self, agent_id: str) -> list[V1StagedDocument]:
        """Return the agent's shards."""
        found = [(each.document, each) for each in self.documents("shards", agent_id)]
        found.sort(key=lambda pair: (pair[0] and pair[0].created_at, pair[1].id))
        return [staged for _, staged in found]

    def user_ids(self, agents: Sequence[str], *, unused: bool) -> Iterator[str]:
        """Return the users with a text, and those named by memories."""
        wanted = msgspec.json.encode(list(agents)).decode()
        used = "1" if unused else "EXISTS (SELECT 1 FROM uses WHERE uses.memory = d.number)"
        for row in self._db.execute(
            "WITH wanted AS (SELECT value AS agent FROM json_each(?1))"
            " SELECT owner FROM documents JOIN wanted USING (agent)"
            " WHERE collection = ?2 AND NOT bad"
            f" UNION SELECT person.value FROM documents d JOIN wanted USING (agent), {_PEOPLE}"
            f" WHERE d.collection = ?3 AND NOT d.bad AND d.users <> '' AND {used}"
            " AND person.value <> '?' ORDER BY 1",
            (wanted, USER_TEXTS, MEMORIES),
        ):
            yield row[0]

    def facts(self, agent_id: str) -> Iterator[tuple[tuple[str, str], V1StagedDocument]]:
        """Yield facts in use by scope and hash, oldest first: scope and hash; memory."""
        return self._rows(
            "u.scope, u.text",
            "JOIN uses u ON u.memory = d.number WHERE u.agent = ? AND u.role = 'fact'"
            " ORDER BY u.scope, u.text, u.at, u.id",
            agent_id,
        )

    def find_unlisted(self, agent_id: str, scope: str, memory_ids: Sequence[str]) -> set[str]:
        """Return the memories in no buffer of a scope."""
        rows = self._db.execute(
            "SELECT d.id FROM json_each(?) wanted"
            " JOIN documents d ON d.collection = ? AND d.id = wanted.value AND NOT d.bad"
            " WHERE d.agent = ? AND NOT EXISTS (SELECT 1 FROM uses u"
            " WHERE u.memory = d.number AND u.role = 'pending' AND u.scope = ?)",
            (msgspec.json.encode(list(memory_ids)).decode(), MEMORIES, agent_id, scope),
        )
        return {row[0] for row in rows}

    def text_written_at(self, agent_id: str, scope: str) -> datetime | None:
        """Return when a scope's text was last written."""
        kind, _, owner = scope.partition("/")
        where, values = "collection = ? AND scope = ?", [agent_id, SHARDS, scope]
        if kind == "user":
            where, values = "collection = ? AND owner = ?", [agent_id, USER_TEXTS, owner]
        row = self._db.execute(
            f"SELECT max(at) FROM documents WHERE agent = ? AND {where} AND NOT bad", values
        ).fetchone()
        return None if row[0] is None else EPOCH + timedelta(milliseconds=row[0])

    def find_refused(self, lister: int) -> Iterator[tuple[str, str]]:
        """Return the invalid items in the lists of a document."""
        yield from self._db.execute(
            "SELECT id, verdict FROM refused WHERE lister = ? ORDER BY role, place", (lister,)
        )

    def noted_leftovers(self, agent_id: str) -> Iterator[tuple[str, V1StagedDocument]]:
        """Yield the documents without another item that have notes or are unusable, with a cause.

        Causes of unusable documents: "unreadable", "duplicate", "bad", "unknown"; of episodes
        "episode"; of facts "unlisted" (in no shard's list) and "shardless" (the shard has no
        document); of directives and suggestions "absorbed", "shared", "refused" (only in a list
        that may not have them) and "orphan" (the owner has no document).
        """
        return self._leftovers(
            "l.agent = ? AND (b.notes IS NOT NULL OR d.bad OR l.cause = 'unknown')"
            " ORDER BY l.collection, l.id, l.number",
            agent_id,
        )

    def _leftovers(self, where: str, *values: Any) -> Iterator[tuple[str, V1StagedDocument]]:
        query = f"JOIN leftovers l ON l.number = d.number WHERE {where}"
        return ((cause, staged) for (cause,), staged in self._rows("l.cause", query, *values))

    def _rows(
        self, columns: str, query: str, *values: Any
    ) -> Iterator[tuple[tuple[Any, ...], V1StagedDocument]]:
        """Yield columns of other tables with staged documents."""
        for number, collection, document_id, body, notes, *more in self._db.execute(
            f"SELECT d.number, d.collection, d.id, b.body, b.notes, {columns} FROM documents d"
            f" JOIN bodies b ON b.number = d.number {query}",
            values,
        ):
            yield (
                tuple(more),
                V1StagedDocument(
                    number=number,
                    collection=collection,
                    id=document_id,
                    document=_BODY.decode(body) if body is not None else None,
                    notes=_NOTES.decode(notes) if notes is not None else (),
                ),
            )

    # -- targets -----------------------------------------------------------------------------

    def add_targets(self, rows: Iterable[TargetRow]) -> None:
        """Add targets with their problems, in the order in which they are written."""
        encode = msgspec.msgpack.Encoder().encode

        def encoded() -> Iterator[tuple[Any, ...]]:
            for item, *columns in rows:
                if item.problems:
                    self.add_problems([item])
                if item.text or item.policy:
                    self._db.executemany(
                        "INSERT INTO origins VALUES (?, ?, ?)",
                        [(columns[4], each.collection, each.id) for each in item.sources],
                    )
                reflection = item.reflection if item.kind == "reflection" else None
                waits = reflection is not None and not reflection.absorbed
                yield (*columns, waits, encode(item))

        self._db.execute("BEGIN")
        self._db.executemany(
            "INSERT INTO targets (agent, kind, outcome, reason, type, key, scope, digest,"
            " origin, waits, item) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            encoded(),
        )
        self._db.execute("COMMIT")

    def add_problems(self, items: Iterable[V1Item]) -> None:
        """Add the problems of items."""
        self._db.executemany(
            "INSERT INTO problems VALUES (?, ?, ?, ?)",
            (
                (each.kind, each.collection, each.document_id, msgspec.msgpack.encode(each))
                for item in items
                for each in item.problems
            ),
        )

    def add_leftovers(self, causes: Mapping[str, tuple[str, str]], agents: Sequence[str]) -> None:
        """Add a row for each document without another item, by its cause: reason and outcome."""
        wanted = msgspec.json.encode(["", *agents]).decode()
        self._db.execute("BEGIN")
        for cause, (reason, outcome) in causes.items():
            self._db.execute(
                "INSERT INTO targets (agent, kind, outcome, reason, document)"
                " SELECT agent, CASE cause WHEN 'episode' THEN cause ELSE 'leftover' END, ?1, ?2,"
                " number FROM leftovers WHERE cause = ?3"
                " AND (?4 OR agent IN (SELECT value FROM json_each(?5)))"
                " ORDER BY agent, collection, id, number",
                (outcome, reason, cause, not agents, wanted),
            )
        self._db.execute("COMMIT")
        self._db.executescript(
            "CREATE INDEX targets_by_key ON targets (type, key) WHERE key IS NOT NULL;"
            "CREATE INDEX origins_by_id ON origins (collection, id, type);"
        )

    def leftover_numbers(self) -> Iterator[int]:
        """Return the numbers of the documents of `add_leftovers`."""
        for row in self._db.execute("SELECT document FROM targets WHERE document IS NOT NULL"):
            yield row[0]

    def items(self, outcome: str = "") -> Iterator[V1Item | tuple[str, V1StagedDocument]]:
        """Return all items, or those with an outcome in an empty store.

        A document without another item comes with its cause.
        """
        query = "SELECT document, item FROM targets WHERE ? IN ('', outcome) ORDER BY no"
        for document, item in self._db.execute(query, (outcome,)):
            if item is not None:
                yield _ITEM.decode(item)
            else:
                yield from self._leftovers("l.number = ?", document)

    def problems(self) -> Iterator[bytes]:
        """Return all problems (MessagePack), by collection and document."""
        query = "SELECT problem FROM problems ORDER BY collection, document_id, rowid"
        return (row[0] for row in self._db.execute(query))

    def count_problems(self) -> dict[str, int]:
        """Count the problems by kind."""
        query = "SELECT kind, count(*) FROM problems GROUP BY kind ORDER BY 2 DESC"
        return dict(self._db.execute(query).fetchall())

    # -- the store ---------------------------------------------------------------------------

    def set_found(self, rows: Iterable[Found]) -> None:
        """Replace the state of the store, and forget all outcomes."""
        with self._translate_errors():
            self._db.executescript(_NOW + OUTCOMES)
            self._db.execute("BEGIN")
            marks = ", ".join("?" * len(Found._fields))
            self._db.executemany(f"INSERT INTO temp.found VALUES ({marks})", rows)
            self._db.execute("COMMIT")
            self._db.executescript(
                "CREATE INDEX temp.found_by_key ON found (type, key, digest);"
                "CREATE INDEX temp.found_by_scope ON found (scope) WHERE type = 'reflection';"
            )

    def set_written(self, rows: Iterable[Written]) -> None:
        """Replace what the log says that runs wrote."""
        with self._translate_errors():
            self._db.executescript(_LOG)
            self._db.execute("BEGIN")
            self._db.executemany("INSERT INTO temp.written VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            self._db.execute("COMMIT")
            self._db.execute("CREATE INDEX temp.written_by_key ON written (type, key)")

    def hash_of_store(self) -> str:
        """Return a hash of the state of the store, and of what runs wrote."""
        found = blake2b(digest_size=16)
        for table in ("found", "written"):
            rows = self._db.execute(f"SELECT * FROM temp.{table} ORDER BY rowid")
            while page := rows.fetchmany(_PAGE):
                found.update(msgspec.msgpack.encode(page))
        return found.hexdigest()

    def settle_equal(self, run_id: str) -> None:
        """Set the outcome of targets that the store has: moved by this run, or already there."""
        self._db.execute("DELETE FROM outcomes")
        self._db.execute(
            "INSERT INTO outcomes SELECT t.no, CASE WHEN EXISTS (SELECT 1 FROM written w"
            " WHERE w.type = t.type AND w.key = t.key AND w.run = ?) THEN t.outcome"
            f" ELSE 'already' END FROM targets t WHERE t.type IS NOT NULL AND EXISTS ({_SAME})",
            (run_id,),
        )

    def unlike(self, size: int) -> Iterator[list[tuple[int, V1Item]]]:
        """Return pages of the targets that the store lacks or has with another content.

        Also texts of scopes with pending reflections that v1 may have absorbed.
        """
        strays = _STRAYS.format("t.key")
        return self._pages(
            f"NOT EXISTS ({_SAME}) OR (t.type = 'consolidation' AND EXISTS ({strays}))", size
        )

    def unproven(self) -> Iterator[list[tuple[int, V1Item]]]:
        """Return pages of the targets that store and log do not both have unchanged."""
        return self._pages(
            "NOT EXISTS (SELECT 1 FROM found f"
            " JOIN written w ON w.type = f.type AND w.key = f.key AND w.digest = f.digest"
            " AND w.version = f.version AND w.scope = f.scope WHERE f.type = t.type"
            " AND f.key = t.key AND f.digest = t.digest AND w.origin = t.origin"
            " AND (f.type <> 'consolidation' OR EXISTS (SELECT 1 FROM found h"
            " WHERE h.type = 'history' AND h.key = f.key AND h.version = f.version"
            " AND h.digest = f.at)))"
        )

    def _pages(self, condition: str, size: int = _PAGE) -> Iterator[list[tuple[int, V1Item]]]:
        last = 0
        while True:
            page: list[tuple[int, V1Item]] = []
            length = 0
            cursor = self._db.execute(
                "SELECT t.no, t.item FROM targets t WHERE t.no > ? AND t.type IS NOT NULL"
                f" AND ({condition}) ORDER BY t.no LIMIT ?",
                (last, size),
            )
            for last, item in cursor:
                page.append((last, _ITEM.decode(item)))
                length += len(item)
                if length > _PAGE_BYTES:
                    break
            cursor.close()  # an open one locks the tables
            if not page:
                return
            yield page

    def count_settled(self) -> int:
        """Count the items without a target, and those with an outcome of their own."""
        (count,) = self._db.execute(
            "SELECT (SELECT count(*) FROM targets WHERE type IS NULL)"
            " + (SELECT count(*) FROM outcomes)"
        ).fetchone()
        return int(count)

    def set_outcomes(self, outcomes: Iterable[tuple[int, str]]) -> None:
        """Set the outcomes of targets."""
        self._db.executemany("INSERT OR REPLACE INTO outcomes VALUES (?, ?)", outcomes)

    def count_outcomes(self) -> list[tuple[str, str, str, str, int]]:
        """Count items by agent, kind, outcome and reason."""
        return self._db.execute(
            "SELECT t.agent, t.kind, coalesce(o.outcome, t.outcome), t.reason, count(*)"
            " FROM targets t LEFT JOIN outcomes o USING (no)"
            " GROUP BY 1, 2, 3, 4 ORDER BY 1"
        ).fetchall()

    def outcomes(self) -> Counter[str]:
        """Count items by outcome."""
        query = (
            "SELECT coalesce(o.outcome, t.outcome), count(*)"
            " FROM targets t LEFT JOIN outcomes o USING (no) GROUP BY 1"
        )
        return Counter(dict(self._db.execute(query).fetchall()))

    def next_place(self, scope: str, at: int) -> int:
        """Return the first free place among the stored reflections of a scope and time."""
        (place,) = self._db.execute(
            "SELECT coalesce(max(place) + 1, 0) FROM found"
            " WHERE type = 'reflection' AND scope = ? AND at = ?",
            (scope, at),
        ).fetchone()
        return int(place)

    def surplus(self, type: str) -> Iterator[list[tuple[str, str]]]:
        """Return pages of (ID, scope) of stored documents of a type that have no target."""
        query = (
            "SELECT f.id, f.scope FROM found f WHERE f.type = ?"
            f" AND NOT EXISTS ({_NO_TARGET}) ORDER BY f.rowid"
        )
        cursor = self._db.execute(query, (type,))
        while rows := cursor.fetchmany(_PAGE):
            yield rows

    def wrong_buffers(self) -> list[tuple[str, str]]:
        """Return the scopes whose buffers differ, and the IDs that wait in v1, in order."""
        return self._db.execute(_WRONG_BUFFERS).fetchall()
