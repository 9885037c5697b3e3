"""The schema migrations, and the ledger of data migrations."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from edenmem.models.migration import MigrationRun, SchemaStep
from edenmem.store.common import migrations
from edenmem.store.sqlite.core import steps
from edenmem.store.sqlite.core.codec import optional_time, time, to_ms
from edenmem.store.sqlite.core.part import Part
from edenmem.store.sqlite.core.schema import FileState, file_state

#: The lease of data migrations: only one runs at a time.
_LEASE = "data"


class Migrations(Part):
    """See `edenmem.store.protocol.database.Migrations`."""

    def schema(self) -> list[SchemaStep]:
        had: dict[str, int] = {}
        if file_state(self._db.path) not in (FileState.MISSING, FileState.EMPTY):
            with self._db.looking() as connection:
                had = steps.read_applied(connection)
        return [
            SchemaStep(
                number=step.number,
                name=step.name,
                applied_at=optional_time(had.get(step.name)),
                no_way_back=step.no_way_back(),
            )
            for step in migrations.migrations()
        ]

    def migrate_up(self) -> Sequence[str]:
        with self._db.upgrading() as connection:
            return steps.apply_pending(connection)

    def migrate_down(self, to: int) -> Sequence[str]:
        with self._db.upgrading() as connection:
            return steps.revert_to(connection, to)

    def take_migration_lease(
        self, holder: str, *, now: datetime, until: datetime
    ) -> tuple[str, datetime] | None:
        with self._db.writing() as connection:
            row = connection.execute(
                "SELECT holder, until FROM migration_leases"
                " WHERE name = ? AND until > ? AND holder <> ?",
                (_LEASE, to_ms(now), holder),
            ).fetchone()
            if row is not None:
                return str(row[0]), time(row[1])
            connection.execute(
                "INSERT OR REPLACE INTO migration_leases (name, holder, until) VALUES (?, ?, ?)",
                (_LEASE, holder, to_ms(until)),
            )
        return None

    def end_migration_lease(self, holder: str) -> None:
        with self._db.writing() as connection:
            connection.execute(
                "DELETE FROM migration_leases WHERE name = ? AND holder = ?", (_LEASE, holder)
            )

    def put_migration_run(self, run: MigrationRun) -> None:
        with self._db.writing() as connection:
            connection.execute(
                "INSERT INTO migration_runs (id, started_at, document) VALUES (?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET document = excluded.document",
                (run.id, to_ms(run.started_at), msgspec.json.encode(run).decode()),
            )

    def migration_run(self, run_id: str) -> MigrationRun | None:
        with self._db.reading() as connection:
            row = connection.execute(
                "SELECT document FROM migration_runs WHERE id = ?", (run_id,)
            ).fetchone()
        return _run_from(row[0]) if row else None

    def migration_runs(self) -> list[MigrationRun]:
        with self._db.reading() as connection:
            rows = connection.execute(
                "SELECT document FROM migration_runs ORDER BY started_at DESC, id DESC"
            ).fetchall()
        return [_run_from(document) for (document,) in rows]


def _run_from(document: str) -> MigrationRun:
    return msgspec.json.decode(document, type=MigrationRun)
