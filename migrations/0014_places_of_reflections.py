"""The place of a reflection among those formed at the same moment (``place``).

SQLite: a column, 0 for all that are there. MongoDB: a field of the documents that are not first,
which needs no step.
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
    """Nothing: see the module."""


def down_mongo(database: Any) -> None:
    """Nothing: see the module."""
