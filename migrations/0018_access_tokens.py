"""Add access tokens of the server, and daily usage.

SQLite: two tables. MongoDB: two collections with lookups by ``_id``.
"""

from __future__ import annotations

from typing import Any

_STEPS = (
    """
    CREATE TABLE IF NOT EXISTS access_tokens (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        digest TEXT NOT NULL,
        agents TEXT NOT NULL,
        user_id TEXT,
        can_write INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        created_by TEXT NOT NULL,
        expires_at INTEGER,
        last_used_at INTEGER
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE IF NOT EXISTS daily_use (
        day TEXT NOT NULL,
        holder TEXT NOT NULL,
        tokens INTEGER NOT NULL,
        cost REAL NOT NULL,
        PRIMARY KEY (day, holder)
    ) STRICT, WITHOUT ROWID
    """,
)


def up_sqlite(connection: Any) -> None:
    for step in _STEPS:
        connection.execute(step)


def down_sqlite(connection: Any) -> None:
    for table in ("access_tokens", "daily_use"):
        connection.execute(f"DROP TABLE IF EXISTS {table}")


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    for name in ("memory2_tokens", "memory2_daily_use"):
        database.drop_collection(name)
