"""Messages that are pending for formation."""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from edenmem.models.forgetting import block
from edenmem.models.formation import Reach
from edenmem.store.common.progress import Place, Readers, is_free_again, select_waiting
from edenmem.store.protocol.formations import Backlog
from edenmem.store.sqlite.core.codec import from_list, time
from edenmem.store.sqlite.core.part import AMONG, json_array
from edenmem.store.sqlite.host.host import IN_ORDER
from edenmem.store.sqlite.host.rows import MESSAGE, message_from

#: Whether a session may have source messages of forgotten facts. Those of a complete forgetting are
#: forgotten messages.
_HAS_BLOCKED = (
    "SELECT 1 FROM forgettings WHERE kind = 'fact' AND (closed_at IS NULL OR EXISTS (SELECT 1"
    " FROM messages m WHERE m.session_id = ? AND m.id IN (SELECT id FROM forgotten_messages)))"
)
#: Sources of a session's memory that edenmem did not form: a restored backup of a database that the
#: platform uses has such facts. The platform reflects on each range in the session's scope.
_PROOF = (
    "SELECT j.value FROM facts f JOIN scopes s USING (scope_id), json_each(f.source_message_ids) j"
    " WHERE f.session_id = ?1 AND s.agent_id = ?2 AND f.formation_id IS NULL"
    " UNION SELECT j.value FROM scopes s JOIN reflections r USING (scope_id),"
    " json_each(r.source_message_ids) j WHERE s.agent_id = ?2 AND s.kind = 'session'"
    " AND s.owner = ?1 AND r.formation_id IS NULL"
)
_RECORDS = (
    "SELECT trigger, superseded_message_ids FROM formations"
    " WHERE session_id = ? AND agent_id = ?"
    " AND superseded_message_ids IS NOT NULL"
)


def backlog_of(
    connection: sqlite3.Connection, session_id: str, agent_id: str, limit: int, reach: Reach
) -> Backlog:
    """See `edenmem.store.protocol.formations.Formations.backlog`."""
    pair = (session_id, agent_id)
    proof = find_proof(connection, session_id, agent_id)
    records = connection.execute(_RECORDS, pair).fetchall()
    blocked = connection.execute(_HAS_BLOCKED, (session_id,)).fetchone()
    if not (proof or records or blocked or reach.own):
        tail = (
            "FROM messages m WHERE m.session_id = ? AND NOT EXISTS (SELECT 1 FROM"
            " formation_messages f WHERE f.session_id = m.session_id AND f.agent_id = ?"
            " AND f.message_id = m.id)"
        )
        columns = MESSAGE.removesuffix("FROM messages m")
        rows = connection.execute(
            f"{columns} {tail} {IN_ORDER} LIMIT ?", (*pair, max(0, limit))
        ).fetchall()
        (total,) = connection.execute(f"SELECT count(*) {tail}", pair).fetchone()
        return Backlog(messages=tuple(map(message_from, rows)), total=total)
    readers = Readers(proof=proof)
    for trigger, superseded in records:
        readers.add(trigger, (), from_list(superseded))
    for message_id, status in connection.execute(
        "SELECT f.message_id, o.status FROM formation_messages f JOIN formations o"
        " ON o.id = f.formation_id WHERE f.session_id = ? AND f.agent_id = ?",
        pair,
    ):
        (readers.freed if is_free_again(status, reach) else readers.taken).add(message_id)
    places = [
        Place(time(at), id)
        for id, at in connection.execute(
            f"SELECT m.id, m.created_at FROM messages m WHERE m.session_id = ? {IN_ORDER}",
            (session_id,),
        )
    ]
    waiting = select_waiting(
        places, readers, None, reach, lambda ids: find_blocked(connection, ids)
    )
    rows = connection.execute(
        f"{MESSAGE} WHERE m.id {AMONG} {IN_ORDER}",
        (json_array(waiting.ids[: max(0, limit)]),),
    ).fetchall()
    return Backlog(
        messages=tuple(map(message_from, rows)),
        total=len(waiting.ids),
        by_platform=waiting.by_platform,
        unnoted=tuple(sorted(readers.unnoted)),
    )


def find_proof(connection: sqlite3.Connection, session_id: str, agent_id: str) -> set[str]:
    """Return the source messages of memory that edenmem did not form."""
    return {id for (id,) in connection.execute(_PROOF, (session_id, agent_id))}


def find_blocked(connection: sqlite3.Connection, message_ids: Iterable[str]) -> set[str]:
    """Return the source messages of forgotten facts, which must not be formed again."""
    keys = {block("message", message_id): message_id for message_id in message_ids}
    found = connection.execute(
        f"SELECT DISTINCT key FROM forgetting_blocks WHERE key {AMONG}", (json_array(keys),)
    )
    return {keys[key] for (key,) in found}
