"""Access tokens of the server, and their daily use."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta

from edenmem.models.access import AccessToken, DailyUse
from edenmem.models.records import AuditEntry
from edenmem.store.sqlite.core.codec import Row, from_list, optional_time, time, to_ms
from edenmem.store.sqlite.core.part import Part, json_array
from edenmem.store.sqlite.memory import log

_SELECT = (
    "SELECT id, name, digest, agents, user_id, can_write, created_at, created_by, expires_at,"
    " last_used_at FROM access_tokens"
)


class Tokens(Part):
    """See `edenmem.store.protocol.access.Tokens`."""

    def add(self, token: AccessToken, entry: AuditEntry) -> bool:
        with self._db.writing() as connection:
            added = connection.execute(
                "INSERT OR IGNORE INTO access_tokens (id, name, digest, agents, user_id, can_write,"
                " created_at, created_by, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    token.id,
                    token.name,
                    token.digest,
                    json_array(token.agents),
                    token.user_id,
                    token.can_write,
                    to_ms(token.created_at),
                    token.created_by,
                    to_ms(token.expires_at),
                ),
            ).rowcount
            if added:
                log.add_entries(connection, [(entry, None)])
        return bool(added)

    def tokens(self) -> list[AccessToken]:
        with self._db.reading() as connection:
            return [_token(row) for row in connection.execute(f"{_SELECT} ORDER BY name, id")]

    def token(self, token_id: str) -> AccessToken | None:
        with self._db.reading() as connection:
            row = connection.execute(f"{_SELECT} WHERE id = ?", (token_id,)).fetchone()
        return None if row is None else _token(row)

    def set_agents(self, token_id: str, agents: Sequence[str]) -> None:
        with self._db.writing() as connection:
            connection.execute(
                "UPDATE access_tokens SET agents = ? WHERE id = ?", (json_array(agents), token_id)
            )

    def remove(self, token_id: str, entry: AuditEntry) -> bool:
        with self._db.writing() as connection:
            removed = connection.execute(
                "DELETE FROM access_tokens WHERE id = ?", (token_id,)
            ).rowcount
            if removed:
                log.add_entries(connection, [(entry, None)])
        return bool(removed)

    def note_use(self, token_id: str, at: datetime) -> None:
        with self._db.writing() as connection:
            connection.execute(
                "UPDATE access_tokens SET last_used_at = ? WHERE id = ?", (to_ms(at), token_id)
            )

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
        with self._db.reading() as connection:
            row = connection.execute(
                "SELECT tokens, cost FROM daily_use WHERE day = ? AND holder = ?", (day, holder)
            ).fetchone()
        return DailyUse() if row is None else DailyUse(tokens=row[0], cost=row[1])


def _token(row: Row) -> AccessToken:
    return AccessToken(
        id=row[0],
        name=row[1],
        digest=row[2],
        agents=from_list(row[3]),
        user_id=row[4],
        can_write=bool(row[5]),
        created_at=time(row[6]),
        created_by=row[7],
        expires_at=optional_time(row[8]),
        last_used_at=optional_time(row[9]),
    )
