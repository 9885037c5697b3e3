"""What models cost."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from edenmem.models.formation import UsageEntry, UsageTotal
from edenmem.models.statistics import UsageOnDay
from edenmem.store.sqlite.core.codec import EVER, Row, day_of, to_ms
from edenmem.store.sqlite.core.part import Part

#: Calls from both places where they are kept, and what is added up of them. ``agent``: a
#: condition on whose they are, or nothing; ?1 is the earliest time, ?2 the agent.
_SUMS = f"""
    SELECT {{keys}}, count(*),
        sum(json_extract(call.value, '$.input_tokens')),
        sum(json_extract(call.value, '$.output_tokens')),
        total(json_extract(call.value, '$.cost')),
        sum(json_extract(call.value, '$.cost') IS NULL)
    FROM (
        SELECT {day_of("f.created_at")} AS day, f.usage AS calls FROM formations f
        WHERE f.created_at >= ?1{{agent}}
        UNION ALL
        SELECT {day_of("u.at")}, u.calls FROM usage_entries u
        WHERE u.at >= ?1{{agent}}
    ) AS kept, json_each(kept.calls) AS call
    GROUP BY {{keys}} ORDER BY {{keys}}
"""
_MODEL = "json_extract(call.value, '$.model')"


class Usage(Part):
    """See `edenmem.store.protocol.formations.Usage`."""

    def add_usage(self, entry: UsageEntry) -> None:
        with self._db.writing() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO usage_entries (id, at, agent_id, work, calls)"
                " VALUES (?, ?, ?, ?, ?)",
                (
                    entry.id,
                    to_ms(entry.at),
                    entry.agent_id,
                    entry.work,
                    msgspec.json.encode(entry.calls).decode(),
                ),
            )

    def sum_usage(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> list[UsageTotal]:
        return [
            UsageTotal(
                model=model,
                calls=calls,
                input_tokens=read,
                output_tokens=written,
                cost=cost,
                unpriced=unpriced,
            )
            for model, calls, read, written, cost, unpriced in self._sum(_MODEL, agent_id, since)
        ]

    def usage_by_day(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Sequence[UsageOnDay]:
        rows = self._sum(f"kept.day, {_MODEL}", agent_id, since)
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

    def _sum(self, keys: str, agent_id: str | None, since: datetime | None) -> list[Row]:
        first = EVER if since is None else to_ms(since)
        bounds = (first,) if agent_id is None else (first, agent_id)
        select = _SUMS.format(keys=keys, agent="" if agent_id is None else " AND agent_id = ?2")
        with self._db.reading() as connection:
            return connection.execute(select, bounds).fetchall()
