"""The cost of model calls."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

import msgspec

from edenmem.models.formation import (
    COUNT_END,
    UsageEntry,
)
from edenmem.models.statistics import UsageOnDay
from edenmem.store.sqlite.core.codec import EVER, day_of, to_ms
from edenmem.store.sqlite.core.part import Part


def _counted(path: str, types: str) -> str:
    """Return an SQL expression for a count in a call; 0 for invalid values."""
    return (
        f"CASE WHEN json_type(call.value, '{path}') IN ({types})"
        f" AND json_extract(call.value, '{path}') BETWEEN 0 AND {COUNT_END - 1}"
        f" THEN json_extract(call.value, '{path}') END"
    )


#: Calls from both tables, and their sums. ``agent`` is an optional condition; ?1 is the earliest
#: time, ?2 the agent.
_SUMS = f"""
    SELECT kept.day, coalesce(json_extract(call.value, '$.model'), '') AS model, count(*),
        CAST(total({_counted("$.input_tokens", "'integer'")}) AS INTEGER),
        CAST(total({_counted("$.output_tokens", "'integer'")}) AS INTEGER),
        total({_counted("$.cost", "'integer', 'real'")}),
        sum(json_extract(call.value, '$.cost') IS NULL),
        sum(coalesce(json_type(call.value, '$.estimated') = 'true', 0))
    FROM (
        SELECT {day_of("f.created_at")} AS day, f.usage AS calls FROM formations f
        WHERE f.created_at >= ?1{{agent}}
        UNION ALL
        SELECT {day_of("u.at")}, u.calls FROM usage_entries u
        WHERE u.at >= ?1{{agent}}
    ) AS kept, json_each(iif(json_valid(kept.calls), kept.calls, '[]')) AS call
    WHERE call.type = 'object'
    GROUP BY 1, 2 ORDER BY 1, 2
"""


def decode_calls(text: str) -> object:
    """Decode the stored calls of a row; text if they are not JSON."""
    try:
        calls: object = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return text
    return calls


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

    def usage_by_day(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Sequence[UsageOnDay]:
        first = EVER if since is None else to_ms(since)
        bounds = (first,) if agent_id is None else (first, agent_id)
        with self._db.reading() as connection:
            rows = connection.execute(
                _SUMS.format(agent="" if agent_id is None else " AND agent_id = ?2"), bounds
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
                estimated=estimated,
            )
            for day, model, calls, read, written, cost, unpriced, estimated in rows
        ]
