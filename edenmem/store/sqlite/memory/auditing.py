"""Reading the log: audit entries by whatever they are looked for, from an index each."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from edenmem.models.changes import AuditEntry
from edenmem.models.scope import Scope
from edenmem.store.protocol.log import AuditKey, command_beginnings
from edenmem.store.sqlite.core import scopes
from edenmem.store.sqlite.core.codec import to_ms
from edenmem.store.sqlite.core.part import BATCH, Part, json_array
from edenmem.store.sqlite.memory.history import AUDIT, SHOWN, audit_from

#: What each kind of id is in; the expressions are those of the indexes.
_COLUMNS: dict[AuditKey, str] = {
    "entry": "id",
    "target": "target_id",
    "run": "json_extract(actor, '$.run_id')",
}
_PREFIX = 4


class Auditing(Part):
    """See `edenmem.store.protocol.audit.Audits`."""

    def audit(
        self,
        *,
        agent_id: str | None = None,
        target_id: str | None = None,
        scope: Scope | None = None,
        run_id: str | None = None,
        actor: str | None = None,
        command: str | None = None,
        actions: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> Iterator[AuditEntry]:
        where, values = "", list[Any]()
        for condition, value in (
            ("a.agent_id = ?", agent_id),
            ("a.target_id = ?", target_id),
            ("json_extract(a.actor, '$.run_id') = ?", run_id),
            ("json_extract(a.actor, '$.name') = ?", actor),
            ("a.at >= ?", to_ms(since)),
            ("a.at < ?", to_ms(until)),
            (
                "a.action IN (SELECT value FROM json_each(?))",
                json_array(actions) if actions else None,
            ),
        ):
            if value is not None:
                where += f" AND {condition}"
                values.append(value)
        if command is not None:
            beginnings = command_beginnings(command)
            said = "json_extract(a.actor, '$.command') || ' '"
            begins = " OR ".join(f"substr({said}, 1, ?) = ?" for _ in beginnings)
            where += f" AND ({begins})"
            values += [value for text in beginnings for value in (len(text), text)]
        if scope is not None:
            with self._db.reading() as connection:
                where += " AND a.scope_id = ?"
                values.append(scopes.number_of(connection, scope))
        return itertools.islice(self._audit_entries(where, values), limit)

    def _audit_entries(self, where: str, values: Sequence[Any]) -> Iterator[AuditEntry]:
        last = (2**62, 2**62)
        while True:
            with self._db.reading() as connection:
                rows = connection.execute(
                    f"{AUDIT} WHERE (a.at, a.audit_no) < (?, ?) AND {SHOWN}{where}"
                    " ORDER BY a.at DESC, a.audit_no DESC LIMIT ?",
                    (*last, *values, BATCH),
                ).fetchall()
            yield from map(audit_from, rows)
            if len(rows) < BATCH:
                return
            last = (rows[-1][5], rows[-1][-1])

    def audit_entry(self, entry_id: str) -> AuditEntry | None:
        return self.audit_entries([entry_id]).get(entry_id)

    def audit_entries(self, entry_ids: Sequence[str]) -> dict[str, AuditEntry]:
        with self._db.reading() as connection:
            rows = connection.execute(
                f"{AUDIT} WHERE a.id IN (SELECT value FROM json_each(?)) AND {SHOWN}",
                (json_array(entry_ids),),
            ).fetchall()
        return {entry.id: entry for entry in map(audit_from, rows)}

    def find_audited(self, key: AuditKey, prefix: str, *, limit: int = 20) -> Sequence[str]:
        if len(prefix) < _PREFIX:
            return []
        column = _COLUMNS[key]
        with self._db.reading() as connection:
            rows = connection.execute(
                f"SELECT DISTINCT {column} AS found FROM audit a WHERE {column} >= ?"
                f" AND {column} < ? AND {SHOWN} ORDER BY found LIMIT ?",
                (prefix, prefix + "\U0010ffff", limit),
            ).fetchall()
        return [found for (found,) in rows]
