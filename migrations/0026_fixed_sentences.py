"""Add the fixed sentences of texts, and the failed drafts of scopes.

SQLite: columns. MongoDB: optional fields, which need no step.
"""

from __future__ import annotations

from typing import Any

_COLUMNS = ("fixed", "failed_drafts")


def _present(connection: Any) -> set[str]:
    columns = connection.execute("PRAGMA table_info(consolidations)").fetchall()
    return {row[1] for row in columns}.intersection(_COLUMNS)


def up_sqlite(connection: Any) -> None:
    for column in _COLUMNS:
        if column not in _present(connection):
            connection.execute(f"ALTER TABLE consolidations ADD COLUMN {column} TEXT")


def down_sqlite(connection: Any) -> None:
    for column in sorted(_present(connection)):
        connection.execute(f"ALTER TABLE consolidations DROP COLUMN {column}")


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    """Do nothing; see the module."""
