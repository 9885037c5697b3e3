"""Compute statistics of memory, each in one pass over a collection."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from edenmem.models.integrity import Finding
from edenmem.models.scope import ScopeKind
from edenmem.models.statistics import FactUse, FormedOnDay, KindCount, MemoryCounts
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import EPOCH, EVERYTHING, Filter, count_or_zero, object_id
from edenmem.store.mongo.formations.usage import day_of

_ACCESSES = count_or_zero("$access_count")
#: Sums over facts.
_USE: Document = {
    "never": {"$sum": {"$cond": [{"$gt": [_ACCESSES, 0]}, 0, 1]}},
    "accesses": {"$sum": _ACCESSES},
    "unconfirmed": {"$sum": {"$cond": [{"$gt": ["$unconfirmed", ""]}, 1, 0]}},
}
#: Sums over reflections.
_PENDING: Document = {"pending": {"$sum": {"$cond": [{"$eq": ["$absorbed", False]}, 1, 0]}}}


class MongoStatistics:
    """Implements `edenmem.store.protocol.walk.Statistics`."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    def counts(self, *, agent_id: str | None = None, since: datetime | None = None) -> MemoryCounts:
        days: dict[str, Counter[str]] = {}
        kinds: dict[str, Counter[str]] = {kind.value: Counter() for kind in ScopeKind}
        use: Counter[str] = Counter()
        match = EVERYTHING if agent_id is None else {"agent_id": object_id(agent_id)}
        for name, collection, sums in (
            ("facts", self._db.facts, _USE),
            ("reflections", self._db.reflections, _PENDING),
        ):
            for row in _group(collection, match, since or EPOCH, sums):
                counts = {name: int(row.pop("count")), **{key: int(row[key]) for key in sums}}
                use.update(counts)
                kind, day = row["_id"].get("kind"), row["_id"].get("day")
                if isinstance(kind, list):  # of an old document, from narrow to broad
                    kind = next(reversed(kind), None)
                if isinstance(kind, str) and kind in kinds:
                    kinds[kind].update(counts)
                if day:
                    days.setdefault(day, Counter()).update({name: counts[name]})
        return MemoryCounts(
            days=tuple(
                FormedOnDay(day=day, facts=days[day]["facts"], reflections=days[day]["reflections"])
                for day in sorted(days)
            ),
            kinds=tuple(
                KindCount(
                    kind=kind,
                    **{name: kinds[kind][name] for name in ("facts", "reflections", "pending")},
                )
                for kind in ScopeKind
            ),
            use=FactUse(**{name: use[name] for name in ("facts", *_USE)}),
        )

    def count_rejections(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Mapping[str, int]:
        match: Document = {"created_at": {"$gte": since or EPOCH}}
        if agent_id is not None:
            match["agent_id"] = object_id(agent_id)
        pipeline: list[Document] = [
            {"$match": {**match, "decisions.action": "REJECTED"}},
            {"$unwind": "$decisions"},
            {"$match": {"decisions.action": "REJECTED"}},
            {"$group": {"_id": "$decisions.rule", "count": {"$sum": 1}}},
        ]
        found = self._db.formations.aggregate(pipeline)
        return dict(sorted((str(row["_id"] or ""), int(row["count"])) for row in found))

    def miscounts(self) -> Iterator[Finding]:
        return iter(())  # there are no stored counters

    def recount(self) -> int:
        return 0


def _group(
    collection: Collection, match: Filter, since: datetime, sums: Document
) -> Iterator[Document]:
    """Yield sums by kind of scope, and by day from ``since``; "" for earlier ones."""
    dated: dict[str, Any] = {"$ifNull": ["$said_at", "$formed_at"]}
    is_dated = {"$and": [{"$gte": [dated, since]}, {"$eq": [{"$type": dated}, "date"]}]}
    key = {"kind": "$scope", "day": {"$cond": [is_dated, day_of(dated), ""]}}
    group = {"_id": key, "count": {"$sum": 1}, **sums}
    return collection.aggregate([{"$match": match}, {"$group": group}])
