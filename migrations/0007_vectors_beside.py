"""Add a second, staged vector to facts, for a switch to another embedding model.

SQLite: ``vectors_beside`` holds staged vectors, and ``vector_codes`` their codes. Models are
identified by name and vector length, so that a model may change its length. MongoDB: fields of the
fact, which need no step.
"""

from __future__ import annotations

from typing import Any

_MODELS = """
    CREATE TABLE embedding_models (
        model_id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        dimensions INTEGER NOT NULL,
        UNIQUE (name, dimensions)
    ) STRICT
"""
_OLD_MODELS = """
    CREATE TABLE embedding_models (
        model_id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        dimensions INTEGER NOT NULL
    ) STRICT
"""
_STEPS = (
    """
    CREATE TABLE IF NOT EXISTS vectors_beside (
        fact_no INTEGER PRIMARY KEY REFERENCES facts (fact_no) ON DELETE CASCADE,
        model_id INTEGER NOT NULL REFERENCES embedding_models (model_id),
        vector BLOB NOT NULL
    ) STRICT
    """,
    # At most one row: a store has one switch at a time.
    """
    CREATE TABLE IF NOT EXISTS vector_switch (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        model TEXT NOT NULL,
        dimensions INTEGER NOT NULL,
        previous TEXT NOT NULL,
        phase TEXT NOT NULL
            CHECK (phase IN ('filling', 'switched', 'settling', 'clearing', 'abandoning')),
        begun_at INTEGER NOT NULL,
        switched_at INTEGER
    ) STRICT
    """,
)


def _made_anew(connection: Any, statement: str) -> None:
    """Recreate the table of models with new constraints; rows keep their numbers.

    References of facts are checked at the end.
    """
    connection.execute("PRAGMA defer_foreign_keys = ON")
    rows = connection.execute("SELECT model_id, name, dimensions FROM embedding_models").fetchall()
    connection.execute("DROP TABLE embedding_models")
    connection.execute(statement)
    connection.executemany("INSERT INTO embedding_models VALUES (?, ?, ?)", rows)


def _declared(connection: Any) -> str:
    row = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE name = 'embedding_models'"
    ).fetchone()
    return str(row[0])


def up_sqlite(connection: Any) -> None:
    if "UNIQUE (name, dimensions)" not in _declared(connection):
        _made_anew(connection, _MODELS)
    for step in _STEPS:
        connection.execute(step)


def down_sqlite(connection: Any) -> None:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
    if "vectors_beside" in tables:
        connection.execute(
            "DELETE FROM vector_codes WHERE EXISTS (SELECT 1 FROM vectors_beside b JOIN facts f"
            " USING (fact_no) WHERE b.fact_no = vector_codes.fact_no"
            " AND b.model_id = vector_codes.model_id AND f.model_id IS NOT b.model_id)"
        )
    connection.execute("DROP TABLE IF EXISTS vectors_beside")
    connection.execute("DROP TABLE IF EXISTS vector_switch")
    if "UNIQUE (name, dimensions)" in _declared(connection):
        # If a name has vectors of several lengths, the newest keep the name. The others are
        # renamed; a backfill replaces their vectors.
        connection.execute(
            "UPDATE embedding_models SET name = name || ' (' || dimensions || ')'"
            " WHERE model_id NOT IN (SELECT max(model_id) FROM embedding_models GROUP BY name)"
        )
        _made_anew(connection, _OLD_MODELS)


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    database["memory2_facts"].update_many(
        {"embedding_next": {"$exists": True}},
        {"$unset": {"embedding_next": "", "embedding_next_model": "", "embedding_next_hash": ""}},
    )
    database.drop_collection("memory2_switch")
