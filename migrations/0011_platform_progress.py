"""Record moves of the platform's cursor, superseded formations, and sessions stored by edenmem.

SQLite: columns. MongoDB: fields of the documents, which need no step.
"""

from __future__ import annotations

from typing import Any

#: (table, column) → definition. ``superseded_message_ids`` is null unless the formation was
#: superseded; its ``status`` is then "applied", so that no older edenmem resumes it.
_COLUMNS = {
    ("formations", "cursor_moves"): "TEXT",
    ("formations", "superseded_message_ids"): "TEXT",
    ("sessions", "imported"): "INTEGER NOT NULL DEFAULT 0",
}


def _has(connection: Any, table: str, column: str) -> bool:
    return any(row[1] == column for row in connection.execute(f"PRAGMA table_xinfo({table})"))


def up_sqlite(connection: Any) -> None:
    for (table, column), definition in _COLUMNS.items():
        if not _has(connection, table, column):
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {definition}")


def down_sqlite(connection: Any) -> None:
    for table, column in reversed(_COLUMNS):
        if _has(connection, table, column):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    """Do nothing; see the module."""
