"""What models cost: of formations by their records, of other work by entries of its own."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from pymongo.errors import DuplicateKeyError

from edenmem.models.formation import CallUsage, UsageEntry, UsageTotal
from edenmem.models.ids import utc_now
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.connection import Connected
from edenmem.store.mongo.core.filters import Filter, object_id
from edenmem.store.mongo.core.merging import EPOCH
from edenmem.store.mongo.core.sums import count_or_zero


class UsagePart(Connected):
    """Keeps and adds up calls."""

    def add_usage(self, entry: UsageEntry) -> None:
        """See `edenmem.store.protocol.store.Store.add_usage`."""
        try:
            self._usage.insert_one(usage_document(entry))
        except DuplicateKeyError:
            return

    def sum_usage(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> list[UsageTotal]:
        """See `edenmem.store.protocol.store.Store.usage`."""
        owner: Filter = {} if agent_id is None else {"agent_id": object_id(agent_id)}
        after = {"$gte": since or EPOCH}
        totals: dict[str, UsageTotal] = {}
        for collection, match, calls in (
            (self._formations, {**owner, "created_at": after}, "usage"),
            (self._usage, {**owner, "at": after}, "calls"),
        ):
            for row in collection.aggregate(_pipeline(match, calls)):
                model = str(row["_id"])
                totals[model] = _plus(totals.get(model) or UsageTotal(model=model), row)
        return [totals[model] for model in sorted(totals)]


def usage_document(entry: UsageEntry) -> Document:
    """A new document for an entry."""
    now = utc_now()
    return {
        "_id": object_id(entry.id),
        "at": entry.at,
        "agent_id": object_id(entry.agent_id),
        "work": entry.work,
        "calls": msgspec.to_builtins(list(entry.calls)),
        "createdAt": now,
        "updatedAt": now,
    }


def usage_from(document: Document) -> UsageEntry:
    """The entry that a document holds."""
    return UsageEntry(
        id=str(document["_id"]),
        at=codec.require_moment(document, "at"),
        agent_id=str(document["agent_id"]),
        work=codec.text(document.get("work")),
        calls=msgspec.convert(tuple(document.get("calls") or ()), tuple[CallUsage, ...]),
    )


def _pipeline(match: Filter, calls: str) -> list[dict[str, Any]]:
    cost = {"$ifNull": [f"${calls}.cost", None]}
    return [
        {"$match": match},
        {"$project": {f"{calls}": 1}},
        {"$unwind": f"${calls}"},
        {
            "$group": {
                "_id": f"${calls}.model",
                "calls": {"$sum": 1},
                "input_tokens": {"$sum": count_or_zero(f"${calls}.input_tokens")},
                "output_tokens": {"$sum": count_or_zero(f"${calls}.output_tokens")},
                "cost": {"$sum": count_or_zero(f"${calls}.cost")},
                "unpriced": {"$sum": {"$cond": [{"$eq": [cost, None]}, 1, 0]}},
            }
        },
    ]


def _plus(total: UsageTotal, row: dict[str, Any]) -> UsageTotal:
    return UsageTotal(
        model=total.model,
        calls=total.calls + int(row["calls"]),
        input_tokens=total.input_tokens + int(row["input_tokens"]),
        output_tokens=total.output_tokens + int(row["output_tokens"]),
        cost=total.cost + float(row["cost"] or 0),
        unpriced=total.unpriced + int(row["unpriced"]),
    )
