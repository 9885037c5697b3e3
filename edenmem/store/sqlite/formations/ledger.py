"""What is still to be propagated, and what models cost."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from edenmem.models.formation import UsageEntry, UsageTotal
from edenmem.models.scope import Scope
from edenmem.store.sqlite.core import codec, scopes
from edenmem.store.sqlite.core.codec import to_ms
from edenmem.store.sqlite.core.part import Part, json_array

#: Both places where calls are kept, with the same condition on the agent (or none).
_TOTALS = """
    SELECT json_extract(call.value, '$.model') AS model, count(*),
        sum(json_extract(call.value, '$.input_tokens')),
        sum(json_extract(call.value, '$.output_tokens')),
        total(json_extract(call.value, '$.cost')),
        sum(json_extract(call.value, '$.cost') IS NULL)
    FROM (
        SELECT f.usage AS calls FROM formations f WHERE f.created_at >= ?{agent}
        UNION ALL
        SELECT u.calls FROM usage_entries u WHERE u.at >= ?{agent}
    ) AS kept, json_each(kept.calls) AS call
    GROUP BY model ORDER BY model
"""


class Ledger(Part):
    """See `edenmem.store.protocol.store.Store`."""

    def find_unpropagated(self, *, agent_id: str | None = None) -> list[Scope]:
        where, values = ("", ()) if agent_id is None else (" AND s.agent_id = ?", (agent_id,))
        with self._db.reading() as connection:
            rows = connection.execute(
                "SELECT s.kind, s.agent_id, s.owner FROM consolidations c"
                f" JOIN scopes s USING (scope_id) WHERE c.unpropagated IS NOT NULL{where}",
                values,
            ).fetchall()
        return sorted(
            (codec.scope_of(*row) for row in rows),
            key=lambda scope: (scope.agent_id, scope.kind, scope.owner),
        )

    def settle_propagation(self, scope: Scope, version: int) -> None:
        with self._db.writing() as connection:
            number = scopes.number_of(connection, scope)
            row = connection.execute(
                "SELECT unpropagated FROM consolidations WHERE scope_id = ?", (number,)
            ).fetchone()
            left = [one for one in codec.to_versions(row and row[0]) if one != version]
            connection.execute(
                "UPDATE consolidations SET unpropagated = ? WHERE scope_id = ?",
                (json_array(left) if left else None, number),
            )

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
        first = -(2**62) if since is None else to_ms(since)
        bounds: tuple[Any, ...] = (first,) if agent_id is None else (first, agent_id)
        select = _TOTALS.format(agent="" if agent_id is None else " AND agent_id = ?")
        with self._db.reading() as connection:
            rows = connection.execute(select, (*bounds, *bounds)).fetchall()
        return [
            UsageTotal(
                model=model,
                calls=calls,
                input_tokens=read,
                output_tokens=written,
                cost=cost,
                unpriced=unpriced,
            )
            for model, calls, read, written, cost, unpriced in rows
        ]
