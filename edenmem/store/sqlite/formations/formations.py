"""Formations: claims, leases, the write-ahead record, and its application.

A claim is one insert. Two unique indexes and a primary key (see the schema) keep two workers from
claiming one range, in any order of events.
"""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

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
    calls_from,
)
from edenmem.store.common.progress import (
    Place,
    Readers,
    is_free_again,
    select_waiting,
)
from edenmem.store.protocol.formations import Backlog
from edenmem.store.sqlite.apply.changes import apply_changes
from edenmem.store.sqlite.core.codec import Row, from_list, optional_time, time, to_ms
from edenmem.store.sqlite.core.part import AMONG, BATCH, Part, json_array
from edenmem.store.sqlite.formations.usage import decode_calls
from edenmem.store.sqlite.host.host import IN_ORDER
from edenmem.store.sqlite.host.rows import MESSAGE, MESSAGES, reset_cold_note

COLUMNS = (
    "id, session_id, agent_id, seq, status, trigger, last_message_at, created_at, updated_at,"
    " worker, lease_until, not_before, attempts, error, decisions, usage, counts,"
    " superseded_message_ids, next_step"
)
_COLUMNS = (*COLUMNS.split(", "), "changes")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def formation_from(connection: sqlite3.Connection, row: Row) -> Formation:
    """Decode a row of `COLUMNS`, with optional ``changes`` at the end."""
    messages = connection.execute(
        "SELECT message_id FROM formation_messages WHERE formation_id = ? ORDER BY place",
        (row[0],),
    )
    changes = row[19] if len(row) > 19 else None
    superseded, next_step = row[17:19]
    return Formation(
        id=row[0],
        session_id=row[1],
        agent_id=row[2],
        seq=row[3],
        status=FormationStatus(row[4]) if superseded is None else FormationStatus.SUPERSEDED,
        trigger=Trigger(row[5]),
        message_ids=tuple(message_id for (message_id,) in messages),
        last_message_at=time(row[6]),
        created_at=time(row[7]),
        updated_at=time(row[8]),
        worker=row[9],
        lease_until=optional_time(row[10]),
        not_before=optional_time(row[11]),
        attempts=row[12],
        error=row[13],
        decisions=msgspec.json.decode(row[14], type=tuple[Decision, ...]),
        usage=calls_from(decode_calls(row[15])),
        counts=msgspec.json.decode(row[16]),
        changes=None if changes is None else msgspec.json.decode(changes, type=ChangeSet),
        superseded_message_ids=from_list(superseded) if superseded else (),
        next_step=next_step,
    )


def _encode(formation: Formation, name: str) -> Any:
    """Encode a column; superseded formations are marked by their list of messages only."""
    value = getattr(formation, name)
    is_superseded = formation.status is FormationStatus.SUPERSEDED
    match name:
        case "status":
            return (FormationStatus.APPLIED if is_superseded else formation.status).value
        case "superseded_message_ids":
            return json_array(value) if is_superseded else None
        case "decisions" | "usage" | "counts":
            return _json(value)
        case "changes":
            return None if value is None else msgspec.json.encode(value)
        case _:
            return to_ms(value) if isinstance(value, datetime) else value


def insert_formation(connection: sqlite3.Connection, formation: Formation) -> bool:
    """Insert a formation; False if it conflicts: see `Formations.claim`."""
    added = connection.execute(
        f"INSERT OR IGNORE INTO formations ({', '.join(_COLUMNS)})"
        f" VALUES ({', '.join('?' * len(_COLUMNS))})",
        [_encode(formation, name) for name in _COLUMNS],
    ).rowcount
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
    changed = {
        name: _encode(after, name)
        for name in _COLUMNS
        if name == "updated_at" or getattr(before, name) != getattr(after, name)
    }
    moved = connection.execute(
        f"UPDATE OR IGNORE formations SET {', '.join(f'{name} = ?' for name in changed)}"
        f" WHERE id = ? AND {' AND '.join(f'{name} IS ?' for name in DECIDING)}",
        (*changed.values(), before.id, *(_encode(before, name) for name in DECIDING)),
    ).rowcount
    if not moved:
        return False
    if after.message_ids != before.message_ids:
        connection.execute(
            f"DELETE FROM formation_messages WHERE formation_id = ? AND NOT message_id {AMONG}",
            (before.id, json_array(after.message_ids)),
        )
    if after.status is FormationStatus.SUPERSEDED:
        reset_cold_note(connection, after.session_id)
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
            row = connection.execute(
                f"SELECT {COLUMNS}, changes FROM formations WHERE id = ?", (formation_id,)
            ).fetchone()
            return formation_from(connection, row) if row else None

    def list_formations(
        self,
        *,
        session_id: str | None = None,
        agent_id: str | None = None,
        statuses: Sequence[FormationStatus] = (),
        limit: int | None = None,
    ) -> Iterator[Formation]:
        where, values = "", list[Any]()
        for column, value in (("session_id", session_id), ("agent_id", agent_id)):
            if value is not None:
                where += f" AND {column} = ?"
                values.append(value)
        if statuses:
            status = "status"
            if {FormationStatus.APPLIED, FormationStatus.SUPERSEDED}.intersection(statuses):
                status = "iif(superseded_message_ids IS NULL, status, 'superseded')"
            where += f" AND {status} IN (SELECT value FROM json_each(?))"
            values.append(json_array(each.value for each in statuses))
        # Clocks of workers may differ, so times do not order a pair.
        one_pair = session_id is not None and agent_id is not None
        return self._latest_first("seq" if one_pair else "created_at", where, values, limit)

    def _latest_first(
        self, order: str, where: str, values: Sequence[Any], limit: int | None
    ) -> Iterator[Formation]:
        last: tuple[int, str] = (2**62, "")
        place = 3 if order == "seq" else 7
        left = limit
        while left is None or left > 0:
            size = BATCH if left is None else min(BATCH, left)
            with self._db.reading() as connection:
                rows = connection.execute(
                    f"SELECT {COLUMNS} FROM formations WHERE ({order}, id) < (?, ?){where}"
                    f" ORDER BY {order} DESC, id DESC LIMIT ?",
                    (*last, *values, size),
                ).fetchall()
                found = [formation_from(connection, row) for row in rows]
            yield from found
            if len(rows) < size:
                return
            last = (rows[-1][place], rows[-1][0])
            left = None if left is None else left - size


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
