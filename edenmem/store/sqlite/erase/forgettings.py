"""What was forgotten, and the refusal of what would bring it back."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

import sqlite3
from datetime import datetime
from typing import Any, get_args

import msgspec

from edenmem.models.changes import AuditEntry
from edenmem.models.forgetting import Forgetting, SubjectKind
from edenmem.store.sqlite.core.codec import optional_time, time, to_ms
from edenmem.store.sqlite.core.part import Part
from edenmem.store.sqlite.memory import log

_KINDS: dict[str, SubjectKind] = {kind: kind for kind in get_args(SubjectKind)}


class Forgettings(Part):
    """See `edenmem.store.protocol.erasure.Erasing`."""

    def begin_forgetting(self, forgetting: Forgetting) -> Forgetting:
        with self._db.writing() as connection:
            connection.execute(
                "INSERT INTO forgettings (id, kind, begun_at, counts) VALUES (?1, ?2, ?3, ?4)"
                " ON CONFLICT (id) DO UPDATE SET"
                " begun_at = iif(closed_at IS NULL, begun_at, ?3),"
                " counts = iif(closed_at IS NULL, counts, ?4), closed_at = NULL",
                (
                    forgetting.id,
                    forgetting.kind,
                    to_ms(forgetting.begun_at),
                    msgspec.json.encode(forgetting.counts).decode(),
                ),
            )
            connection.executemany(
                "INSERT OR IGNORE INTO forgetting_blocks VALUES (?, ?)",
                [(key, forgetting.id) for key in forgetting.blocks],
            )
            (row,) = _rows(connection, "WHERE id = ?", (forgetting.id,))
        return row

    def forgettings(self) -> list[Forgetting]:
        with self._db.reading() as connection:
            return _rows(connection, "ORDER BY closed_at IS NOT NULL, begun_at DESC, id", ())

    def close_forgetting(
        self, forgetting_id: str, *, at: datetime, counts: dict[str, int], entry: AuditEntry
    ) -> None:
        with self._db.writing() as connection:
            closed = connection.execute(
                "UPDATE forgettings SET closed_at = ?, counts = ?"
                " WHERE id = ? AND closed_at IS NULL",
                (to_ms(at), msgspec.json.encode(counts).decode(), forgetting_id),
            ).rowcount
            told = connection.execute("SELECT 1 FROM audit WHERE id = ?", (entry.id,)).fetchone()
            if closed and told is None:
                log.add_entries(connection, [(entry, None)])


def _rows(connection: sqlite3.Connection, tail: str, values: tuple[Any, ...]) -> list[Forgetting]:
    rows = connection.execute(
        f"SELECT id, kind, begun_at, closed_at, counts FROM forgettings {tail}",  # noqa: S608
        values,
    ).fetchall()
    return [
        Forgetting(
            id=id,
            kind=_KINDS[kind],
            begun_at=time(begun_at),
            closed_at=optional_time(closed_at),
            counts=msgspec.json.decode(counts, type=dict[str, int]),
            blocks=tuple(
                key
                for (key,) in connection.execute(
                    "SELECT key FROM forgetting_blocks WHERE forgetting_id = ? ORDER BY key", (id,)
                )
            ),
        )
        for id, kind, begun_at, closed_at, counts in rows
    ]
