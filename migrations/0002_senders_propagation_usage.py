"""Index senders of messages, mark versions to propagate, and add usage of models.

SQLite: columns, a table and indexes. MongoDB: nothing; indexes are declared as data.
"""

from __future__ import annotations

from typing import Any

_STEPS = (
    """
    CREATE INDEX IF NOT EXISTS messages_senders ON messages (session_id, sender)
        WHERE role = 'user' AND trigger = 0 AND sender IS NOT NULL
    """,
    """
    CREATE INDEX IF NOT EXISTS consolidations_unpropagated ON consolidations (scope_id)
        WHERE unpropagated IS NOT NULL
    """,
    # ``calls`` is a JSON array like the column ``usage`` of formations.
    """
    CREATE TABLE IF NOT EXISTS usage_entries (
        id TEXT PRIMARY KEY,
        at INTEGER NOT NULL,
        agent_id TEXT NOT NULL,
        work TEXT NOT NULL,
        calls TEXT NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX IF NOT EXISTS usage_entries_time ON usage_entries (at)",
    "CREATE INDEX IF NOT EXISTS usage_entries_agent ON usage_entries (agent_id, at)",
)


def up_sqlite(connection: Any) -> None:
    columns = {row[1] for row in connection.execute("PRAGMA table_info(consolidations)")}
    if "unpropagated" not in columns:
        # A JSON array of version numbers; NULL if there are none.
        connection.execute("ALTER TABLE consolidations ADD COLUMN unpropagated TEXT")
    for step in _STEPS:
        connection.execute(step)


def down_sqlite(connection: Any) -> None:
    for index in ("messages_senders", "consolidations_unpropagated"):
        connection.execute(f"DROP INDEX IF EXISTS {index}")
    connection.execute("DROP TABLE IF EXISTS usage_entries")
    columns = {row[1] for row in connection.execute("PRAGMA table_info(consolidations)")}
    if "unpropagated" in columns:
        connection.execute("ALTER TABLE consolidations DROP COLUMN unpropagated")


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    """Do nothing: an older edenmem ignores unknown fields."""
