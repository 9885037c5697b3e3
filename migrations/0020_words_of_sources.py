"""Messages that were forgotten, and the optional index of source messages, ``facts_source``.

SQLite: a table of message ids, whose words no search for facts uses. The index is created by
``index create facts_source``; older versions of edenmem would change facts and messages without the
index, and this step keeps them away. MongoDB: the collection ``memory2_forgotten_messages``, which
the first document creates.
"""

from __future__ import annotations

from typing import Any


def up_sqlite(connection: Any) -> None:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS forgotten_messages (id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID"
    )


def down_sqlite(connection: Any) -> None:
    connection.execute("DROP TABLE IF EXISTS facts_source_words")
    connection.execute("DROP TABLE IF EXISTS facts_source")
    connection.execute("DROP TABLE IF EXISTS forgotten_messages")


def up_mongo(database: Any) -> None:
    """Nothing: see the module."""


def down_mongo(database: Any) -> None:
    database["memory2_forgotten_messages"].drop()
