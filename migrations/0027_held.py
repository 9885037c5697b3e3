"""Add the items that wait for review.

SQLite: a table; no index for search has its texts. MongoDB: the collection ``memory2_held``, which
the first document creates.
"""

from __future__ import annotations

from typing import Any


def up_sqlite(connection: Any) -> None:
    for statement in (
        "CREATE TABLE IF NOT EXISTS held (held_no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,"
        " scope_id INTEGER NOT NULL REFERENCES scopes, kind TEXT NOT NULL, content TEXT NOT NULL,"
        " quote TEXT NOT NULL, reasons TEXT NOT NULL, source_message_ids TEXT, private INTEGER"
        " NOT NULL, formation_id TEXT, session_id TEXT, held_at INTEGER NOT NULL) STRICT",
        "CREATE INDEX IF NOT EXISTS held_scope ON held (scope_id, held_at DESC, id)",
        "CREATE INDEX IF NOT EXISTS held_session ON held (session_id)",
    ):
        connection.execute(statement)


def down_sqlite(connection: Any) -> None:
    connection.execute("DROP TABLE IF EXISTS held")


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    database["memory2_held"].drop()
