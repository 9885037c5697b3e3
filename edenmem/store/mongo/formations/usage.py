"""What models cost: of formations by their records, of other work by entries of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from pymongo.errors import DuplicateKeyError

from edenmem.models.formation import CallUsage, UsageEntry, UsageTotal
from edenmem.models.ids import utc_now
from edenmem.models.statistics import UsageOnDay
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import Filter, object_id
from edenmem.store.mongo.core.merging import EPOCH
from edenmem.store.mongo.core.sums import count_or_zero

#: What a model's calls are added up to.
_SUMS = ("calls", "input_tokens", "output_tokens", "cost", "unpriced")


class MongoUsage:
    """Implements `edenmem.store.protocol.formations.Usage`."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    def add_usage(self, entry: UsageEntry) -> None:
        """See `Usage.add_usage`."""
        try:
            self._db.usage.insert_one(usage_document(entry))
        except DuplicateKeyError:
            return

    def sum_usage(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> list[UsageTotal]:
        """See `Usage.sum_usage`."""
        totals: dict[str, Counter[str]] = {}
        for (_, model), total in self._sum_by_day(agent_id, since).items():
            totals.setdefault(model, Counter()).update(total)
        return [UsageTotal(model=model, **_fields(totals[model])) for model in sorted(totals)]

    def usage_by_day(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Sequence[UsageOnDay]:
        """See `Usage.usage_by_day`."""
        totals = self._sum_by_day(agent_id, since)
        return [
            UsageOnDay(day=day, model=model, **_fields(totals[day, model]))
            for day, model in sorted(totals)
        ]

    def _sum_by_day(
        self, agent_id: str | None, since: datetime | None
    ) -> dict[tuple[str, str], Counter[str]]:
        owner: Filter = {} if agent_id is None else {"agent_id": object_id(agent_id)}
        totals: dict[tuple[str, str], Counter[str]] = {}
        for collection, at, calls in (
            (self._db.formations, "created_at", "usage"),
            (self._db.usage, "at", "calls"),
        ):
            match = {**owner, at: {"$gte": since or EPOCH}}
            for row in collection.aggregate(_usage_pipeline(match, at, calls)):
                key = str(row["_id"]["day"]), str(row["_id"].get("model"))
                total = totals.setdefault(key, Counter())
                for name in _SUMS:
                    total[name] += row[name] or 0
        return totals


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


def _usage_pipeline(match: Filter, at: str, calls: str) -> list[Document]:
    cost = {"$ifNull": [f"${calls}.cost", None]}
    return [
        {"$match": match},
        {"$project": {calls: 1, at: 1}},
        {"$unwind": f"${calls}"},
        {
            "$group": {
                "_id": {"day": day_of(f"${at}"), "model": f"${calls}.model"},
                "calls": {"$sum": 1},
                "input_tokens": {"$sum": count_or_zero(f"${calls}.input_tokens")},
                "output_tokens": {"$sum": count_or_zero(f"${calls}.output_tokens")},
                "cost": {"$sum": count_or_zero(f"${calls}.cost")},
                "unpriced": {"$sum": {"$cond": [{"$eq": [cost, None]}, 1, 0]}},
            }
        },
    ]


def _fields(total: Counter[str]) -> dict[str, Any]:
    whole = {name: int(total[name]) for name in _SUMS if name != "cost"}
    return {**whole, "cost": float(total["cost"])}


def day_of(field: str) -> dict[str, Any]:
    """The expression for the day of a time."""
    return {"$dateToString": {"format": "%Y-%m-%d", "date": field}}
