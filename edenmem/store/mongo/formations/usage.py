"""Sum the cost of models: of formations by their records, of other work by usage entries."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
from pymongo.errors import DuplicateKeyError

from edenmem.models.formation import UsageEntry, calls_from, is_damaged_usage
from edenmem.models.ids import utc_now
from edenmem.models.integrity import Finding
from edenmem.models.statistics import UsageOnDay
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import EPOCH, Filter, count_or_zero, object_id, tokens_or_zero

#: The sums of whole numbers.
_COUNTS = ("calls", "input_tokens", "output_tokens", "unpriced", "estimated")


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

    def usage_by_day(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Sequence[UsageOnDay]:
        """See `Usage.usage_by_day`."""
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

    def find_damaged_usage(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        """See `Usage.find_damaged_usage`."""
        owner: Filter = {} if agent_id is None else {"agent_id": object_id(agent_id)}
        for kind, (collection, field) in self._places().items():
            for document in collection.find(owner, {field: 1, "agent_id": 1}):
                if is_damaged_usage(document.get(field)):
                    yield Finding(
                        target_type=kind,
                        target_id=str(document["_id"]),
                        detail="has invalid token counts",
                        agent_id=str(document.get("agent_id")),
                    )

    def repair_usage(self, findings: Sequence[Finding]) -> int:
        """See `Usage.repair_usage`."""
        repaired = 0
        for finding in findings:
            collection, field = self._places()[finding.target_type]
            key: Filter = {"_id": object_id(finding.target_id)}
            document = collection.find_one(key, {field: 1})
            stored = None if document is None else document.get(field)
            if not is_damaged_usage(stored):
                continue
            # Calls are append-only, so the same length means the same list.
            if isinstance(stored, list):
                key[f"{field}.{len(stored)}"] = {"$exists": False}
            calls = msgspec.to_builtins(list(calls_from(stored)))
            repaired += collection.update_one(key, {"$set": {field: calls}}) > 0
        return repaired

    def _places(self) -> dict[str, tuple[Collection, str]]:
        """Map the target type of a finding to the collection and field of its calls."""
        return {"formation": (self._db.formations, "usage"), "usage": (self._db.usage, "calls")}


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
