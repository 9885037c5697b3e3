"""Set unreadable documents aside, in entries of the log, and put them back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
from pymongo import DeleteOne

from edenmem.models.backup import RecordKind
from edenmem.models.records import AuditEntry
from edenmem.models.scope import Scope
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.extended import from_json, to_json
from edenmem.store.mongo.core.filters import object_id
from edenmem.store.mongo.core.transactions import Transaction, Transactions
from edenmem.store.mongo.memory.history import audit_document
from edenmem.store.mongo.walk.sources import SOURCES

_COLLECTIONS = {
    "fact": names.FACTS,
    "reflection": names.REFLECTIONS,
    "consolidation": names.CONSOLIDATED,
}


def set_aside(transactions: Transactions, entry: AuditEntry) -> bool:
    """Move a document into the entry about it; see `Walk.set_aside`."""
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

    return transactions.run(move)


def put_back(transactions: Transactions, entry: AuditEntry, undo: AuditEntry) -> bool:
    """Restore the document of an entry; see `Walk.put_back`."""
    document = from_json(json.loads((entry.before or {})["content"]))
    collection = _COLLECTIONS[entry.target_type]

    def restore(transaction: Transaction) -> bool:
        if transaction.find(collection, {"_id": document["_id"]}, {"_id": 1}):
            return False
        transaction.insert(collection, [document])
        transaction.insert(names.AUDIT, [audit_document(undo)])
        return True

    return transactions.run(restore)


def _is_readable(kind: str, document: Document) -> bool:
    try:
        SOURCES[RecordKind(kind)].decode(document)
    except codec.UNREADABLE:
        return False
    return True


def _guess_scope(document: Document) -> Scope | None:
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
