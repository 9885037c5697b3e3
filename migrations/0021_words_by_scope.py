"""Index each word of a fact with its scope, so that a search reads only facts of its scopes.

SQLite: ``facts_text`` and, if it exists, ``facts_source`` are created again, empty; edenmem fills
them after the step. The texts of ``facts_source`` move to a table of their own. MongoDB: nothing;
its indexes have the scope as a field.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

_BEFORE = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
_AFTER = "unicode61 remove_diacritics 0 categories 'L* N* Co Mn Mc'"

#: Scripts without spaces, whose characters were words of the index.
_UNSPACED = (
    "[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f]"
)


def up_sqlite(connection: Any) -> None:
    if "scope" in _columns(connection, "facts_text"):
        _drop(connection, "facts_words", "facts_text")
        connection.execute(
            "CREATE VIRTUAL TABLE facts_text USING fts5"
            f" (content, content = '', tokenize = \"{_AFTER}\")"
        )
        connection.execute("CREATE VIRTUAL TABLE facts_words USING fts5vocab (facts_text, 'row')")
    if "scope" in _columns(connection, "facts_source"):
        connection.execute(
            "CREATE TABLE facts_source_texts (fact_no INTEGER PRIMARY KEY,"
            " scope_id INTEGER NOT NULL, messages TEXT NOT NULL, content TEXT NOT NULL) STRICT"
        )
        connection.execute(  # the first word of the scope was its number; row -1 is the progress
            "INSERT INTO facts_source_texts SELECT s.id, coalesce(f.scope_id, 0),"
            " iif(s.id < 0, s.c0, substr(s.c0, instr(s.c0, ' ') + 1)), s.c1"
            " FROM facts_source_content s LEFT JOIN facts f ON f.fact_no = s.id"
            " WHERE s.id < 0 OR f.fact_no IS NOT NULL"
        )
        _drop(connection, "facts_source_words", "facts_source")
        connection.execute(
            "CREATE VIRTUAL TABLE facts_source USING fts5"
            f" (content, messages, content = '', tokenize = \"{_AFTER}\")"
        )
        connection.execute(
            "CREATE VIRTUAL TABLE facts_source_words USING fts5vocab (facts_source, 'row')"
        )


def down_sqlite(connection: Any) -> None:
    connection.create_function("spaced", 1, _spaced, deterministic=True)
    if "scope" not in _columns(connection, "facts_text"):
        _drop(connection, "facts_words", "facts_text")
        connection.execute(
            "CREATE VIRTUAL TABLE facts_text USING fts5"
            f" (scope, content, content = '', tokenize = \"{_BEFORE}\")"
        )
        connection.execute("CREATE VIRTUAL TABLE facts_words USING fts5vocab (facts_text, 'row')")
        connection.execute(
            "INSERT INTO facts_text (rowid, scope, content)"
            " SELECT fact_no, 's' || scope_id, spaced(CAST(content AS BLOB)) FROM facts"
            " ORDER BY fact_no"
        )
    if "messages" in _columns(connection, "facts_source"):
        _drop(connection, "facts_source_words", "facts_source")
        connection.execute(
            f'CREATE VIRTUAL TABLE facts_source USING fts5 (scope, content, tokenize = "{_BEFORE}")'
        )
        connection.execute(
            "CREATE VIRTUAL TABLE facts_source_words USING fts5vocab (facts_source, 'row')"
        )
        connection.execute(
            "INSERT INTO facts_source (rowid, scope, content) SELECT fact_no,"
            " iif(fact_no < 0, messages, 's' || scope_id || ' ' || messages),"
            " spaced(CAST(content AS BLOB)) FROM facts_source_texts ORDER BY fact_no"
        )
        _drop(connection, "facts_source_texts")


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def _columns(connection: Any, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def _drop(connection: Any, *tables: str) -> None:
    for table in tables:
        connection.execute(f"DROP TABLE IF EXISTS {table}")


def _spaced(content: bytes) -> str:
    """Return a text as it was indexed before; damaged text does not stop the migration."""
    text = content.decode(errors="replace")
    if text.isascii():
        return text
    return re.sub(_UNSPACED, r" \g<0> ", unicodedata.normalize("NFKC", text))
