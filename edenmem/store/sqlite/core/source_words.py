"""The optional index of source messages, written in the transactions of facts and messages.

The index has one row for each fact that was formed from single messages, with the words of the
messages and their IDs, by which facts are found when a message changes. A table has the texts of
the rows, so that a row can be deleted after its messages are gone.

While the index is being built, one more row of that table has the number of the last indexed fact.
A search needs a complete index.

A separate table lists the source messages that are missing when a fact is indexed, as in a backup
with facts before messages.
"""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Iterable, Sequence

from edenmem.errors import ConflictError, StoreError
from edenmem.search.words import MOST_SOURCES, source_text
from edenmem.store.protocol.store import batched
from edenmem.store.sqlite.core.codec import from_list
from edenmem.store.sqlite.core.connections import Connections
from edenmem.store.sqlite.core.part import AMONG, json_array
from edenmem.store.sqlite.core.words import TOKENIZER, index_texts, quote

INDEX = "facts_source"
TEXTS = "facts_source_texts"
WORDS = "facts_source_words"
_AWAITED = "facts_source_awaited"

#: Messages that are not forgotten.
_SEARCHABLE = "m.id NOT IN (SELECT id FROM forgotten_messages) AND m.content <> ''"
#: Facts with source messages to index.
INDEXABLE = (
    f"json_array_length(f.source_message_ids) BETWEEN 1 AND {MOST_SOURCES} AND EXISTS"
    " (SELECT 1 FROM json_each(f.source_message_ids) s JOIN messages m ON m.id = s.value"
    f" WHERE {_SEARCHABLE})"
)
#: Inserts the source messages of a fact that are missing.
_AWAIT = (
    f"INSERT OR IGNORE INTO {_AWAITED} SELECT s.value, f.fact_no FROM facts f,"
    " json_each(f.source_message_ids) s WHERE json_array_length(f.source_message_ids) <= ?"
    " AND f.fact_no = ? AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = s.value)"
)
#: Facts in one transaction, small enough for other writers to wait only briefly.
BATCH = 200
#: The row of an incomplete index with the last indexed fact; facts have positive numbers.
PROGRESS = -1
#: Seconds between transactions, in which other processes can write.
_YIELD = 0.02
#: Pages of the index to write in one step of a merge (about 4 kB each).
_MERGE_PAGES = 250
#: Changed rows of a merge that had something to do; see "merge" in the documentation of FTS5.
_MERGE_WORK = 2
#: A number above those of all facts.
_LAST_NUMBER = 2**63 - 1

#: A row of the texts: fact number, scope, message IDs separated by spaces, text.
_Row = tuple[int, int, str, str]


def has_index(connection: sqlite3.Connection) -> bool:
    """Return whether the file has the index."""
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (INDEX,))
    return found.fetchone() is not None


def is_complete(connection: sqlite3.Connection) -> bool:
    """Return whether the file has the index of all facts."""
    return has_index(connection) and read_progress(connection) is None


def require_complete(connection: sqlite3.Connection) -> None:
    """Check that source messages can be searched.

    Raises:
        StoreError: the index is missing or incomplete.
    """
    if not is_complete(connection):
        raise StoreError(
            f"index {INDEX} is missing or incomplete",
            hint=f"'edenmem index create {INDEX}' creates or completes it",
        )


def read_progress(connection: sqlite3.Connection) -> int | None:
    """Return the last indexed fact of an incomplete index, or None for a complete one."""
    rows = connection.execute(f"SELECT messages FROM {TEXTS} WHERE fact_no = ?", (PROGRESS,))
    row = rows.fetchone()
    return None if row is None else int(row[0])


