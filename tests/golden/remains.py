"""What is stored at the end of the scripted day, as the databases themselves show it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

#: Tables and collections with memory or its record in them.
_TABLES = (
    "agents",
    "users",
    "sessions",
    "scopes",
    "facts",
    "reflections",
    "consolidations",
    "policies",
    "history",
    "audit",
    "formations",
    "forgettings",
    "migration_runs",
)


def stored(uri: str) -> Iterator[tuple[str, Any]]:
    """Every row or document of the store at ``uri``, with its table."""
    return _rows(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite") else _documents(uri)


def _rows(path: str) -> Iterator[tuple[str, Any]]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        for table in _TABLES:
            for row in connection.execute(f"SELECT * FROM {table}"):
                fields = dict(row)
                fields.pop("salts", None)  # random
                if fields.get("erased", "") is None:
                    del fields["erased"]
                yield table, fields


def _documents(uri: str) -> Iterator[tuple[str, Any]]:
    from pymongo import MongoClient

    with MongoClient[dict[str, Any]](uri) as client:
        database = client.get_default_database()
        for name in sorted(database.list_collection_names()):
            if name.startswith("memory2_") or name in ("sessions", "users3"):
                for document in database[name].find():
                    document.pop("salts", None)  # random, as are all hashes in seals
                    if name != "memory2_seals" and not str(document["_id"]).startswith("guard/"):
                        yield name, document
