"""Add the position of a reflection among reflections of the same time (``place``).

SQLite: a column with default 0. MongoDB: an optional field, which needs no step.
"""

from __future__ import annotations

from typing import Any


def _has_place(connection: Any) -> bool:
    return any(row[1] == "place" for row in connection.execute("PRAGMA table_xinfo(reflections)"))


def up_sqlite(connection: Any) -> None:
    if not _has_place(connection):
        connection.execute("ALTER TABLE reflections ADD COLUMN place INTEGER NOT NULL DEFAULT 0")


def down_sqlite(connection: Any) -> None:
    if _has_place(connection):
        connection.execute("ALTER TABLE reflections DROP COLUMN place")


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    """Do nothing; see the module."""
