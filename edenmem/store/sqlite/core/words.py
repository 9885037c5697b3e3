"""What the full-text index is given and asked: quoted words, and those that stand for scopes."""

from __future__ import annotations

import sqlite3

from edenmem.search.words import normalise_for_index


def quote(word: str) -> str:
    """A word or phrase as an FTS5 string: whatever is in it is text, never syntax."""
    return '"' + word.replace('"', '""').replace("\0", " ") + '"'


def scope_word(scope_id: int) -> str:
    """The word that stands for a scope in the index."""
    return f"s{scope_id}"


def rebuild_text_index(connection: sqlite3.Connection) -> None:
    """Empty the full-text index, teach it every fact, and merge what it wrote."""
    connection.execute("INSERT INTO facts_text (facts_text) VALUES ('delete-all')")
    rows = connection.execute("SELECT fact_no, scope_id, content FROM facts ORDER BY fact_no")
    connection.executemany(
        "INSERT INTO facts_text (rowid, scope, content) VALUES (?, ?, ?)",
        (
            (number, scope_word(scope), normalise_for_index(content))
            for number, scope, content in rows
        ),
    )
    connection.execute("INSERT INTO facts_text (facts_text) VALUES ('optimize')")
