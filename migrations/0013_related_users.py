"""The users that a fact or reflection is about, as v1 named them (``related_users``).

SQLite: a column, a JSON array of ids or null, and an index of those rows that have one. MongoDB: a
field of the documents, which needs no step; `index create` makes its indexes.
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
    """Nothing: see the module."""


def down_mongo(database: Any) -> None:
    """Nothing: see the module."""
