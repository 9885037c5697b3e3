"""Multi-document transactions: how one is run, and what may be done inside.

Reads and writes of a transaction see one snapshot, and the server refuses the second of two
transactions that write the same document. That leaves write skew: two that each read what the other
writes. Therefore each transaction first writes what guards its reads: the revision of each scope
that it may change, and one of `STRIPES` documents. Whoever comes second is refused there, before
it has read anything in vain. A transaction that changes what every other one
relies on (a forgetting that begins, an account that comes or goes) is exclusive: it writes all
stripes, and so none commits beside it.
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
from edenmem.store.mongo.core.collection import BATCH, Document, Sort
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.errors import raise_whole, translate_errors
from edenmem.store.mongo.core.filters import IN_LIMIT, owner_fields, policy_id
from edenmem.store.mongo.core.readiness import Readiness

_T = TypeVar("_T")

#: How many documents share the guard, so that few transactions meet on one.
STRIPES = 32


class Transaction:
    """What may be done inside a transaction: finding by a filter, and writing documents of
    collections that exist. Errors of the driver pass untouched, since their labels decide whether
    it runs the transaction again."""

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
        """Find documents as they were when the transaction began, and as it changed them."""
        cursor = self._database[collection].find(
            filter,
            projection,
            sort=list(sort) or None,
            limit=limit,
            batch_size=BATCH,
            session=self._session,
        )
        return list(cursor)

    def insert(self, collection: str, documents: Sequence[Document]) -> None:
        """Insert documents."""
        if documents:
            with raise_whole():
                self._database[collection].insert_many(documents, session=self._session)

    def write(self, collection: str, operations: Sequence[Any]) -> int:
        """Carry out operations in order; return how many documents they matched or made."""
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
        """Let the revisions of scopes grow, and take a share of the guard.

        Args:
            scopes: What the transaction changes.
            accounts: Add no account beside another transaction that does.
            exclusive: Take all of the guard: nothing commits beside this transaction.
        """
        keys = [f"{stripe:02}" for stripe in (range(STRIPES) if exclusive else (self._stripe,))]
        if accounts or exclusive:
            keys.append("accounts")
        uses = {"$inc": {"uses": 1}}
        shares = [UpdateOne({"_id": f"guard/{key}"}, uses, upsert=True) for key in keys]
        self.write(names.MIGRATIONS, shares)
        self.touch(scopes)

    def touch(self, scopes: Iterable[Scope]) -> None:
        """Let the revisions of scopes grow."""
        touched = sorted(dict.fromkeys(scopes), key=lambda scope: scope.key)
        self.write(names.POLICIES, [revision_update(scope) for scope in touched])

    def abandon(self) -> None:
        """Take back what the transaction wrote, and end it."""
        self._session.abort_transaction()


def revision_update(scope: Scope) -> UpdateOne:
    """The update by which the revision of a scope grows."""
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
        """Run ``body`` in a transaction, again where the server says that it may succeed then.

        ``body`` does nothing but read and write through what it is given, so that it can be run
        again. What it raises takes back what it wrote.

        Raises:
            DuplicateKeyError, BulkWriteError: pymongo's; a unique index refused a document.
            StoreError: whatever else went wrong, or the server has no transactions.
        """
        self._readiness.demand()
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
    """Let the revision of each scope grow, where no transaction does."""
    touched = list(scopes)
    for start in range(0, len(touched), IN_LIMIT):
        operations = [revision_update(scope) for scope in touched[start : start + IN_LIMIT]]
        while operations:
            # Two first touches of a scope at once: the loser finds the document there.
            _, failed = db.policies.bulk(operations)
            operations = [operations[place] for place in sorted(failed)]