def create_index(connection: sqlite3.Connection) -> None:
    """Create the index, empty and incomplete. Nothing happens if it exists."""
    if has_index(connection):
        return
    connection.execute(
        f"CREATE TABLE {_AWAITED} (message_id TEXT, fact_no INTEGER,"
        " PRIMARY KEY (message_id, fact_no)) STRICT, WITHOUT ROWID"
    )
    connection.execute(
        f"CREATE TABLE {TEXTS} (fact_no INTEGER PRIMARY KEY, scope_id INTEGER NOT NULL,"
        " messages TEXT NOT NULL, content TEXT NOT NULL) STRICT"
    )
    connection.execute(
        f"CREATE VIRTUAL TABLE {INDEX} USING fts5 (content, messages, content = '',"
        f' tokenize = "{TOKENIZER}")'
    )
    connection.execute(f"CREATE VIRTUAL TABLE {WORDS} USING fts5vocab ({INDEX}, 'row')")
    _write_progress(connection, 0)


def drop_index(connection: sqlite3.Connection) -> None:
    """Drop the index with its words."""
    for table in (WORDS, INDEX, TEXTS, _AWAITED):
        connection.execute(f"DROP TABLE IF EXISTS {table}")


def index_batch(connection: sqlite3.Connection, after: int) -> int | None:
    """Index the next facts after a fact number; return the last number, or None at the end.

    Rows of facts that no longer exist are removed. The end completes the index.

    Raises:
        ConflictError: the index was dropped in the meantime.
    """
    if not has_index(connection):
        raise ConflictError(
            f"index {INDEX} was dropped by another process",
            hint=f"'edenmem index create {INDEX}' creates it again",
        )
    progress = read_progress(connection)
    if progress is not None:
        after = progress  # another process may build the index too
    rows = connection.execute(
        "SELECT fact_no, scope_id, source_message_ids FROM facts WHERE fact_no > ?"
        " ORDER BY fact_no LIMIT ?",
        (after, BATCH),
    ).fetchall()
    last: int | None = rows[-1][0] if rows else None
    _remove(connection, after + 1, _LAST_NUMBER if last is None else last)
    for number, scope_id, sources in rows:
        _replace(connection, number, scope_id, from_list(sources))
    if progress is not None:
        _write_progress(connection, last)
    return last


def merge_index(db: Connections) -> None:
    """Merge the index in short transactions, so that no word of an earlier row stays in it."""
    pages, has_more = -_MERGE_PAGES, True  # negative: include all segments
    while has_more:
        with db.writing() as connection:
            if not has_index(connection):
                return
            before = connection.total_changes
            connection.execute(f"INSERT INTO {INDEX} ({INDEX}, rank) VALUES ('merge', ?)", (pages,))
            has_more = connection.total_changes - before >= _MERGE_WORK
        pages = _MERGE_PAGES
        yield_to_writers()


def yield_to_writers() -> None:
    """Pause between two transactions, so that waiting writers get their turn."""
    time.sleep(_YIELD)


def _write_progress(connection: sqlite3.Connection, last: int | None) -> None:
    connection.execute(f"DELETE FROM {TEXTS} WHERE fact_no = ?", (PROGRESS,))
    if last is not None:
        connection.execute(f"INSERT INTO {TEXTS} VALUES (?, 0, ?, '')", (PROGRESS, str(last)))


def put_words(
    connection: sqlite3.Connection, number: int, scope_id: int, sources: Sequence[str]
) -> None:
    """Index the words of a fact's source messages in place of those before."""
    if has_index(connection):
        _replace(connection, number, scope_id, sources)


def drop_words(connection: sqlite3.Connection, number: int) -> None:
    """Remove a fact that still exists from the index."""
    if not has_index(connection):
        return
    _remove(connection, number, number)
    connection.execute(
        f"DELETE FROM {_AWAITED} WHERE fact_no = ?1 AND message_id IN (SELECT s.value"
        " FROM facts f, json_each(iif(json_valid(f.source_message_ids), f.source_message_ids,"
        " '[]')) s WHERE f.fact_no = ?1)",
        (number,),
    )


