"""The schema migrations, and the ledger of data migrations."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

import msgspec

from edenmem.errors import ConflictError
from edenmem.models.ids import utc_now
from edenmem.models.migration import MigrationRun, SchemaStep
from edenmem.store.common import migrations
from edenmem.store.sqlite.core import source_words
from edenmem.store.sqlite.core.codec import optional_time, time, to_ms
from edenmem.store.sqlite.core.part import Part
from edenmem.store.sqlite.core.schema import FileState, file_state
from edenmem.store.sqlite.core.words import is_empty, rebuild_text_index

#: The lease of data migrations: only one runs at a time.
_LEASE = "data"


class Migrations(Part):
    """See `edenmem.store.protocol.database.Migrations`."""

    def schema(self) -> list[SchemaStep]:
        had: dict[str, int] = {}
        if file_state(self._db.path) not in (FileState.MISSING, FileState.EMPTY):
            with self._db.looking() as connection:
                had = read_applied(connection)
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
            return apply_pending(connection)

    def migrate_down(self, to: int) -> Sequence[str]:
        with self._db.upgrading() as connection:
            return revert_to(connection, to)

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
        self._write("DELETE FROM migration_leases WHERE name = ? AND holder = ?", (_LEASE, holder))

    def put_migration_run(self, run: MigrationRun) -> None:
        self._write(
            "INSERT INTO migration_runs (id, started_at, document) VALUES (?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET document = excluded.document",
            (run.id, to_ms(run.started_at), msgspec.json.encode(run).decode()),
        )

    def migration_run(self, run_id: str) -> MigrationRun | None:
        row = self._fetch_one("SELECT document FROM migration_runs WHERE id = ?", (run_id,))
        return _run_from(row[0]) if row else None

    def migration_runs(self) -> list[MigrationRun]:
        rows = self._fetch("SELECT document FROM migration_runs ORDER BY started_at DESC, id DESC")
        return [_run_from(document) for (document,) in rows]


def _run_from(document: str) -> MigrationRun:
    return msgspec.json.decode(document, type=MigrationRun)


def read_applied(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the applied migrations with their times in milliseconds."""
    known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migrations'").fetchone()
    return dict(connection.execute("SELECT name, applied_at FROM migrations")) if known else {}


def apply_pending(connection: sqlite3.Connection) -> list[str]:
    """Apply the pending migrations and return their names."""
    taken = []
    for migration in migrations.pending(read_applied(connection)):
        migration.up("sqlite", connection)
        connection.execute(
            "INSERT INTO migrations (number, name, digest, applied_at) VALUES (?, ?, ?, ?)",
            (migration.number, migration.name, migration.digest, to_ms(utc_now())),
        )
        taken.append(migration.name)
    if taken:
        _fill_text_indexes(connection)
    _mark(connection)
    return taken


def _fill_text_indexes(connection: sqlite3.Connection) -> None:
    """Fill the full-text indexes that a migration left empty, by the rules of this version."""
    if is_empty(connection, "facts_text"):
        rebuild_text_index(connection)
    if source_words.has_index(connection) and is_empty(connection, source_words.INDEX):
        source_words.rebuild_index(connection)


def revert_to(connection: sqlite3.Connection, to: int) -> list[str]:
    """Revert the migrations after number ``to``, newest first, and return their names.

    Raises:
        ConflictError: a step is irreversible.
    """
    had = read_applied(connection)
    steps = [each for each in migrations.migrations() if each.number > to and each.name in had]
    for step in steps:
        if reason := step.no_way_back():
            raise ConflictError(f"migration is irreversible: {step.name} ({reason})")
    for step in reversed(steps):
        step.down("sqlite", connection)
        connection.execute("DELETE FROM migrations WHERE name = ?", (step.name,))
    _mark(connection)
    return [step.name for step in reversed(steps)]


def _mark(connection: sqlite3.Connection) -> None:
    """Write the schema version into the header."""
    (newest,) = connection.execute("SELECT coalesce(max(number), 0) FROM migrations").fetchone()
    connection.execute(f"PRAGMA user_version = {newest}")
