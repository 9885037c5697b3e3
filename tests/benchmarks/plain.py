"""The baseline "plain script": what one would write by hand with SQLite, FTS5 and numpy.

No audit, no history, no versions, no policies, no checks: rows, a full-text index, vectors and
one-bit codes. As a program it answers one query in a new process: ``plain.py FILE QUERY.json``.
"""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

_TABLES = """
CREATE TABLE facts (
    no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, scope TEXT NOT NULL, content TEXT NOT NULL,
    formed_at INTEGER NOT NULL
);
CREATE INDEX facts_scope ON facts (scope, formed_at DESC);
CREATE VIRTUAL TABLE words USING fts5 (
    content, content = facts, content_rowid = no, tokenize = 'porter unicode61'
);
CREATE TABLE vectors (no INTEGER PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE codes (
    scope TEXT NOT NULL, no INTEGER NOT NULL, code BLOB NOT NULL, PRIMARY KEY (scope, no)
) WITHOUT ROWID;
CREATE TABLE texts (scope TEXT PRIMARY KEY, content TEXT NOT NULL);
CREATE TABLE reflections (
    no INTEGER PRIMARY KEY, scope TEXT NOT NULL, content TEXT NOT NULL, formed_at INTEGER NOT NULL
);
CREATE INDEX reflections_scope ON reflections (scope, formed_at DESC)
"""
_DEPTH = 100
_EXACT = 300
_K = 60

#: id, scope, content, milliseconds, vector.
Row = tuple[str, str, str, int, bytes | None]


def connect(path: Path) -> sqlite3.Connection:
    """A connection with the same promises as edenmem's: a commit is on the disk."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA page_size = 32768")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -65536")
    return connection


def create(path: Path) -> sqlite3.Connection:
    """A new file with its tables."""
    connection = connect(path)
    for statement in _TABLES.split(";\n"):
        connection.execute(statement)
    return connection


def add(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Insert facts with all indexes, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    insert(connection, rows)
    connection.execute("COMMIT")


def insert(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Insert facts with all indexes, in the caller's transaction."""
    (last,) = connection.execute("SELECT coalesce(max(no), 0) FROM facts").fetchone()
    numbered = list(enumerate(rows, last + 1))
    connection.executemany(
        "INSERT INTO facts VALUES (?, ?, ?, ?, ?)", [(no, *row[:4]) for no, row in numbered]
    )
    connection.executemany(
        "INSERT INTO words (rowid, content) VALUES (?, ?)", [(no, row[2]) for no, row in numbered]
    )
    with_vectors = [(no, row[1], row[4]) for no, row in numbered if row[4] is not None]
    connection.executemany(
        "INSERT INTO vectors VALUES (?, ?)", [(no, vector) for no, _, vector in with_vectors]
    )
    connection.executemany(
        "INSERT INTO codes VALUES (?, ?, ?)",
        [(scope, no, _code(vector)) for no, scope, vector in with_vectors],
    )


def _code(vector: bytes) -> bytes:
    return np.packbits(np.frombuffer(vector, np.float32) > 0).tobytes()


class Searcher:
    """Hybrid search; keeps the codes that it has read, and never looks whether they changed."""

    def __init__(self, path: Path) -> None:
        self._db = connect(path)
        self._known: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def search(
        self, text: str, vector: bytes | None, scopes: Sequence[str], top_k: int = 10
    ) -> list[str]:
        """The ids of the best facts; without a vector by words alone."""
        lists = [self._by_words(text, scopes)]
        if vector is not None:
            lists.append(self._by_meaning(vector, scopes))
        scores: dict[int, float] = {}
        for ranked in lists:
            for rank, no in enumerate(ranked):
                scores[no] = scores.get(no, 0.0) + 1 / (_K + rank)
        best = sorted(scores, key=lambda no: -scores[no])[:top_k]
        rows = self._db.execute(
            f"SELECT no, id, content, formed_at FROM facts WHERE no IN ({_marks(best)})", best
        )
        ids = {no: fact_id for no, fact_id, _, _ in rows}
        return [ids[no] for no in best]

    def _by_words(self, text: str, scopes: Sequence[str]) -> list[int]:
        query = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", text))
        rows = self._db.execute(
            "SELECT f.no FROM words JOIN facts f ON f.no = words.rowid"
            f" WHERE words MATCH ? AND f.scope IN ({_marks(scopes)})"
            " ORDER BY bm25(words) LIMIT ?",
            (query, *scopes, _DEPTH),
        )
        return [no for (no,) in rows]

    def _by_meaning(self, vector: bytes, scopes: Sequence[str]) -> list[int]:
        parts = [self._codes(scope) for scope in scopes]
        numbers = np.concatenate([part[0] for part in parts])
        codes = np.concatenate([part[1] for part in parts])
        if not len(numbers):
            return []
        query = np.frombuffer(_code(vector), np.uint64)
        distances = np.bitwise_count(codes ^ query).sum(axis=1, dtype=np.int32)
        if len(numbers) > _EXACT:
            numbers = numbers[np.argpartition(distances, _EXACT)[:_EXACT]]
        wanted = numbers.tolist()
        rows = self._db.execute(
            f"SELECT no, vector FROM vectors WHERE no IN ({_marks(wanted)})", wanted
        ).fetchall()
        matrix = np.frombuffer(b"".join(row[1] for row in rows), np.float32).reshape(len(rows), -1)
        cosines = matrix @ np.frombuffer(vector, np.float32)
        return [rows[place][0] for place in np.argsort(-cosines)[:_DEPTH].tolist()]

    def _codes(self, scope: str) -> tuple[np.ndarray, np.ndarray]:
        if scope not in self._known:
            rows = self._db.execute("SELECT no, code FROM codes WHERE scope = ?", (scope,))
            found = rows.fetchall()
            codes = np.frombuffer(b"".join(row[1] for row in found), np.uint64)
            self._known[scope] = (
                np.array([row[0] for row in found], np.int64),
                codes.reshape(len(found), -1) if found else np.zeros((0, 24), np.uint64),
            )
        return self._known[scope]


def context(connection: sqlite3.Connection, scopes: Sequence[str], since: int) -> str:
    """What a prompt needs, read and joined: texts, newest reflections, newest facts."""
    marks = _marks(scopes)
    parts: list[Iterable[tuple[str]]] = [
        connection.execute(f"SELECT content FROM texts WHERE scope IN ({marks})", scopes),
        connection.execute(
            f"SELECT content FROM reflections WHERE scope IN ({marks})"
            " ORDER BY formed_at DESC LIMIT 20",
            scopes,
        ),
        connection.execute(
            f"SELECT content FROM facts WHERE scope IN ({marks}) AND formed_at >= ?"
            " ORDER BY formed_at DESC LIMIT 40",
            (*scopes, since),
        ),
    ]
    return "\n".join(content for part in parts for (content,) in part)


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))


def main() -> None:
    """Answer the query of a file as JSON, or print the private memory after it in MiB."""
    query = json.loads(Path(sys.argv[2]).read_bytes())
    vector = bytes.fromhex(query["vector"]) if query["vector"] else None
    searcher = Searcher(Path(sys.argv[1]))
    ids = searcher.search(query["text"], vector, query["scopes"])
    if sys.argv[3:] == ["memory"]:
        from tests.benchmarks.memory import private

        sys.stdout.write(str(private()))
    else:
        sys.stdout.write(json.dumps(ids))


if __name__ == "__main__":
    main()
