"""Read everything stored, for backups, checks and surveys, and load backups."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from pymongo import DeleteOne

from edenmem.models.backup import Document, LoadResult, Record, RecordKind, Selection
from edenmem.models.integrity import PresenceKind
from edenmem.models.records import AuditEntry
from edenmem.models.scope import Scope
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import Collection
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.extended import from_json, to_json
from edenmem.store.mongo.core.filters import NOT_DELETED, Filter, id_parts, object_id
from edenmem.store.mongo.core.readiness import Readiness
from edenmem.store.mongo.core.transactions import Transaction, Transactions
from edenmem.store.mongo.memory.history import audit_document
from edenmem.store.mongo.search.slots import Slots
from edenmem.store.mongo.walk.documents import walk_documents
from edenmem.store.mongo.walk.loader import RecordLoader
from edenmem.store.mongo.walk.sources import SOURCES
from edenmem.store.protocol.host import Host
from edenmem.store.protocol.memory import Memory
from edenmem.store.protocol.walk import ALL

_ONLY_ID = {"_id": 1}

#: The collections whose unreadable documents can be set aside.
_COLLECTIONS = {
    "fact": names.FACTS,
    "reflection": names.REFLECTIONS,
    "consolidation": names.CONSOLIDATED,
}


class MongoWalk:
    """Implements `edenmem.store.protocol.walk.Walk`."""

    def __init__(
        self,
        db: Connection,
        readiness: Readiness,
        transactions: Transactions,
        slots: Slots,
        host: Host,
        memory: Memory,
    ) -> None:
        self._db = db
        self._transactions = transactions
        self._loader = RecordLoader(db, readiness, slots, host, memory)

    def documents(
        self,
        kinds: Sequence[RecordKind],
        selection: Selection = ALL,
        *,
        with_vectors: bool = False,
        snapshot: bool = False,
        unwritten: bool = False,
    ) -> Iterator[Document]:
        return walk_documents(
            self._db, kinds, selection, with_vectors=with_vectors, unwritten=unwritten
        )

    def present(self, kind: PresenceKind, ids: Sequence[str]) -> set[str]:
        match kind:
            case "agent":
                return self._with_ids(self._db.users, ids, {"type": "agent", **NOT_DELETED})
            case "person":
                return self._persons(ids)
            case "session":
                return self._with_ids(self._db.sessions, ids, NOT_DELETED)
            case "group":
                groups = list(dict.fromkeys(ids))
                living = {"group_id": {"$in": groups}, **NOT_DELETED}
                return set(self._db.sessions.distinct("group_id", living))
            case "message":
                return self._with_ids(self._db.messages, ids)
            case "reflection":
                return self._with_ids(self._db.reflections, ids)
            case "consolidation":
                return self._with_ids(self._db.consolidated, ids)

    def _with_ids(
        self, collection: Collection, ids: Sequence[str], condition: Filter | None = None
    ) -> set[str]:
        found = self._db.find_by_ids(collection, ids, _ONLY_ID, **(condition or {}))
        return {str(document["_id"]) for document in found}

    def _persons(self, ids: Sequence[str]) -> set[str]:
        person: Filter = {"type": "user", **NOT_DELETED}
        found = self._with_ids(self._db.users, ids, person)
        # Few people lack an account with their own ID; these are found through linked accounts.
        aliases = [
            {**person, "eden_user_id": {"$in": [*part, *map(str, part)]}}
            for part in id_parts(each for each in ids if each not in found)
        ]
        for account in self._db.find_all(self._db.users, aliases, {"eden_user_id": 1}):
            found.add(str(account["eden_user_id"]))
        return found

    def set_aside(self, entry: AuditEntry) -> bool:
        collection = _COLLECTIONS.get(entry.target_type)
        if collection is None:
            return False

        def move(transaction: Transaction) -> bool:
            key = {"_id": object_id(entry.target_id)}
            found = transaction.find(collection, key)
            if not found or _is_readable(entry.target_type, found[0]):
                return False
            kept = msgspec.structs.replace(
                entry,
                scope=_guess_scope(found[0]),
                before={"content": json.dumps(to_json(found[0]), ensure_ascii=False)},
            )
            transaction.write(collection, [DeleteOne(key)])
            transaction.insert(names.AUDIT, [audit_document(kept)])
            return True

        return self._transactions.run(move)

    def put_back(self, entry: AuditEntry, undo: AuditEntry) -> bool:
        document = from_json(json.loads((entry.before or {})["content"]))
        collection = _COLLECTIONS[entry.target_type]

        def restore(transaction: Transaction) -> bool:
            if transaction.find(collection, {"_id": document["_id"]}, {"_id": 1}):
                return False
            transaction.insert(collection, [document])
            transaction.insert(names.AUDIT, [audit_document(undo)])
            return True

        return self._transactions.run(restore)

    def load(
        self, kind: RecordKind, records: Sequence[Record], *, dry_run: bool = False
    ) -> list[LoadResult]:
        return self._loader.load(kind, records, dry_run=dry_run)


def _is_readable(kind: str, document: dict[str, Any]) -> bool:
    try:
        SOURCES[RecordKind(kind)].decode(document)
    except codec.UNREADABLE:
        return False
    return True


def _guess_scope(document: dict[str, Any]) -> Scope | None:
    """Return the scope of a user or session that the document names, whose erasure removes it."""
    agent_id = codec.text_id(document.get("agent_id"))
    owners: tuple[tuple[str, Callable[[str, Any], Scope]], ...] = (
        ("user_id", Scope.user),
        ("session_id", Scope.session),
    )
    for field, scope in owners:
        owner = codec.text_id(document.get(field))
        if agent_id and owner:
            return scope(agent_id, owner)
    return None
