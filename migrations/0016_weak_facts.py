"""Add the mark of facts that the conversation does not fully confirm (``weak``).

SQLite: a column with default 0. MongoDB: an optional field, which needs no step.
"""

from __future__ import annotations

from typing import Any


def _has_mark(connection: Any) -> bool:
    return any(row[1] == "weak" for row in connection.execute("PRAGMA table_xinfo(facts)"))


def up_sqlite(connection: Any) -> None:
    if not _has_mark(connection):
        connection.execute("ALTER TABLE facts ADD COLUMN weak INTEGER NOT NULL DEFAULT 0")


def down_sqlite(connection: Any) -> None:
    if _has_mark(connection):
        connection.execute("ALTER TABLE facts DROP COLUMN weak")


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    """Do nothing; see the module."""
