"""Add quotes of facts, and what is in doubt about facts and reflections.

SQLite: columns; ``weak`` stays, unused. MongoDB: optional fields, which need no step.
"""

from __future__ import annotations

from typing import Any


def _has_quotes(connection: Any) -> bool:
    columns = connection.execute("PRAGMA table_info(facts)").fetchall()
    return any(row[1] == "quote" for row in columns)


def up_sqlite(connection: Any) -> None:
    if not _has_quotes(connection):
        for statement in (
            "ALTER TABLE facts ADD COLUMN quote TEXT NOT NULL DEFAULT ''",
            "ALTER TABLE facts ADD COLUMN unconfirmed TEXT NOT NULL DEFAULT ''",
            "ALTER TABLE reflections ADD COLUMN unconfirmed TEXT NOT NULL DEFAULT ''",
        ):
            connection.execute(statement)


def down_sqlite(connection: Any) -> None:
    if _has_quotes(connection):
        for statement in (
            "ALTER TABLE reflections DROP COLUMN unconfirmed",
            "ALTER TABLE facts DROP COLUMN unconfirmed",
            "ALTER TABLE facts DROP COLUMN quote",
        ):
            connection.execute(statement)


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    """Do nothing; see the module."""
