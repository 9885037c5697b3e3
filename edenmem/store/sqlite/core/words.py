"""The full-text indexes: each word is indexed with its scope.

A word of scope 12 is ``12`` + U+E000 + the stem. FTS5 reads all facts that have a word, and a word
of another scope is another word, so a search reads only facts of its scopes. The words are split
and stemmed before (`edenmem.search.words.index_words`), so FTS5 only splits at spaces.
"""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from edenmem.search.words import index_words
from edenmem.store.protocol.store import batched

#: Ends the number of a scope. A private-use character, which the tokenizer keeps in a word.
_END = "\ue000"
#: The tokenizer of the indexes. A change needs a migration.
TOKENIZER = "unicode61 remove_diacritics 0 categories 'L* N* Co Mn Mc'"
_ADD = "INSERT INTO facts_text (rowid, content) VALUES (?, ?)"
#: Facts whose words are in memory during a rebuild.
_AT_ONCE = 200


def quote(word: str) -> str:
    """Quote a word or phrase as an FTS5 string, without syntax."""
    return '"' + word.replace('"', '""').replace("\0", " ") + '"'


def scope_prefix(scope_id: int) -> str:
    """Return the beginning of the words of a scope."""
    return f"{scope_id}{_END}"


def without_scope(word: str) -> str:
    """Return a word of an index without its scope."""
    return word.partition(_END)[2]


def scoped_words(scope_id: int, words: Iterable[str]) -> str:
    """Return words with their scope, as a text for an index or a phrase for a query."""
    prefix = scope_prefix(scope_id)
    return " ".join([prefix + word for word in words])


def add_text(connection: sqlite3.Connection, number: int, scope_id: int, content: str) -> None:
    """Add a fact to the index ``facts_text``."""
    (text,) = index_texts([(number, scope_id, content)])
    connection.execute(_ADD, (number, text))


def remove_text(connection: sqlite3.Connection, number: int, scope_id: int, content: str) -> None:
    """Remove a fact from the index, which needs its content as it was added."""
    (text,) = index_texts([(number, scope_id, content)])
    connection.execute(
        "INSERT INTO facts_text (facts_text, rowid, content) VALUES ('delete', ?, ?)",
        (number, text),
    )


def index_texts(rows: Sequence[tuple[int, int, str]]) -> list[str]:
    """Return the texts for an index of rows of (number, scope, content)."""
    words = index_words(content for _, _, content in rows)
    return [scoped_words(row[1], each) for row, each in zip(rows, words, strict=True)]


def is_empty(connection: sqlite3.Connection, index: str) -> bool:
    """Return whether a full-text index has no rows."""
    return connection.execute(f"SELECT 1 FROM {index}_docsize LIMIT 1").fetchone() is None


def rebuild_text_index(connection: sqlite3.Connection) -> None:
    """Rebuild the full-text index from all facts, and merge its segments.

    Of a damaged text, the readable words are indexed, so that it does not stop a migration.
    """
    connection.execute("INSERT INTO facts_text (facts_text) VALUES ('delete-all')")
    rows = connection.execute(
        "SELECT fact_no, scope_id, CAST(content AS BLOB) FROM facts ORDER BY fact_no"
    )
    for batch in batched(rows, _AT_ONCE):
        facts = [(number, scope, text.decode(errors="replace")) for number, scope, text in batch]
        numbers = (number for number, _, _ in facts)
        connection.executemany(_ADD, zip(numbers, index_texts(facts), strict=True))
    connection.execute("INSERT INTO facts_text (facts_text) VALUES ('optimize')")
