"""Application and reversal of schema migrations in the caller's transaction."""

from __future__ import annotations

import sqlite3

from edenmem.errors import ConflictError
from edenmem.models.ids import utc_now
from edenmem.store.common import migrations
from edenmem.store.sqlite.core import source_words
from edenmem.store.sqlite.core.codec import to_ms
from edenmem.store.sqlite.core.words import is_empty, rebuild_text_index


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
