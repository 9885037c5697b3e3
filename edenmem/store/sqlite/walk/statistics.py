"""Numbers about memory."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from edenmem.models.memory import Fact
from edenmem.models.scope import ScopeKind
from edenmem.models.statistics import BufferAge, FactUse, FormedOnDay, KindCount, UsageOnDay
from edenmem.store.sqlite.core import codec
from edenmem.store.sqlite.core.codec import time, to_ms
from edenmem.store.sqlite.core.part import Part

_EVER = -(2**62)
#: Rows of a scope's table, with the agent's condition or none.
_OF_AGENT = "JOIN scopes s USING (scope_id) WHERE {condition}{agent}"
_DAY = "strftime('%Y-%m-%d', {column} / 1000, 'unixepoch')"

_USAGE = f"""
    SELECT {_DAY.format(column="kept.at")} AS day, json_extract(call.value, '$.model') AS model,
        count(*),
        sum(json_extract(call.value, '$.input_tokens')),
        sum(json_extract(call.value, '$.output_tokens')),
        total(json_extract(call.value, '$.cost')),
        sum(json_extract(call.value, '$.cost') IS NULL)
    FROM (
        SELECT f.created_at AS at, f.usage AS calls FROM formations f
        WHERE f.created_at >= ?1 AND (?2 IS NULL OR f.agent_id = ?2)
        UNION ALL
        SELECT u.at, u.calls FROM usage_entries u
        WHERE u.at >= ?1 AND (?2 IS NULL OR u.agent_id = ?2)
    ) AS kept, json_each(kept.calls) AS call
    GROUP BY day, model ORDER BY day, model
"""


class StatisticsPart(Part):
    """See `edenmem.store.protocol.statistics.Statistics`."""

    def count_by_day(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Sequence[FormedOnDay]:
        counts: dict[str, dict[str, int]] = {}
        for table in ("facts", "reflections"):
            rows = self._count_rows(
                f"SELECT {_DAY.format(column='formed_at')} AS day, count(*) FROM {table}",
                "formed_at >= ?1",
                agent_id,
                _EVER if since is None else to_ms(since),
                "GROUP BY day",
            )
            for day, count in rows:
                counts.setdefault(day, {})[table] = count
        return [FormedOnDay(day=day, **counts[day]) for day in sorted(counts)]

    def usage_by_day(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Sequence[UsageOnDay]:
        with self._db.reading() as connection:
            rows = connection.execute(
                _USAGE, (_EVER if since is None else to_ms(since), agent_id)
            ).fetchall()
        return [
            UsageOnDay(
                day=day,
                model=model,
                calls=calls,
                input_tokens=read,
                output_tokens=written,
                cost=cost,
                unpriced=unpriced,
            )
            for day, model, calls, read, written, cost, unpriced in rows
        ]

    def counts_by_kind(self, *, agent_id: str | None = None) -> Sequence[KindCount]:
        with self._db.reading() as connection:
            rows = connection.execute(
                "SELECT kind, sum(facts), sum(reflections), sum(pending) FROM scopes"
                " WHERE ?1 IS NULL OR agent_id = ?1 GROUP BY kind",
                (agent_id,),
            ).fetchall()
        found = {kind: numbers for kind, *numbers in rows}
        return [
            KindCount(kind=kind, facts=facts, reflections=reflections, pending=pending)
            for kind in ScopeKind
            for facts, reflections, pending in (found.get(kind, (0, 0, 0)),)
        ]

    def buffer_ages(self, *, agent_id: str | None = None, limit: int) -> Sequence[BufferAge]:
        rows = self._count_rows(
            "SELECT s.kind, s.agent_id, s.owner, count(*), min(formed_at) AS oldest"
            " FROM reflections",
            "absorbed = 0 AND formed_at >= ?1",
            agent_id,
            _EVER,
            f"GROUP BY scope_id ORDER BY oldest, s.agent_id, s.kind, s.owner LIMIT {int(limit)}",
        )
        return [
            BufferAge(
                scope=codec.scope_of(kind, agent, owner), pending=pending, oldest_at=time(oldest)
            )
            for kind, agent, owner, pending, oldest in rows
        ]

    def fact_use(self, *, agent_id: str | None = None) -> FactUse:
        ((facts, never, accesses),) = self._count_rows(
            "SELECT count(*), total(access_count = 0), total(access_count) FROM facts",
            "formed_at >= ?1",
            agent_id,
            _EVER,
        )
        ((repeated,),) = self._count_rows(
            "SELECT total(n) FROM (SELECT count(*) AS n FROM facts",
            "formed_at >= ?1",
            agent_id,
            _EVER,
            "GROUP BY s.agent_id, hash HAVING n > 1)",
        )
        return FactUse(
            facts=facts, never=int(never), accesses=int(accesses), repeated=int(repeated)
        )

    def most_retrieved(self, *, agent_id: str | None = None, limit: int) -> Sequence[Fact]:
        where = "WHERE f.access_count > 0 AND (?1 IS NULL OR s.agent_id = ?1)"
        with self._db.reading() as connection:
            rows = connection.execute(
                f"{codec.FACT} {where} ORDER BY f.access_count DESC, f.id LIMIT ?2",
                (agent_id, limit),
            ).fetchall()
        return [codec.fact_from(row) for row in rows]

    def _count_rows(
        self, select: str, condition: str, agent_id: str | None, since: int, rest: str = ""
    ) -> list[Any]:
        agent = "" if agent_id is None else " AND s.agent_id = ?2"
        joined = _OF_AGENT.format(condition=condition, agent=agent)
        bounds = (since,) if agent_id is None else (since, agent_id)
        with self._db.reading() as connection:
            return connection.execute(f"{select} {joined} {rest}", bounds).fetchall()
