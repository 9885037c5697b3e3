"""What was forgotten, and the refusal of what would bring it back."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pymongo import UpdateOne

from edenmem.models.forgetting import Forgetting
from edenmem.models.ids import utc_now
from edenmem.models.records import AuditEntry
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.filters import Filter, object_id
from edenmem.store.mongo.core.transactions import Transaction, TransactionsPart
from edenmem.store.mongo.memory.history import audit_document

#: Every document, by the index of ids.
ALL: Filter = {"_id": {"$ne": None}}


class ForgettingsPart(TransactionsPart):
    """Keeps forgettings: hashes, times and counts."""

    def begin_forgetting(self, forgetting: Forgetting) -> Forgetting:
        """See `edenmem.store.protocol.erasure.Erasing.begin_forgetting`."""
        key, now = {"_id": object_id(forgetting.id)}, utc_now()
        new = {"begun_at": forgetting.begun_at, "counts": forgetting.counts}

        def begin(transaction: Transaction) -> Forgetting:
            # Exclusive: what is applied from now on is refused, and the rest is there to be erased.
            transaction.guard(exclusive=True)
            is_open = any(transaction.find(names.FORGETTINGS, {**key, "closed_at": None}))
            begun = {} if is_open else new
            update = UpdateOne(
                key,
                {
                    "$set": {"kind": forgetting.kind, "closed_at": None, "updatedAt": now, **begun},
                    "$addToSet": {"blocks": {"$each": list(forgetting.blocks)}},
                    "$setOnInsert": {"createdAt": now},
                },
                upsert=True,
            )
            transaction.write(names.FORGETTINGS, [update])
            return _forgetting(transaction.find(names.FORGETTINGS, key)[0])

        return self._transact(begin)

    def forgettings(self) -> list[Forgetting]:
        """See `edenmem.store.protocol.erasure.Erasing.forgettings`."""
        found = [_forgetting(document) for document in self._forgettings.find(ALL)]
        found.sort(key=lambda one: (-one.begun_at.timestamp(), one.id))
        return sorted(found, key=lambda one: one.closed_at is not None)

    def close_forgetting(
        self, forgetting_id: str, *, at: datetime, counts: dict[str, int], entry: AuditEntry
    ) -> None:
        """See `edenmem.store.protocol.erasure.Erasing.close_forgetting`."""
        # The entry first: one that is cut off is closed again, with the same entry.
        self._audit.insert_new([audit_document(entry)])
        self._forgettings.update_one(
            {"_id": object_id(forgetting_id), "closed_at": None},
            {"$set": {"closed_at": at, "counts": counts, "updatedAt": utc_now()}},
        )


def _texts(value: Any) -> Iterable[str]:
    return value if isinstance(value, list) else ()


def _forgetting(document: Document) -> Forgetting:
    counts: Filter = document.get("counts") or {}
    return Forgetting(
        id=str(document["_id"]),
        kind=document["kind"],
        begun_at=codec.require_moment(document, "begun_at"),
        closed_at=codec.moment(document.get("closed_at")),
        blocks=tuple(sorted(_texts(document.get("blocks")))),
        counts={str(kind): codec.number(number) for kind, number in counts.items()},
    )
