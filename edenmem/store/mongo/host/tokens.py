"""Store access tokens and daily usage, all by ``_id``."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from datetime import date, timedelta

from pymongo import InsertOne, UpdateOne
from pymongo.errors import DuplicateKeyError

from edenmem.models.access import AccessToken, DailyUse
from edenmem.models.ids import utc_now
from edenmem.models.records import AuditEntry
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import EVERYTHING, object_id, object_ids, optional_id
from edenmem.store.mongo.core.transactions import Transaction, Transactions
from edenmem.store.mongo.memory.history import audit_document


class MongoTokens:
    """Implements `edenmem.store.protocol.host.Tokens`."""

    def __init__(self, db: Connection, transactions: Transactions) -> None:
        self._db = db
        self._transactions = transactions

    def add(self, token: AccessToken, entry: AuditEntry) -> bool:
        try:
            self._db.tokens.insert_one(_document(token))
        except DuplicateKeyError:
            return False
        self._db.audit.insert_new([audit_document(entry)])
        return True

    def tokens(self) -> list[AccessToken]:
        found = [_token(document) for document in self._db.tokens.find(EVERYTHING)]
        return sorted(found, key=lambda each: (each.name, each.id))

    def token(self, token_id: str) -> AccessToken | None:
        document = self._db.tokens.find_one({"_id": object_id(token_id)})
        return None if document is None else _token(document)

    def move(
        self, before: AccessToken, after: AccessToken, entry: AuditEntry | None = None
    ) -> bool:
        old = _document(before)
        fields = {name: new for name, new in _document(after).items() if new != old[name]}
        update = UpdateOne(
            {"_id": object_id(before.id), "digest": before.digest},
            {"$set": {**fields, "updatedAt": utc_now()}},
        )

        def move(transaction: Transaction) -> bool:
            if not transaction.write(names.TOKENS, [update]):
                return False
            if entry is not None:
                transaction.write(names.AUDIT, [InsertOne(audit_document(entry))])
            return True

        return self._transactions.run(move)

    def remove(self, token_id: str, entry: AuditEntry) -> bool:
        if self._db.tokens.count({"_id": object_id(token_id)}, limit=1) == 0:
            return False
        # The entry first: an interrupted removal is repeated with the same entry.
        self._db.audit.insert_new([audit_document(entry)])
        return self._db.tokens.delete_one({"_id": object_id(token_id)})

    def add_use(self, holder: str, day: str, use: DailyUse) -> None:
        now = utc_now()
        counted = {
            "$inc": {"tokens": use.tokens, "cost": use.cost},
            "$set": {"updatedAt": now},
            "$setOnInsert": {"createdAt": now},
        }
        key = {"_id": f"{day}/{holder}"}
        try:
            self._db.daily_use.update_one(key, counted, upsert=True)
        except DuplicateKeyError:  # another process created it concurrently
            self._db.daily_use.update_one(key, counted, upsert=True)
        previous = (date.fromisoformat(day) - timedelta(days=1)).isoformat()
        self._db.daily_use.delete_many({"_id": {"$lt": previous}})

    def daily_use(self, holder: str, day: str) -> DailyUse:
        document = self._db.daily_use.find_one({"_id": f"{day}/{holder}"}) or {}
        cost = document.get("cost")
        return DailyUse(
            tokens=codec.number(document.get("tokens")),
            cost=float(cost) if isinstance(cost, int | float) else 0.0,
        )


def _document(token: AccessToken) -> Document:
    return {
        "_id": object_id(token.id),
        "name": token.name,
        "digest": token.digest,
        "agents": object_ids(token.agents),
        "user_id": optional_id(token.user_id),
        "can_write": token.can_write,
        "created_by": token.created_by,
        "expires_at": token.expires_at,
        "last_used_at": token.last_used_at,
        "createdAt": token.created_at,
        "updatedAt": token.created_at,
    }


def _token(document: Document) -> AccessToken:
    """Read a token; one with damaged limits gives access to nothing."""
    owner, end = document.get("user_id", ""), document.get("expires_at", "")
    is_damaged = owner == "" or (end is not None and codec.moment(end) is None)
    return AccessToken(
        id=str(document["_id"]),
        name=codec.text(document.get("name")),
        digest=codec.text(document.get("digest")),
        agents=() if is_damaged else codec.text_ids(document.get("agents")),
        user_id=codec.text_id(owner),
        can_write=document.get("can_write") is True,
        created_at=codec.require_moment(document, "createdAt"),
        created_by=codec.text(document.get("created_by")),
        expires_at=codec.moment(end),
        last_used_at=codec.moment(document.get("last_used_at")),
    )
