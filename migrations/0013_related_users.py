"""Add the users of facts and reflections in v1 (``related_users``).

SQLite: a column with a JSON array of IDs or null, and a partial index. MongoDB: a field, which
needs no step; `index create` creates its indexes.
"""

from __future__ import annotations

from typing import Any

_TABLES = ("facts", "reflections")
_COLUMN = "related_users"


def _has(connection: Any, table: str) -> bool:
    return any(row[1] == _COLUMN for row in connection.execute(f"PRAGMA table_xinfo({table})"))


def up_sqlite(connection: Any) -> None:
    for table in _TABLES:
        if not _has(connection, table):
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {_COLUMN} TEXT")
        connection.execute(
            f"CREATE INDEX IF NOT EXISTS {table}_related ON {table} ({_COLUMN})"
            f" WHERE {_COLUMN} IS NOT NULL"
        )


def down_sqlite(connection: Any) -> None:
    for table in _TABLES:
        connection.execute(f"DROP INDEX IF EXISTS {table}_related")
        if _has(connection, table):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {_COLUMN}")


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    """Do nothing; see the module."""
