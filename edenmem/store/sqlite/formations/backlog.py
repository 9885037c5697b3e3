"""Messages that are pending for formation."""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from edenmem.models.forgetting import block
from edenmem.models.formation import Reach
from edenmem.store.common.progress import Place, Span
from edenmem.store.protocol.formations import Backlog
from edenmem.store.sqlite.core.codec import time
from edenmem.store.sqlite.core.part import AMONG, json_array
from edenmem.store.sqlite.host.host import _IN_ORDER
from edenmem.store.sqlite.host.rows import MESSAGE, message_from

#: Messages of formations of an agent, including superseded ones.
_HAD = (
    "SELECT message_id FROM formation_messages WHERE session_id = ? AND agent_id = ?"
    " UNION ALL SELECT j.value FROM formations f, json_each(f.superseded_message_ids) j"
    " WHERE f.session_id = ? AND f.agent_id = ?"
)
#: Whether a session may have source messages of forgotten facts. Those of a complete forgetting are
#: forgotten messages.
_HAS_BLOCKED = (
    "SELECT 1 FROM forgettings WHERE kind = 'fact' AND (closed_at IS NULL OR EXISTS (SELECT 1"
    " FROM messages m WHERE m.session_id = ? AND m.id IN (SELECT id FROM forgotten_messages)))"
)


def backlog_of(
    connection: sqlite3.Connection,
    session_id: str,
    agent_id: str,
    limit: int,
    reach: Reach,
    spans: Sequence[Span],
) -> Backlog:
    """See `edenmem.store.protocol.formations.Formations.backlog`; ``spans`` are ranges formed by
    the platform.
    """
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
    if not spans and not connection.execute(_HAS_BLOCKED, (session_id,)).fetchone():
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
    blocked = find_blocked(connection, waiting)
    waiting = [id for id in waiting if id not in blocked]
    rows = connection.execute(
        f"{MESSAGE} WHERE m.id IN (SELECT value FROM json_each(?)) {_IN_ORDER}",
        (json_array(waiting[: max(0, limit)]),),
    ).fetchall()
    messages = tuple(map(message_from, rows))
    return Backlog(messages=messages, total=len(waiting), by_platform=by_platform)


def find_blocked(connection: sqlite3.Connection, message_ids: Iterable[str]) -> set[str]:
    """Return the source messages of forgotten facts, which must not be formed again."""
    keys = {block("message", message_id): message_id for message_id in message_ids}
    found = connection.execute(
        f"SELECT DISTINCT key FROM forgetting_blocks WHERE key {AMONG}", (json_array(keys),)
    )
    return {keys[key] for (key,) in found}
