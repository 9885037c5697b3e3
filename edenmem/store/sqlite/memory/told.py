"""Notes of what left the engine."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from edenmem.models.forgetting import Traces
from edenmem.models.scope import ScopeKind
from edenmem.models.told import Note, Reply, Shown, forgotten_in, keys_of, pack, unpack, without
from edenmem.store.sqlite.core.codec import Table, to_ms
from edenmem.store.sqlite.core.part import AMONG, Part, json_array

_REPLIES = Table(
    Reply,
    "told_replies",
    "r",
    "id kind agent_id session_id user_id message_id context found",
    times="at built_at",
    start=0,
)
_INSERT = _REPLIES.insert(otherwise="OR IGNORE ")
_LISTS = f"(SELECT list_id FROM told_keys WHERE key {AMONG})"

#: The replies that are removed with a subject.
_OF_SUBJECT = (
    f"agent_id {AMONG} OR (coalesce(agent_id = ?, 1) AND (user_id {AMONG} OR session_id {AMONG}))"
)
#: Rows to remove in one transaction.
_AT_ONCE = 5000
_DAY = 24 * 60 * 60 * 1000


class Told(Part):
    """See `edenmem.store.protocol.log.Told`."""

    def add(self, notes: Sequence[Note]) -> None:
        with self._db.writing(durable=False) as connection:
            add_notes(connection, notes)

    def replies(
        self,
        *,
        keys: Sequence[str] | None = None,
        reply_id: str | None = None,
        session_id: str | None = None,
        agent_id: str | None = None,
        user_ids: Sequence[str] | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> list[Reply]:
        among = None if keys is None else json_array(keys)
        people = None if user_ids is None else json_array(user_ids)
        conditions: list[tuple[str, tuple[Any, ...]]] = [
            (f"(r.context IN {_LISTS} OR r.found IN {_LISTS})", (among, among)),
            ("r.id = ?", (reply_id,)),
            ("r.session_id = ?", (session_id,)),
            ("r.agent_id = ?", (agent_id,)),
            (f"r.user_id {AMONG}", (people,)),
            ("r.at < ?", (to_ms(until),)),
        ]
        given = [(text, values) for text, values in conditions if values[0] is not None]
        where = " AND ".join(text for text, _ in given) or "1"
        rows = self._fetch(
            f"SELECT {_REPLIES.qualified} FROM told_replies r WHERE {where}"
            " ORDER BY r.at DESC, r.id DESC LIMIT ?",
            (*(value for _, values in given for value in values), -1 if limit is None else limit),
        )
        return [_REPLIES.make(row) for row in rows]

    def lists(self, ids: Sequence[str]) -> dict[str, tuple[Shown, ...]]:
        rows = self._fetch(f"SELECT id, items FROM told_lists WHERE id {AMONG}", (json_array(ids),))
        return {id: unpack(items) for id, items in rows}

    def prune(self, before: datetime) -> int:
        at, removed = to_ms(before), 0
        for table, condition in (
            ("told_replies", f"at < {at}"),
            ("told_lists", f"last_day < {at // _DAY * _DAY}"),
        ):
            while gone := self._write(
                f"DELETE FROM {table} WHERE id IN"
                f" (SELECT id FROM {table} WHERE {condition} LIMIT {_AT_ONCE})"
            ):
                removed += gone if table == "told_replies" else 0
        return removed


def add_notes(connection: sqlite3.Connection, notes: Sequence[Note]) -> None:
    """Store notes in a transaction; see `Told.add`."""
    for note in notes:
        at = to_ms(note.reply.at)
        for list_id, packed in note.lists.items():
            known = connection.execute(
                "UPDATE told_lists SET last_day = max(last_day, ?) WHERE id = ?",
                (at // _DAY * _DAY, list_id),
            ).rowcount
            if not known:
                connection.execute(
                    "INSERT INTO told_lists VALUES (?, ?, ?)", (list_id, packed, at // _DAY * _DAY)
                )
                _add_keys(connection, list_id, unpack(packed))
    connection.executemany(_INSERT, [_REPLIES.values(note.reply) for note in notes])
    rows = connection.execute(
        "SELECT b.key FROM forgettings f JOIN forgetting_blocks b ON b.forgetting_id = f.id"
        " WHERE f.closed_at IS NULL OR f.closed_at >= ?",
        (min((to_ms(note.reply.at) for note in notes), default=0),),
    )
    if blocks := {key for (key,) in rows}:
        replies, keys = forgotten_in(notes, blocks)
        connection.execute(f"DELETE FROM told_replies WHERE id {AMONG}", (json_array(replies),))
        erase_items(connection, keys)


def _add_keys(connection: sqlite3.Connection, list_id: str, items: Sequence[Shown]) -> None:
    rows = [(key, list_id) for key in keys_of(items)]
    connection.executemany("INSERT INTO told_keys VALUES (?, ?)", rows)


def erase_items(connection: sqlite3.Connection, keys: Collection[str]) -> None:
    """Erase the items with these keys from all lists."""
    found = connection.execute(
        f"SELECT id, items FROM told_lists WHERE id IN {_LISTS}", (json_array(keys),)
    ).fetchall()
    for list_id, packed in found:
        left = without(unpack(packed), keys)
        connection.execute("UPDATE told_lists SET items = ? WHERE id = ?", (pack(left), list_id))
        connection.execute("DELETE FROM told_keys WHERE list_id = ?", (list_id,))
        _add_keys(connection, list_id, left)


def _subject(traces: Traces) -> tuple[Any, ...]:
    """Return the values of `_OF_SUBJECT`."""
    agents = [scope.agent_id for scope in traces.scopes if scope.kind is ScopeKind.AGENT]
    accounts, own = json_array(traces.accounts), json_array(traces.own)
    return json_array(agents), traces.agent_id, accounts, own


def count_replies(connection: sqlite3.Connection, traces: Traces) -> int:
    """Count the replies that are removed with a subject."""
    (number,) = connection.execute(
        f"SELECT count(*) FROM told_replies WHERE {_OF_SUBJECT}", _subject(traces)
    ).fetchone()
    return int(number)


def erase_told(connection: sqlite3.Connection, traces: Traces) -> int:
    """Remove a subject's replies, and its scopes and facts from lists; count the replies."""
    erase_items(connection, {*(scope.key for scope in traces.scopes), *traces.facts})
    removed = connection.execute(f"DELETE FROM told_replies WHERE {_OF_SUBJECT}", _subject(traces))
    return removed.rowcount
