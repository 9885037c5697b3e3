"""Formations: claims, leases, the write-ahead record, and its application.

A claim is one insert. Two unique indexes and a primary key (see the schema) keep two workers from
claiming one range, in any order of events.
"""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from edenmem.memory.formations import DECIDING
from edenmem.models.changes import ChangeResult, ChangeSet
from edenmem.models.forgetting import block
from edenmem.models.formation import (
    Decision,
    Formation,
    FormationStatus,
    Reach,
    Reading,
    Trigger,
)
from edenmem.store.common.progress import (
    Place,
    Readers,
    is_free_again,
    select_waiting,
)
from edenmem.store.protocol.formations import Backlog
from edenmem.store.sqlite.apply.changes import apply_changes
from edenmem.store.sqlite.core.codec import Row, Table, as_json, from_list, time
from edenmem.store.sqlite.core.part import AMONG, BATCH, Part, json_array, where
from edenmem.store.sqlite.formations.usage import CALLS
from edenmem.store.sqlite.host.host import IN_ORDER
from edenmem.store.sqlite.host.rows import MESSAGE, MESSAGES

FORMATIONS = Table(
    Formation,
    "formations",
    "formations",
    "id session_id agent_id seq worker attempts error next_step",
    times="last_message_at created_at updated_at lease_until not_before",
    lists="superseded_message_ids",
    others={
        "status": (FormationStatus, None),
        "trigger": (Trigger, None),
        "decisions": as_json(tuple[Decision, ...], None),
        "usage": CALLS,
        "counts": as_json(dict[str, Any], None),
        "changes": as_json(ChangeSet, None),
    },
    start=0,
)
FORMATION = f"SELECT {FORMATIONS.qualified} FROM formations"
_LISTED = FORMATION.replace("formations.changes", "NULL")
_INSERT = FORMATIONS.insert(otherwise="OR IGNORE ")
_FIELDS = tuple(name for name in Formation.__struct_fields__ if name != "message_ids")
_SAME = " AND ".join(f"{name} IS ?" for name in DECIDING)
_deciding = FORMATIONS.encoder(*DECIDING)


def formation_from(connection: sqlite3.Connection, row: Row) -> Formation:
    """Decode a row of `FORMATION`, with its messages."""
    messages = connection.execute(
        "SELECT message_id FROM formation_messages WHERE formation_id = ? ORDER BY place",
        (row[0],),
    )
    return FORMATIONS.make(row, message_ids=tuple(message_id for (message_id,) in messages))


def insert_formation(connection: sqlite3.Connection, formation: Formation) -> bool:
    """Insert a formation; False if it conflicts: see `Formations.claim`."""
    added = connection.execute(_INSERT, FORMATIONS.values(formation)).rowcount
    if added != 1:
        return False
    taken = connection.executemany(
        "INSERT OR IGNORE INTO formation_messages VALUES (?, ?, ?, ?, ?)",
        [
            (formation.session_id, formation.agent_id, message_id, formation.id, place)
            for place, message_id in enumerate(formation.message_ids)
        ],
    ).rowcount
    if formation.message_ids and taken != len(formation.message_ids):
        connection.execute("DELETE FROM formations WHERE id = ?", (formation.id,))
        return False
    return True


def _move(connection: sqlite3.Connection, before: Formation, after: Formation) -> bool:
    """Write what a step changed; see `Formations.move`."""
    changed = [
        name
        for name in _FIELDS
        if name in ("status", "updated_at") or getattr(before, name) != getattr(after, name)
    ]
    moved = connection.execute(
        f"UPDATE OR IGNORE formations SET {FORMATIONS.assign(*changed)} WHERE id = ? AND {_SAME}",
        (*FORMATIONS.encoder(*changed)(after), before.id, *_deciding(before)),
    ).rowcount
    if not moved:
        return False
    if after.message_ids != before.message_ids:
        connection.execute(
            f"DELETE FROM formation_messages WHERE formation_id = ? AND NOT message_id {AMONG}",
            (before.id, json_array(after.message_ids)),
        )
    return True


class Formations(Part):
    """See `edenmem.store.protocol.formations.Formations`."""

    def backlog(
        self, session_id: str, agent_id: str, *, limit: int, reach: Reach = Reach.WAITING
    ) -> Backlog:
        with self._db.reading() as connection:
            return backlog_of(connection, session_id, agent_id, limit, reach)

    def find_blocked(self, message_ids: Sequence[str]) -> set[str]:
        with self._db.reading() as connection:
            return find_blocked(connection, message_ids)

    def proof(self, session_id: str, agent_id: str) -> set[str]:
        with self._db.reading() as connection:
            records = connection.execute(_RECORDS, (session_id, agent_id)).fetchall()
            noted = (from_list(ids) for trigger, ids in records if trigger == Trigger.PLATFORM)
            return find_proof(connection, session_id, agent_id).difference(*noted)

    def platform_memory_at(self, *, since: datetime) -> datetime | None:
        return None

    def find_readings(
        self, *, agent_id: str | None = None, latest: int | None = None
    ) -> Iterator[Reading]:
        return iter(())  # no platform writes to a file

    def advance_cursor(self, session_id: str, *, past_replies: bool = False) -> bool:
        return False

    def claim(self, formation: Formation) -> bool:
        with self._db.writing() as connection:
            return insert_formation(connection, formation)

    def move(self, before: Formation, after: Formation) -> bool:
        with self._db.writing() as connection:
            return _move(connection, before, after)

    def apply_formation(
        self, before: Formation, after: Formation, changes: ChangeSet
    ) -> list[ChangeResult] | None:
        with self._db.writing() as connection:
            if not _move(connection, before, after):
                return None
            return apply_changes(connection, changes)

    def formation(self, formation_id: str) -> Formation | None:
        with self._db.reading() as connection:
            row = connection.execute(f"{FORMATION} WHERE id = ?", (formation_id,)).fetchone()
            return formation_from(connection, row) if row else None

    def list_formations(
        self,
        *,
        session_id: str | None = None,
        agent_id: str | None = None,
        statuses: Sequence[FormationStatus] = (),
        limit: int | None = None,
    ) -> Iterator[Formation]:
        # Clocks of workers may differ, so times do not order a pair.
        order = "created_at" if session_id is None or agent_id is None else "seq"
        conditions, values = where(
            ("session_id = ?", session_id),
            ("agent_id = ?", agent_id),
            (f"status {AMONG}", json_array(statuses) if statuses else None),
        )
        (place,) = FORMATIONS.places(order)
        last: tuple[int, str] = (2**62, "")
        left = sys.maxsize if limit is None else limit
        while left > 0:
            size = min(BATCH, left)
            with self._db.reading() as connection:
                rows = connection.execute(
                    f"{_LISTED} WHERE ({order}, id) < (?, ?){conditions}"
                    f" ORDER BY {order} DESC, id DESC LIMIT ?",
                    (*last, *values, size),
                ).fetchall()
                found = [formation_from(connection, row) for row in rows]
            yield from found
            if len(rows) < size:
                return
            last, left = (rows[-1][place], rows[-1][0]), left - size


# -- pending messages ------------------------------------------------------------------------------

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
        return Backlog(messages=tuple(map(MESSAGES.make, rows)), total=total)
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
        messages=tuple(map(MESSAGES.make, rows)),
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
