"""Text for the full-text index: quoted words, and words for scopes."""

from __future__ import annotations

import sqlite3

from edenmem.search.words import normalize_for_index


def quote(word: str) -> str:
    """Quote a word or phrase as an FTS5 string, without syntax."""
    return '"' + word.replace('"', '""').replace("\0", " ") + '"'


def scope_word(scope_id: int) -> str:
    """Return the index word of a scope."""
    return f"s{scope_id}"


def rebuild_text_index(connection: sqlite3.Connection) -> None:
    """Rebuild the full-text index from all facts, and merge its segments."""
    connection.execute("INSERT INTO facts_text (facts_text) VALUES ('delete-all')")
    rows = connection.execute("SELECT fact_no, scope_id, content FROM facts ORDER BY fact_no")
    connection.executemany(
        "INSERT INTO facts_text (rowid, scope, content) VALUES (?, ?, ?)",
        (
            (number, scope_word(scope), normalize_for_index(content))
            for number, scope, content in rows
        ),
    )
    connection.execute("INSERT INTO facts_text (facts_text) VALUES ('optimize')")
