"""Messages of sessions, which of them no formation has, and the context that was built last."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

import msgspec

from edenmem.errors import NotFoundError
from edenmem.models.formation import Reach
from edenmem.models.host import CachedContext, Message, ToolCall
from edenmem.store.common.progress import Place, Span
from edenmem.store.protocol.formations import Backlog
from edenmem.store.sqlite.core.codec import Row, time, to_ms
from edenmem.store.sqlite.core.part import BATCH, Part, json_array

MESSAGE = (
    "SELECT m.id, m.session_id, m.role, m.content, m.created_at, m.sender, m.name, m.tool_calls,"
    " m.trigger FROM messages m"
)
_IN_ORDER = "ORDER BY m.created_at, m.id"
#: From one sender to the next along the index, so that a long session costs no more than a short.
_SENDERS = """
    WITH RECURSIVE senders (sender) AS (
        SELECT min(m.sender) FROM messages m WHERE m.session_id = ?1 AND m.role = 'user'
            AND m.trigger = 0 AND m.sender IS NOT NULL
        UNION ALL
        SELECT (SELECT min(m.sender) FROM messages m WHERE m.session_id = ?1 AND m.role = 'user'
                AND m.trigger = 0 AND m.sender IS NOT NULL AND m.sender > senders.sender)
            FROM senders WHERE senders.sender IS NOT NULL
    )
    SELECT sender FROM senders WHERE sender IS NOT NULL
"""


#: Messages that a formation of an agent has, or had until it was superseded.
_HAD = (
    "SELECT message_id FROM formation_messages WHERE session_id = ? AND agent_id = ?"
    " UNION ALL SELECT j.value FROM formations f, json_each(f.superseded_message_ids) j"
    " WHERE f.session_id = ? AND f.agent_id = ?"
)


def message_from(row: Row) -> Message:
    """A row of `MESSAGE`."""
    return Message(
        id=row[0],
        session_id=row[1],
        role=row[2],
        content=row[3],
        created_at=time(row[4]),
        sender=row[5],
        name=row[6],
        tool_calls=msgspec.json.decode(row[7], type=tuple[ToolCall, ...]) if row[7] else (),
        trigger=bool(row[8]),
    )


def message_row(session_id: str, message: Message) -> Row:
    """The columns of a message."""
    return (
        message.id,
        session_id,
        message.role,
        message.content,
        to_ms(message.created_at),
        message.sender,
        message.name,
        msgspec.json.encode(message.tool_calls).decode() if message.tool_calls else None,
        message.trigger,
    )


def backlog_of(
    connection: sqlite3.Connection,
    session_id: str,
    agent_id: str,
    limit: int,
    reach: Reach,
    spans: Sequence[Span],
) -> Backlog:
    """See `edenmem.store.protocol.store.Store.backlog`; ``spans`` is what the platform formed."""
    having = "SELECT 1 FROM formation_messages f"
    unfinished = ""
    if reach.own:
        having += " JOIN formations o ON o.id = f.formation_id"
        unfinished = " AND o.status IN ('claimed', 'released', 'recorded')"
    tail = (
        f"FROM messages m WHERE m.session_id = ? AND NOT EXISTS ({having}"
        " WHERE f.session_id = m.session_id AND f.agent_id = ? AND f.message_id = m.id"
        f"{unfinished})"
    )
    columns, keys = MESSAGE.removesuffix("FROM messages m"), (session_id, agent_id)
    if not spans:
        rows = connection.execute(
            f"{columns} {tail} {_IN_ORDER} LIMIT ?", (*keys, max(0, limit))
        ).fetchall()
        (total,) = connection.execute(f"SELECT count(*) {tail}", keys).fetchone()
        return Backlog(messages=tuple(map(message_from, rows)), total=total)
    ours = {id for (id,) in connection.execute(_HAD, keys * 2)}
    waiting, by_platform = [], 0
    for id, at in connection.execute(f"SELECT m.id, m.created_at {tail} {_IN_ORDER}", keys):
        covered = id not in ours and any(span.covers(Place(time(at), id)) for span in spans)
        by_platform += covered
        if not covered or reach.platform:
            waiting.append(id)
    rows = connection.execute(
        f"{MESSAGE} WHERE m.id IN (SELECT value FROM json_each(?)) {_IN_ORDER}",
        (json_array(waiting[: max(0, limit)]),),
    ).fetchall()
    messages = tuple(map(message_from, rows))
    return Backlog(messages=messages, total=len(waiting), by_platform=by_platform)


class Messages(Part):
    """See `edenmem.store.protocol.store.Store`."""

    # -- messages ----------------------------------------------------------------------------

    def add_messages(self, session_id: str, messages: Sequence[Message]) -> int:
        if not messages:
            return 0
        rows = [message_row(session_id, message) for message in messages]
        with self._db.writing() as connection:
            known = connection.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,))
            if known.fetchone() is None:
                raise NotFoundError(f"there is no session {session_id}")
            added = connection.executemany(
                "INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows
            ).rowcount
            connection.execute(
                "UPDATE sessions SET last_activity = max(coalesce(last_activity, ?1), ?1)"
                " WHERE id = ?2",
                (max(row[4] for row in rows), session_id),
            )
        return added

    def messages(
        self, session_id: str, *, newest: int | None = None, ids: Sequence[str] | None = None
    ) -> Iterator[Message]:
        if ids is not None:
            with self._db.reading() as connection:
                rows = connection.execute(
                    f"{MESSAGE} WHERE m.id IN (SELECT value FROM json_each(?))"
                    f" AND m.session_id = ? {_IN_ORDER}",
                    (json_array(ids), session_id),
                ).fetchall()
            return map(message_from, rows)
        if newest is not None:
            with self._db.reading() as connection:
                rows = connection.execute(
                    f"{MESSAGE} WHERE m.session_id = ?"
                    " ORDER BY m.created_at DESC, m.id DESC LIMIT ?",
                    (session_id, max(0, newest)),
                ).fetchall()
            return map(message_from, reversed(rows))
        return map(message_from, self._all_messages(session_id))

    def _all_messages(self, session_id: str) -> Iterator[Row]:
        last: Row = (-(2**63), "")
        while True:
            with self._db.reading() as connection:
                rows = connection.execute(
                    f"{MESSAGE} WHERE m.session_id = ? AND (m.created_at, m.id) > (?, ?)"
                    f" {_IN_ORDER} LIMIT ?",
                    (session_id, *last, BATCH),
                ).fetchall()
            yield from rows
            if len(rows) < BATCH:
                return
            last = (rows[-1][4], rows[-1][0])

    def senders(self, session_id: str) -> tuple[str, ...]:
        with self._db.reading() as connection:
            rows = connection.execute(_SENDERS, (session_id,)).fetchall()
        return tuple(sender for (sender,) in rows)

    # -- the cached context ------------------------------------------------------------------

    def find_context(self, session_id: str, agent_id: str) -> CachedContext | None:
        with self._db.reading() as connection:
            row = connection.execute(
                "SELECT xml, fingerprint, built_at FROM cached_contexts"
                " WHERE session_id = ? AND agent_id = ?",
                (session_id, agent_id),
            ).fetchone()
        return CachedContext(xml=row[0], fingerprint=row[1], built_at=time(row[2])) if row else None

    def cache_context(
        self, session_id: str, agent_id: str, context: CachedContext, *, shared: bool = True
    ) -> None:
        with self._db.writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO cached_contexts VALUES (?, ?, ?, ?, ?)",
                (session_id, agent_id, context.xml, context.fingerprint, to_ms(context.built_at)),
            )
