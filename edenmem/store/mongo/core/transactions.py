"""Multi-document transactions and their guard against write skew.

A transaction reads one snapshot, and the server refuses the second of two transactions that write
the same document. That permits write skew: two transactions that each read what the other writes.
Therefore each transaction first writes the guard of its reads: the revisions of the scopes that it
may change, and one of `STRIPES` documents. A conflicting transaction is refused there, before it
has read anything. A transaction that changes what all others rely on (a new forgetting, an added or
removed account) is exclusive: it writes all stripes, so no other can commit concurrently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from secrets import randbelow
from typing import Any, TypeVar

from pymongo import ReadPreference, UpdateOne
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from edenmem.models.ids import utc_now
from edenmem.models.scope import Scope
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import BATCH, Document, Sort, raise_whole, translate_errors
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import owner_fields, policy_id
from edenmem.store.mongo.core.readiness import Readiness

_T = TypeVar("_T")

#: Number of documents that share the guard, so that transactions rarely collide.
STRIPES = 32


class Transaction:
    """The operations allowed in a transaction, on existing collections only.

    Errors of the driver are not translated: their labels decide whether it retries.
    """

    def __init__(self, database: Any, session: Any, stripe: int) -> None:
        self._database = database
        self._session = session
        self._stripe = stripe

    def find(
        self,
        collection: str,
        filter: Mapping[str, Any],
        projection: Mapping[str, Any] | None = None,
        *,
        sort: Sort = (),
        limit: int = 0,
    ) -> list[Document]:
        """Find documents in the transaction's snapshot, including its own writes."""
        cursor = self._database[collection].find(
            filter,
            projection,
            sort=list(sort) or None,
            limit=limit,
            batch_size=BATCH,
            session=self._session,
        )
        return list(cursor)

    def write(self, collection: str, operations: Sequence[Any]) -> int:
        """Execute operations in order; return how many documents matched or were created."""
        if not operations:
            return 0
        with raise_whole():
            done = self._database[collection].bulk_write(list(operations), session=self._session)
        return int(
            done.matched_count + done.upserted_count + done.deleted_count + done.inserted_count
        )

    def guard(
        self, scopes: Iterable[Scope] = (), *, accounts: bool = False, exclusive: bool = False
    ) -> None:
        """Increment the revisions of scopes, and write a share of the guard.

        Args:
            scopes: The scopes that the transaction changes.
            accounts: Exclude other transactions that add accounts.
            exclusive: Write the whole guard: no other transaction commits concurrently.
        """
        keys = [f"{stripe:02}" for stripe in (range(STRIPES) if exclusive else (self._stripe,))]
        if accounts or exclusive:
            keys.append("accounts")
        uses = {"$inc": {"uses": 1}}
        shares = [UpdateOne({"_id": f"guard/{key}"}, uses, upsert=True) for key in keys]
        self.write(names.MIGRATIONS, shares)
        self.touch(scopes)

    def touch(self, scopes: Iterable[Scope]) -> None:
        """Increment the revisions of scopes."""
        touched = sorted(dict.fromkeys(scopes), key=lambda scope: scope.key)
        self.write(names.POLICIES, [revision_update(scope) for scope in touched])

    def abandon(self) -> None:
        """Roll back the transaction."""
        self._session.abort_transaction()


def revision_update(scope: Scope) -> UpdateOne:
    """Return the update that increments the revision of a scope."""
    now = utc_now()
    made = {**owner_fields(scope), "createdAt": now}
    return UpdateOne(
        {"_id": policy_id(scope)},
        {"$inc": {"revision": 1}, "$setOnInsert": made, "$set": {"updatedAt": now}},
        upsert=True,
    )


class Transactions:
    """Runs transactions."""

    def __init__(self, db: Connection, readiness: Readiness) -> None:
        self._db = db
        self._readiness = readiness

    def run(self, body: Callable[[Transaction], _T]) -> _T:
        """Run ``body`` in a transaction, and again on transient errors.

        ``body`` only reads and writes through its argument, so it can be repeated. An exception
        rolls the transaction back.

        Raises:
            DuplicateKeyError, BulkWriteError: pymongo's; a unique index refused a document.
            StoreError: any other failure, or the server has no transactions.
        """
        self._readiness.require()
        stripe = randbelow(STRIPES)
        with translate_errors(self._db.location), self._db.client.start_session() as session:
            database = self._db.database
            found: _T = session.with_transaction(
                lambda session: body(Transaction(database, session, stripe)),
                read_concern=ReadConcern("snapshot"),
                write_concern=WriteConcern("majority"),
                read_preference=ReadPreference.PRIMARY,
            )
        return found


def touch(db: Connection, scopes: Iterable[Scope]) -> None:
    """Increment the revisions of scopes, outside a transaction."""
    db.policies.upsert([revision_update(scope) for scope in scopes])
