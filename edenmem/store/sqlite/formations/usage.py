"""The cost of model calls."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from edenmem.models.formation import COUNT_END, CallUsage, UsageEntry, calls_from
from edenmem.models.statistics import UsageOnDay
from edenmem.store.sqlite.core.codec import EVER, Conversions, Table, as_json, day_of, to_ms
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


#: The columns of `_SUMS`.
_SUMMED = [
    "day",
    "model",
    "calls",
    "input_tokens",
    "output_tokens",
    "cost",
    "unpriced",
    "estimated",
]


def _read_calls(column: str) -> tuple[CallUsage, ...]:
    """Decode the stored calls of a row; none if they are not JSON."""
    try:
        return calls_from(json.loads(column))
    except (TypeError, ValueError, RecursionError):
        return ()


#: The conversions of a column with calls.
CALLS: Conversions = (_read_calls, as_json(Any, None)[1])
ENTRIES = Table(
    UsageEntry,
    "usage_entries",
    "u",
    "id agent_id work",
    times="at",
    others={"calls": CALLS},
    start=0,
)
INSERT_ENTRY = ENTRIES.insert(otherwise="OR IGNORE ")


class Usage(Part):
    """See `edenmem.store.protocol.formations.Usage`."""

    def add_usage(self, entry: UsageEntry) -> None:
        self._write(INSERT_ENTRY, ENTRIES.values(entry))

    def usage_by_day(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Sequence[UsageOnDay]:
        first = EVER if since is None else to_ms(since)
        bounds = (first,) if agent_id is None else (first, agent_id)
        with self._db.reading() as connection:
            rows = connection.execute(
                _SUMS.format(agent="" if agent_id is None else " AND agent_id = ?2"), bounds
            ).fetchall()
        return [UsageOnDay(**dict(zip(_SUMMED, row, strict=True))) for row in rows]
