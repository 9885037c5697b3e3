"""Sum the cost of models: of formations by their records, of other work by usage entries."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from pymongo.errors import DuplicateKeyError

from edenmem.models.formation import UsageEntry, calls_from
from edenmem.models.ids import utc_now
from edenmem.models.statistics import UsageOnDay
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import EPOCH, Filter, count_or_zero, object_id, tokens_or_zero

#: The sums of whole numbers.
_COUNTS = ("calls", "input_tokens", "output_tokens", "unpriced", "estimated")


class MongoUsage:
    """Implements `edenmem.store.protocol.formations.Usage`."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    def add_usage(self, entry: UsageEntry) -> None:
        try:
            self._db.usage.insert_one(usage_document(entry))
        except DuplicateKeyError:
            return

    def usage_by_day(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Sequence[UsageOnDay]:
        owner: Filter = {} if agent_id is None else {"agent_id": object_id(agent_id)}
        totals: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for collection, at, calls in (
            (self._db.formations, "created_at", "usage"),
            (self._db.usage, "at", "calls"),
        ):
            match = {**owner, at: {"$gte": since or EPOCH}}
            for row in collection.aggregate(_usage_pipeline(match, at, calls)):
                total = totals[str(row["_id"]["day"]), str(row["_id"].get("model"))]
                total.update({name: row[name] or 0 for name in (*_COUNTS, "cost")})
        return [
            UsageOnDay(
                day=day,
                model=model,
                cost=float(totals[day, model]["cost"]),
                **{name: int(totals[day, model][name]) for name in _COUNTS},
            )
            for day, model in sorted(totals)
        ]


def usage_document(entry: UsageEntry) -> Document:
    """Return a new document for an entry."""
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
    """Return the entry of a document."""
    return UsageEntry(
        id=str(document["_id"]),
        at=codec.require_moment(document, "at"),
        agent_id=str(document["agent_id"]),
        work=codec.text(document.get("work")),
        calls=calls_from(document.get("calls")),
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
                "input_tokens": {"$sum": tokens_or_zero(f"${calls}.input_tokens")},
                "output_tokens": {"$sum": tokens_or_zero(f"${calls}.output_tokens")},
                "cost": {"$sum": count_or_zero(f"${calls}.cost")},
                "unpriced": {"$sum": {"$cond": [{"$eq": [cost, None]}, 1, 0]}},
                "estimated": {"$sum": {"$cond": [{"$eq": [f"${calls}.estimated", True]}, 1, 0]}},
            }
        },
    ]


def day_of(field: str | dict[str, Any]) -> dict[str, Any]:
    """Return the expression for the day of a time."""
    return {"$dateToString": {"format": "%Y-%m-%d", "date": field}}