def refresh_words(connection: sqlite3.Connection, message_ids: Iterable[str]) -> None:
    """Index the facts formed from these messages again, after a message was changed or deleted."""
    if not has_index(connection):
        return
    rows = {
        row[0]: row
        for message_id in message_ids
        for row in connection.execute(
            f"SELECT f.fact_no, f.scope_id, f.source_message_ids FROM {INDEX} t"
            f" JOIN facts f ON f.fact_no = t.rowid WHERE {INDEX} MATCH ?",
            (f"messages : {quote(message_id)}",),
        )
    }
    _index_again(connection, rows.values())


def index_late_messages(connection: sqlite3.Connection, message_ids: Iterable[str]) -> None:
    """Index the facts that were stored before these messages."""
    ids = json_array(message_ids)
    if not has_index(connection):
        return
    rows = connection.execute(
        "SELECT DISTINCT f.fact_no, f.scope_id, f.source_message_ids FROM json_each(?) m"
        f" CROSS JOIN {_AWAITED} a ON a.message_id = m.value"
        " CROSS JOIN facts f ON f.fact_no = a.fact_no",
        (ids,),
    ).fetchall()
    connection.execute(f"DELETE FROM {_AWAITED} WHERE message_id {AMONG}", (ids,))
    _index_again(connection, rows)


def _index_again(connection: sqlite3.Connection, rows: Collection[tuple[int, int, str]]) -> None:
    """Index facts again, given as (fact number, scope, source messages)."""
    for number, scope_id, sources in rows:
        _replace(connection, number, scope_id, from_list(sources))
    connection.execute(
        f"UPDATE scopes SET revision = revision + 1 WHERE scope_id {AMONG}",
        (json_array({scope_id for _, scope_id, _ in rows}),),
    )


def _replace(
    connection: sqlite3.Connection, number: int, scope_id: int, sources: Sequence[str]
) -> None:
    _remove(connection, number, number)
    if not 1 <= len(sources) <= MOST_SOURCES:
        return
    connection.execute(_AWAIT, (MOST_SOURCES, number))
    rows = connection.execute(
        f"SELECT m.content FROM messages m WHERE m.id {AMONG} AND {_SEARCHABLE}"
        " ORDER BY m.created_at, m.id",
        (json_array(sources),),
    )
    text = source_text(content for (content,) in rows)
    if text:
        row = (number, scope_id, " ".join(sources), text)
        connection.execute(f"INSERT INTO {TEXTS} VALUES (?, ?, ?, ?)", row)
        _add(connection, [row])


def rebuild_index(connection: sqlite3.Connection) -> None:
    """Rebuild the index from its texts."""
    connection.execute(f"INSERT INTO {INDEX} ({INDEX}) VALUES ('delete-all')")
    rows = connection.execute(f"SELECT * FROM {TEXTS} WHERE fact_no <> ?", (PROGRESS,))
    for batch in batched(rows, BATCH):
        _add(connection, batch)


def _add(connection: sqlite3.Connection, rows: Sequence[_Row]) -> None:
    connection.executemany(
        f"INSERT INTO {INDEX} (rowid, content, messages) VALUES (?, ?, ?)", _index_rows(rows)
    )


def _remove(connection: sqlite3.Connection, first: int, last: int) -> None:
    """Remove the rows of a range of fact numbers from the index."""
    within = f"FROM {TEXTS} WHERE fact_no BETWEEN ? AND ?"
    select = f"SELECT * {within} ORDER BY fact_no LIMIT ?"
    rows = connection.execute(select, (first, last, BATCH)).fetchall()
    while rows:
        connection.executemany(
            f"INSERT INTO {INDEX} ({INDEX}, rowid, content, messages) VALUES ('delete', ?, ?, ?)",
            _index_rows(rows),
        )
        connection.execute(f"DELETE {within}", (first, rows[-1][0]))
        rows = connection.execute(select, (first, last, BATCH)).fetchall()


def _index_rows(rows: Sequence[_Row]) -> list[tuple[int, str, str]]:
    """Return fact number, words with their scope, and messages of rows."""
    words = index_texts([(number, scope_id, text) for number, scope_id, _, text in rows])
    return [(number, each, ids) for (number, _, ids, _), each in zip(rows, words, strict=True)]
