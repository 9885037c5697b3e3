"""Compute statistics agent by agent, so that an index serves each count."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from edenmem.models.backup import RecordKind, Selection
from edenmem.models.ids import as_utc
from edenmem.models.integrity import Finding
from edenmem.models.memory import Fact
from edenmem.models.scope import ScopeKind
from edenmem.models.statistics import BufferAge, FactUse, FormedOnDay, KindCount
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import EPOCH, Filter, count_or_zero, dated, object_id
from edenmem.store.mongo.formations.usage import day_of
from edenmem.store.mongo.memory.overview import agents_with_memory, scope_of
from edenmem.store.mongo.walk.sources import SOURCES, narrow

_PENDING: Filter = {"absorbed": False}


class MongoStatistics:
    """Implements `edenmem.store.protocol.statistics.Statistics`."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    def count_by_day(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Sequence[FormedOnDay]:
        counts: dict[str, Counter[str]] = {"facts": Counter(), "reflections": Counter()}
        ranges = dated({"$gte": since or EPOCH})
        day = day_of({"$ifNull": ["$said_at", "$formed_at"]})
        by_day = {"$group": {"_id": day, "count": {"$sum": 1}}}
        for name, kind in (("facts", RecordKind.FACT), ("reflections", RecordKind.REFLECTION)):
            for wanted in self._agent_kinds(agent_id):
                for range in ranges:
                    for row in self._sum(kind, wanted, range, by_day):
                        counts[name][str(row["_id"])] += int(row["count"])
        return [
            FormedOnDay(day=day, **{name: counts[name][day] for name in counts})
            for day in sorted({day for each in counts.values() for day in each})
        ]

    def counts_by_kind(self, *, agent_id: str | None = None) -> Sequence[KindCount]:
        facts: Counter[ScopeKind] = Counter()
        reflections: Counter[ScopeKind] = Counter()
        pending: Counter[ScopeKind] = Counter()
        for wanted in self._agent_kinds(agent_id):
            (kind,) = wanted.kinds
            facts[kind] += self._count(RecordKind.FACT, wanted)
            reflections[kind] += self._count(RecordKind.REFLECTION, wanted)
            pending[kind] += self._count(RecordKind.REFLECTION, wanted, _PENDING)
        return [
            KindCount(
                kind=kind, facts=facts[kind], reflections=reflections[kind], pending=pending[kind]
            )
            for kind in ScopeKind
        ]

    def buffer_ages(self, *, agent_id: str | None = None, limit: int) -> Sequence[BufferAge]:
        return heapq.nsmallest(
            limit,
            (age for wanted in self._agent_kinds(agent_id) for age in self._ages(wanted)),
            key=lambda age: (age.oldest_at, age.scope),
        )

    def fact_use(self, *, agent_id: str | None = None) -> FactUse:
        facts = never = accesses = repeated = unconfirmed = 0
        for agent in self._agents_named(agent_id):
            wanted = Selection(agent_ids=(agent,))
            accessed = count_or_zero("$access_count")
            group = {
                "_id": None,
                "facts": {"$sum": 1},
                "never": {"$sum": {"$cond": [{"$gt": [accessed, 0]}, 0, 1]}},
                "accesses": {"$sum": accessed},
                "unconfirmed": {"$sum": {"$cond": [{"$gt": ["$unconfirmed", ""]}, 1, 0]}},
            }
            for row in self._sum(RecordKind.FACT, wanted, {}, {"$group": group}):
                facts += int(row["facts"])
                never += int(row["never"])
                accesses += int(row["accesses"])
                unconfirmed += int(row["unconfirmed"])
            twice = self._sum(
                RecordKind.FACT,
                wanted,
                {"hash": {"$type": "string"}},
                {"$group": {"_id": "$hash", "count": {"$sum": 1}}},
                {"$match": {"count": {"$gt": 1}}},
                {"$group": {"_id": None, "count": {"$sum": "$count"}}},
            )
            repeated += sum(int(row["count"]) for row in twice)
        return FactUse(
            facts=facts,
            never=never,
            accesses=accesses,
            repeated=repeated,
            unconfirmed=unconfirmed,
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

    def most_retrieved(self, *, agent_id: str | None = None, limit: int) -> Sequence[Fact]:
        order = [("access_count", -1), ("_id", 1)]
        retrieved: Filter = {"access_count": {"$gt": 0}}
        found = (
            fact
            for agent in self._agents_named(agent_id)
            for filter in narrow(RecordKind.FACT, Selection(agent_ids=(agent,)))
            for fact in codec.read_owned(
                codec.fact_from,
                self._db.facts.find(
                    {**filter, **retrieved}, codec.NO_VECTOR, sort=order, limit=limit
                ),
            )
        )
        return heapq.nsmallest(limit, found, key=lambda fact: (-fact.access_count, fact.id))

    def miscounts(self) -> Iterator[Finding]:
        """See `Statistics.miscounts`; there are no stored counters."""
        return iter(())

    def recount(self) -> int:
        return 0

    def _agents_named(self, agent_id: str | None) -> list[str]:
        return agents_with_memory(self._db) if agent_id is None else [agent_id]

    def _agent_kinds(self, agent_id: str | None) -> Iterator[Selection]:
        for agent in self._agents_named(agent_id):
            for kind in ScopeKind:
                yield Selection(agent_ids=(agent,), kinds=(kind,))

    def _count(self, kind: RecordKind, wanted: Selection, condition: Filter | None = None) -> int:
        collection = SOURCES[kind].collection(self._db)
        filters = narrow(kind, wanted)
        return sum(collection.count({**filter, **(condition or {})}) for filter in filters)

    def _sum(
        self, kind: RecordKind, wanted: Selection, condition: Filter, *stages: Document
    ) -> Iterator[Document]:
        """Yield the results of a pipeline over documents of a kind."""
        for filter in narrow(kind, wanted):
            match = {"$match": {**filter, **condition}}
            yield from SOURCES[kind].collection(self._db).aggregate([match, *stages])

    def _ages(self, wanted: Selection) -> Iterator[BufferAge]:
        (agent,), (kind,) = wanted.agent_ids, wanted.kinds
        names = ["user_id", "group_id", "shard"]
        if kind is ScopeKind.SESSION:
            names.append("session_id")
        owners = {
            "$group": {
                "_id": {name: f"${name}" for name in names},
                "pending": {"$sum": 1},
                "oldest": {"$min": "$formed_at"},
            }
        }
        for row in self._sum(RecordKind.REFLECTION, wanted, _PENDING, owners):
            scope = scope_of({"agent_id": agent, "scope": kind, **row["_id"]})
            if scope is not None and isinstance(row["oldest"], datetime):
                yield BufferAge(
                    scope=scope, pending=int(row["pending"]), oldest_at=as_utc(row["oldest"])
                )
