"""Add the setting of shards that accept orders to the agent (``orders`` of the policy).

SQLite: a column with default null. MongoDB: an optional field, which needs no step.
"""

from __future__ import annotations

from typing import Any


def _has_field(connection: Any) -> bool:
    return any(row[1] == "orders" for row in connection.execute("PRAGMA table_xinfo(policies)"))


def up_sqlite(connection: Any) -> None:
    if not _has_field(connection):
        connection.execute("ALTER TABLE policies ADD COLUMN orders INTEGER")


def down_sqlite(connection: Any) -> None:
    if _has_field(connection):
        connection.execute("ALTER TABLE policies DROP COLUMN orders")


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    """Do nothing; see the module."""
