"""A ledger of runs that brought data here, and facts of others with the fields that we add.

Facts that the platform or another program wrote may lack what edenmem relies on: the hash of the
text by which a scope has each fact once, the version by which changes are kept apart, the time when
it was formed, and the count of accesses. Reading does without; writing does it better with them.

SQLite: its columns demand all of these, but a program may have written a blank hash or no proper
version. MongoDB: in batches by id, each document conditional on its text, so that it may be cut
off and run again, while others write. A fact whose text its scope has already (the unique key
refuses its hash) is left as it is, for whoever cleans up duplicates.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

_TABLES = (
    # ``document`` is the run as JSON; the columns are what it is looked up by.
    """
    CREATE TABLE IF NOT EXISTS migration_runs (
        id TEXT PRIMARY KEY,
        started_at INTEGER NOT NULL,
        document TEXT NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE IF NOT EXISTS migration_leases (
        name TEXT PRIMARY KEY,
        holder TEXT NOT NULL,
        until INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
)

_BATCH = 500
_FACTS = "memory2_facts"
_FIELDS = ("hash", "version", "access_count", "formed_at")


def _hash(content: str) -> str:
    raw = content.encode("utf-8", "surrogatepass")
    return hashlib.md5(raw, usedforsecurity=False).hexdigest()


def up_sqlite(connection: Any) -> None:
    for statement in _TABLES:
        connection.execute(statement)
    last = -1
    while True:
        rows = connection.execute(
            "SELECT fact_no, content, hash, version FROM facts"
            " WHERE fact_no > ? AND (hash = '' OR version < 1) ORDER BY fact_no LIMIT ?",
            (last, _BATCH),
        ).fetchall()
        if not rows:
            return
        for number, content, digest, version in rows:
            # A twin keeps the hash: then this one stays as it is, as the key demands.
            connection.execute(
                "UPDATE OR IGNORE facts SET hash = ?, version = ? WHERE fact_no = ?",
                (digest or _hash(content), max(version, 1), number),
            )
        last = rows[-1][0]


def down_sqlite(connection: Any) -> None:
    for table in ("migration_runs", "migration_leases"):
        connection.execute(f"DROP TABLE IF EXISTS {table}")


def up_mongo(database: Any) -> None:
    from pymongo import UpdateOne
    from pymongo.errors import BulkWriteError

    facts = database[_FACTS]
    last: Any = None
    while True:
        lacking: dict[str, Any] = {"$or": [{field: None} for field in _FIELDS]}
        if last is not None:
            lacking["_id"] = {"$gt": last}
        documents = list(facts.find(lacking, {"embedding": 0}).sort("_id", 1).limit(_BATCH))
        if not documents:
            return
        updates = [
            UpdateOne(
                {"_id": document["_id"], "content": document.get("content")},
                {"$set": _missing(document)},
            )
            for document in documents
        ]
        try:
            facts.bulk_write(updates, ordered=False)
        except BulkWriteError as error:
            refused = error.details.get("writeErrors") or []
            if any(each.get("code") != 11000 for each in refused) or not refused:
                raise
        last = documents[-1]["_id"]


def _missing(document: dict[str, Any]) -> dict[str, Any]:
    content = document.get("content")
    made = document.get("createdAt")
    if not isinstance(made, datetime):
        made = getattr(document["_id"], "generation_time", datetime(1970, 1, 1, tzinfo=UTC))
    wanted = {
        "hash": _hash(content if isinstance(content, str) else ""),
        "version": 1,
        "access_count": 0,
        "formed_at": made,
    }
    return {field: value for field, value in wanted.items() if document.get(field) is None}


def down_mongo(database: Any) -> None:
    """Nothing: fields that an older edenmem does not know do not disturb it."""
