"""Add the undone entry to audit entries, and index them by scope, run and actor.

SQLite: columns and indexes. MongoDB: nothing; indexes are declared as data.
"""

from __future__ import annotations

from typing import Any

#: The actor is JSON in the column ``actor``.
_INDEXES = {
    "audit_scope": "audit (scope_id, at) WHERE scope_id IS NOT NULL",
    "audit_reverts": "audit (scope_id, at) WHERE action = 'revert_consolidation'",
    "audit_run": "audit (json_extract(actor, '$.run_id'), at)"
    " WHERE json_extract(actor, '$.run_id') IS NOT NULL",
    "audit_actor": "audit (json_extract(actor, '$.name'), at)",
}


def _columns(connection: Any) -> set[str]:
    return {row[1] for row in connection.execute("PRAGMA table_info(audit)")}


def up_sqlite(connection: Any) -> None:
    if "undoes" not in _columns(connection):
        connection.execute("ALTER TABLE audit ADD COLUMN undoes TEXT")
    for name, definition in _INDEXES.items():
        connection.execute(f"CREATE INDEX IF NOT EXISTS {name} ON {definition}")


def down_sqlite(connection: Any) -> None:
    for name in _INDEXES:
        connection.execute(f"DROP INDEX IF EXISTS {name}")
    if "undoes" in _columns(connection):
        connection.execute("ALTER TABLE audit DROP COLUMN undoes")


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    """Do nothing: an older edenmem ignores unknown fields."""
