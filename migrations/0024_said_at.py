"""Add the times at which facts and reflections were said, and of later edits of facts.

SQLite: columns. ``newest_at`` orders recent facts: by an edit, else by what was said, else by the
last change. MongoDB: optional fields, which need no step; the store declares indexes as data.
"""

from __future__ import annotations

from typing import Any

_NEWEST = "coalesce(edited_at, said_at, updated_at, formed_at)"


def _has_times(connection: Any) -> bool:
    return any(row[1] == "said_at" for row in connection.execute("PRAGMA table_xinfo(facts)"))


def up_sqlite(connection: Any) -> None:
    if not _has_times(connection):
        for statement in (
            "ALTER TABLE reflections ADD COLUMN said_at INTEGER",
            "ALTER TABLE facts ADD COLUMN said_at INTEGER",
            "ALTER TABLE facts ADD COLUMN edited_at INTEGER",
            f"ALTER TABLE facts ADD COLUMN newest_at INTEGER GENERATED ALWAYS AS ({_NEWEST})",
            "DROP INDEX facts_recent",
            "CREATE INDEX facts_recent ON facts (scope_id, newest_at DESC, id)",
        ):
            connection.execute(statement)


def down_sqlite(connection: Any) -> None:
    if _has_times(connection):
        for statement in (
            "DROP INDEX facts_recent",
            "CREATE INDEX facts_recent ON facts (scope_id, recent_at DESC, id)",
            "ALTER TABLE facts DROP COLUMN newest_at",
            "ALTER TABLE facts DROP COLUMN edited_at",
            "ALTER TABLE facts DROP COLUMN said_at",
            "ALTER TABLE reflections DROP COLUMN said_at",
        ):
            connection.execute(statement)


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    """Do nothing; see the module."""
