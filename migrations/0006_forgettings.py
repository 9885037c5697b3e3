"""Add forgettings, and indexes for finding traces.

SQLite: tables and indexes. MongoDB: a separate collection, whose indexes are declared as data.
"""

from __future__ import annotations

from typing import Any

_STEPS = (
    """
    CREATE TABLE IF NOT EXISTS forgettings (
        id TEXT PRIMARY KEY,
        kind TEXT NOT NULL,
        begun_at INTEGER NOT NULL,
        closed_at INTEGER,
        counts TEXT NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    # Hashes of forgotten scopes and sources, and of names of the subject.
    """
    CREATE TABLE IF NOT EXISTS forgetting_blocks (
        key TEXT NOT NULL,
        forgetting_id TEXT NOT NULL REFERENCES forgettings (id) ON DELETE CASCADE,
        PRIMARY KEY (key, forgetting_id)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE INDEX IF NOT EXISTS forgetting_blocks_of ON forgetting_blocks (forgetting_id)
    """,
    """
    CREATE INDEX IF NOT EXISTS reflections_session ON reflections (session_id)
        WHERE session_id IS NOT NULL
    """,
    "CREATE INDEX IF NOT EXISTS history_scope ON history (scope_id)",
    """
    CREATE INDEX IF NOT EXISTS reflections_propagated ON reflections (reflection_no)
        WHERE propagated_from IS NOT NULL
    """,
)


def up_sqlite(connection: Any) -> None:
    for step in _STEPS:
        connection.execute(step)


def down_sqlite(connection: Any) -> None:
    for index in ("reflections_session", "reflections_propagated", "history_scope"):
        connection.execute(f"DROP INDEX IF EXISTS {index}")
    for table in ("forgetting_blocks", "forgettings"):
        connection.execute(f"DROP TABLE IF EXISTS {table}")


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    database.drop_collection("memory2_forgettings")
