"""Queries on the staged documents of v1; see `edenmem.store.v1.protocol.V1Stage`."""
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from edenmem.models.v1 import MEMORIES, SHARDS, USER_TEXTS, V1_COLLECTIONS, V1Damage, V1Ref
from edenmem.models.v1_documents import Note, V1Account, V1Document, V1StagedDocument
from edenmem.store.sqlite.v1 import settling as v1_settling
from edenmem.store.v1.damage import no_collection, repeated_ids

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_BODY = msgspec.msgpack.Decoder(V1Document)
_NOTES = msgspec.msgpack.Decoder(tuple[Note, ...])
_ACCOUNT = msgspec.msgpack.Decoder(V1Account)
#: The users named by a memory, one per row.
_PEOPLE = """json_each('["' || replace(trim(d.users, ','), ',', '","') || '"]') AS person"""
_STAGED = "d.number, d.collection, d.id, b.hash, b.body, b.notes"


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


class V1Questions:
    """The queries, after settling."""

    _db: sqlite3.Connection
    _fields: Counter[str]

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

    def agents(self) -> list[str]:
        """Return all agents, in order."""
        return [
            row[0] for row in self._db.execute("SELECT DISTINCT agent FROM documents ORDER BY 1")
        ]

    def account(self, account_id: str) -> V1Account | None:
        """Return a user or agent."""
        row = self._db.execute(
            "SELECT account FROM accounts WHERE id = ?1 OR memory_id = ?1"
            " ORDER BY id <> ?1 LIMIT 1",
            (account_id,),
        ).fetchone()
        return _ACCOUNT.decode(row[0]) if row else None

    def accounts_of(self, person_id: str) -> list[V1Account]:
        """Return the accounts of one user."""
        rows = self._db.execute(
            "SELECT account FROM accounts WHERE memory_id = ? AND NOT is_agent ORDER BY id",
            (person_id,),
        )
        return [_ACCOUNT.decode(row[0]) for row in rows]

    def agent_accounts(self) -> Iterator[V1Account]:
        """Return the accounts of agents, by ID."""
        for row in self._db.execute("SELECT account FROM accounts WHERE is_agent ORDER BY id"):
            yield _ACCOUNT.decode(row[0])

    def damage(self, collections: Collection[str]) -> list[V1Damage]:
        """Return repeated IDs, and missing collections."""
        found = []
        for collection in V1_COLLECTIONS:
            where = "WHERE collection = ? AND bad = 2"
            (count,) = self._db.execute(f"SELECT count(*) FROM documents {where}", (collection,))
            if not count[0]:
                continue
            ids = self._db.execute(
                f"SELECT id FROM documents {where} ORDER BY id LIMIT 10", (collection,)
            ).fetchall()
            found.append(repeated_ids(collection, count[0], [row[0] for row in ids]))
        for missing, (referrers, query) in _REFERENCES.items():
            if missing in collections:
                continue
            (count,) = self._db.execute(query)
            if count[0]:
                found.append(no_collection(missing, count[0], referrers))
        return found

    def used(self, agent_id: str, scope: str) -> Iterator[V1StagedDocument]:
        """Return what lists add to a scope."""
        return self._documents(
            "JOIN uses u ON u.memory = d.number"
            " WHERE u.agent = ? AND u.role IN ('fact', 'pending') AND u.scope = ?",
            (agent_id, scope),
        )

    def has_accounts(self, *, agents: bool) -> bool:
        """Return whether there are accounts."""
        row = self._db.execute("SELECT 1 FROM accounts WHERE is_agent = ? LIMIT 1", (agents,))
        return row.fetchone() is not None

    def unknown_fields(self) -> dict[str, int]:
        """Return the count of each unknown field."""
        return dict(sorted(self._fields.items()))

    def find(self, ref: V1Ref) -> V1StagedDocument | None:
        """Return one document."""
        query = "WHERE d.collection = ? AND d.id = ? AND b.hash = ? LIMIT 1"
        return next(self._documents(query, (ref.collection, ref.id, ref.content_hash)), None)

    def shards(self, agent_id: str) -> list[V1StagedDocument]:
        """Return the agent's shards."""
        query = "WHERE d.agent = ? AND d.collection = ? AND NOT d.bad"
        found = list(self._documents(query, (agent_id, SHARDS)))
        return sorted(found, key=lambda each: (_read_created_at(each), each.id))

    def user_texts(self, agent_id: str) -> Iterator[V1StagedDocument]:
        """Return the texts of users."""
        query = "WHERE d.agent = ? AND d.collection = ? AND NOT d.bad ORDER BY d.owner, d.at, d.id"
        return self._documents(query, (agent_id, USER_TEXTS))

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

    def facts(self, agent_id: str) -> Iterator[tuple[str, int, int, V1StagedDocument]]:
        """Return the listed facts."""
        for scope, times, spread, *row in self._db.execute(
            f"SELECT u.scope, u.times, u.spread, {_STAGED} FROM uses u"
            " JOIN documents d ON d.number = u.memory JOIN bodies b ON b.number = d.number"
            " WHERE u.agent = ? AND u.role = 'fact' ORDER BY u.scope, u.text, u.at, u.id",
            (agent_id,),
        ):
            yield scope, times, spread, _decode_staged(row)

    def pending_scopes(self, agent_id: str) -> list[tuple[str, list[int]]]:
        """Return scopes with the documents of their lists."""
        scopes: dict[str, list[int]] = {}
        for scope, lister in self._db.execute(
            "SELECT DISTINCT scope, lister FROM uses WHERE agent = ? AND role = 'pending'"
            " ORDER BY scope, lister",
            (agent_id,),
        ):
            scopes.setdefault(scope, []).append(lister)
        return list(scopes.items())

    def pending(self, lister: int, scope: str) -> Iterator[tuple[int, int, V1StagedDocument]]:
        """Return one list, in order."""
        for times, spread, *row in self._db.execute(
            f"SELECT u.times, u.spread, {_STAGED} FROM uses u"
            " JOIN documents d ON d.number = u.memory JOIN bodies b ON b.number = d.number"
            " WHERE u.lister = ? AND u.role = 'pending' AND u.scope = ? ORDER BY u.place",
            (lister, scope),
        ):
            yield times, spread, _decode_staged(row)

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

    def list_absorbed_scopes(self, agent_id: str) -> list[str]:
        """Return the scopes with absorbed memories."""
        query = (
            "SELECT DISTINCT scope FROM leftovers WHERE agent = ? AND fate = 'absorbed' ORDER BY 1"
        )
        return [row[0] for row in self._db.execute(query, (agent_id,))]

    def text_written_at(self, agent_id: str, scope: str) -> datetime | None:
        """Return when a scope's text was last written."""
        kind, _, owner = scope.partition("/")
        where, values = "collection = ? AND scope = ?", [agent_id, SHARDS, scope]
        if kind == "user":
            where, values = "collection = ? AND owner = ?", [agent_id, USER_TEXTS, owner]
        row = self._db.execute(
            f"SELECT max(at) FROM documents WHERE agent = ? AND {where} AND NOT bad", values
        ).fetchone()
        return _moment(row[0])

    def find_absorbed(self, agent_id: str, scope: str) -> Iterator[V1StagedDocument]:
        """Return the absorbed memories of one scope."""
        return self._documents(
            "JOIN leftovers l ON l.number = d.number"
            " WHERE l.agent = ? AND l.fate = 'absorbed' AND l.scope = ? ORDER BY l.id, d.number",
            (agent_id, scope),
        )

    def find_refused(self, lister: int) -> Iterator[tuple[str, str]]:
        """Return the invalid items in the lists of a document."""
        yield from self._db.execute(
            "SELECT id, verdict FROM refused WHERE lister = ? ORDER BY role, place", (lister,)
        )

    def episodes(self, agent_id: str) -> Iterator[V1StagedDocument]:
        """Return the agent's episodes."""
        query = "WHERE d.agent = ? AND d.collection = ? AND d.kind = 'episode' AND NOT d.bad"
        return self._documents(f"{query} ORDER BY d.id", (agent_id, MEMORIES))

    def leftovers(self, agent_id: str) -> Iterator[tuple[str, V1StagedDocument]]:
        """Return unlisted and invalid documents."""
        for fate, *row in self._db.execute(
            f"SELECT l.fate, {_STAGED} FROM leftovers l"
            " JOIN documents d ON d.number = l.number JOIN bodies b ON b.number = d.number"
            " WHERE l.agent = ? ORDER BY l.collection, l.id, l.number",
            (agent_id,),
        ):
            yield fate, _decode_staged(row)

    def last_activity(self, agent_id: str, scope: str) -> datetime | None:
        """Return the time of the last write."""
        return _moment(v1_settling.last_activity(self._db, agent_id, scope))

    def _documents(self, query: str, values: tuple[Any, ...]) -> Iterator[V1StagedDocument]:
        for row in self._db.execute(
            f"SELECT {_STAGED} FROM documents d JOIN bodies b ON b.number = d.number {query}",
            values,
        ):
            yield _decode_staged(row)


def _decode_staged(row: Sequence[Any]) -> V1StagedDocument:
    number, collection, document_id, digest, body, notes = row
    return V1StagedDocument(
        number=number,
        collection=collection,
        id=document_id,
        hash=digest,
        document=_BODY.decode(body) if body is not None else None,
        notes=_NOTES.decode(notes) if notes is not None else (),
    )


def _read_created_at(staged: V1StagedDocument) -> datetime:
    assert staged.document is not None
    return staged.document.created_at


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else EPOCH + timedelta(milliseconds=milliseconds)
