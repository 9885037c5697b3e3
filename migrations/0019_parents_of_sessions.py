"""Add the parent of a session that branched from another session.

SQLite: a column with default null. MongoDB: the platform's field ``parent_session``, which needs no
step.
"""

from __future__ import annotations

from typing import Any


def _has_field(connection: Any) -> bool:
    return any(row[1] == "parent" for row in connection.execute("PRAGMA table_xinfo(sessions)"))


def up_sqlite(connection: Any) -> None:
    if not _has_field(connection):
        connection.execute("ALTER TABLE sessions ADD COLUMN parent TEXT")


def down_sqlite(connection: Any) -> None:
    if _has_field(connection):
        connection.execute("ALTER TABLE sessions DROP COLUMN parent")


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    """Do nothing; see the module."""
