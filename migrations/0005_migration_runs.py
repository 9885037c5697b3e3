"""Add a ledger of migration runs, and complete facts of other programs.

Facts of the platform or other programs may lack fields of edenmem: the hash of the text (each text
occurs once per scope), the version, the time of formation, and the access count. Reads work without
these fields, but writes benefit from them.

SQLite: the columns are required, but hashes may be blank and versions invalid. MongoDB: batches by
ID, each update conditional on the text, so that the step can be interrupted and repeated during
other writes. A fact with a text that its scope already has (the unique key rejects its hash) is
left unchanged, as a duplicate.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

_TABLES = (
    # ``document`` is the run as JSON; the other columns are for lookups.
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
            # Another fact has the hash: leave this one unchanged, as the key requires.
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
    """Do nothing: an older edenmem ignores unknown fields."""
