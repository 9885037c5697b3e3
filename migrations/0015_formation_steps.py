"""Add the next step of a formation, after the applied steps.

SQLite: a column, empty without a next step. MongoDB: a field, which needs no step.
"""

from __future__ import annotations

from typing import Any


def _has_column(connection: Any) -> bool:
    return any(row[1] == "next_step" for row in connection.execute("PRAGMA table_info(formations)"))


def up_sqlite(connection: Any) -> None:
    if not _has_column(connection):
        connection.execute("ALTER TABLE formations ADD COLUMN next_step TEXT NOT NULL DEFAULT ''")


def down_sqlite(connection: Any) -> None:
    if _has_column(connection):
        connection.execute("ALTER TABLE formations DROP COLUMN next_step")


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    """Do nothing; see the module."""
