"""Access tokens of the server, and their daily use."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

from edenmem.models.access import AccessToken, DailyUse
from edenmem.models.records import AuditEntry
from edenmem.store.sqlite.core.codec import Table, from_list
from edenmem.store.sqlite.core.part import Part, json_array
from edenmem.store.sqlite.memory import log

_TOKENS = Table(
    AccessToken,
    "access_tokens",
    "access_tokens",
    "id name digest user_id created_by",
    flags="can_write",
    times="created_at expires_at last_used_at",
    others={
        "agents": (from_list, json_array),
    },
    start=0,
)
_SELECT = f"SELECT {_TOKENS.qualified} FROM access_tokens"
_INSERT = _TOKENS.insert(otherwise="OR IGNORE ")
#: The fields that change: the name and the other limits of a token stay.
_MOVED = ("digest", "agents", "created_at", "created_by", "last_used_at")
_encode = _TOKENS.encoder(*_MOVED)


class Tokens(Part):
    """See `edenmem.store.protocol.host.Tokens`."""

    def add(self, token: AccessToken, entry: AuditEntry) -> bool:
        return self._write_audited(_INSERT, _TOKENS.values(token), entry)

    def _write_audited(
        self, statement: str, values: Sequence[Any], entry: AuditEntry | None
    ) -> bool:
        """Run a statement; return whether it changed a row, and write its audit entry if so."""
        with self._db.writing() as connection:
            is_done = connection.execute(statement, values).rowcount > 0
            if is_done and entry is not None:
                log.add_entries(connection, [(entry, None)])
        return is_done

    def tokens(self) -> list[AccessToken]:
        return [_TOKENS.make(row) for row in self._fetch(f"{_SELECT} ORDER BY name, id")]

    def token(self, token_id: str) -> AccessToken | None:
        row = self._fetch_one(f"{_SELECT} WHERE id = ?", (token_id,))
        return None if row is None else _TOKENS.make(row)

    def move(
        self, before: AccessToken, after: AccessToken, entry: AuditEntry | None = None
    ) -> bool:
        changes = [
            (field, new)
            for field, old, new in zip(_MOVED, _encode(before), _encode(after), strict=True)
            if old != new
        ]
        setting = ", ".join(f"{field} = ?" for field, _ in changes)
        return self._write_audited(
            f"UPDATE access_tokens SET {setting} WHERE id = ? AND digest = ?",
            (*(value for _, value in changes), before.id, before.digest),
            entry,
        )

    def remove(self, token_id: str, entry: AuditEntry) -> bool:
        return self._write_audited("DELETE FROM access_tokens WHERE id = ?", (token_id,), entry)

    def add_use(self, holder: str, day: str, use: DailyUse) -> None:
        previous = (date.fromisoformat(day) - timedelta(days=1)).isoformat()
        with self._db.writing() as connection:
            connection.execute(
                "INSERT INTO daily_use (day, holder, tokens, cost) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (day, holder) DO UPDATE SET"
                " tokens = tokens + excluded.tokens, cost = cost + excluded.cost",
                (day, holder, use.tokens, use.cost),
            )
            connection.execute("DELETE FROM daily_use WHERE day < ?", (previous,))

    def daily_use(self, holder: str, day: str) -> DailyUse:
        row = self._fetch_one(
            "SELECT tokens, cost FROM daily_use WHERE day = ? AND holder = ?", (day, holder)
        )
        return DailyUse() if row is None else DailyUse(tokens=row[0], cost=row[1])
