"""Formations: claims, leases, the write-ahead record, and its application.

A claim is one insert. Two unique indexes and a primary key (see the schema) keep two workers from
claiming one range, in any order of events.
"""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from typing import Any

import msgspec

from edenmem.errors import ConflictError, NotFoundError
from edenmem.models.changes import ChangeResult, ChangeSet
from edenmem.models.formation import (
    CallUsage,
    Decision,
    Formation,
    FormationStatus,
    Reach,
    Reading,
    Trigger,
    calls_from,
)
from edenmem.models.integrity import Finding
from edenmem.store.common.progress import proof_record
from edenmem.store.protocol.formations import Backlog
from edenmem.store.sqlite.apply.changes import apply_changes
from edenmem.store.sqlite.core.codec import Row, from_list, optional_time, time, to_ms
from edenmem.store.sqlite.core.part import BATCH, Part, json_array
from edenmem.store.sqlite.formations.backlog import backlog_of, find_blocked, find_proof
from edenmem.store.sqlite.formations.usage import decode_calls
from edenmem.store.sqlite.host.rows import reset_cold_note

COLUMNS = (
    "id, session_id, agent_id, seq, status, trigger, last_message_at, created_at, updated_at,"
    " worker, lease_until, not_before, attempts, error, decisions, usage, counts,"
    " superseded_message_ids, next_step"
)


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


def find_formation(connection: sqlite3.Connection, formation_id: str) -> Formation | None:
    """Return the formation with this ID, with its changes if it is recorded."""
    row = connection.execute(
        f"SELECT {COLUMNS}, changes FROM formations WHERE id = ?", (formation_id,)
    ).fetchone()
    return formation_from(connection, row) if row else None


def insert_formation(connection: sqlite3.Connection, formation: Formation) -> bool:
    """Insert a formation; False if it conflicts: see `Formations.claim`."""
    changes = formation.changes
    added = connection.execute(
        f"INSERT OR IGNORE INTO formations ({COLUMNS}, changes) VALUES"
        " (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            formation.id,
            formation.session_id,
            formation.agent_id,
            formation.seq,
            _encode_status(formation.status),
            formation.trigger.value,
            to_ms(formation.last_message_at),
            to_ms(formation.created_at),
            to_ms(formation.updated_at),
            formation.worker,
            to_ms(formation.lease_until),
            to_ms(formation.not_before),
            formation.attempts,
            formation.error,
            _json(formation.decisions),
            _json(formation.usage),
            _json(formation.counts),
            json_array(formation.superseded_message_ids)
            if formation.status is FormationStatus.SUPERSEDED
            else None,
            formation.next_step,
            None if changes is None else msgspec.json.encode(changes),
        ),
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


def _encode_status(status: FormationStatus) -> str:
    """Encode a status; superseded formations are marked by their list of messages only."""
    return (FormationStatus.APPLIED if status is FormationStatus.SUPERSEDED else status).value


def _find_noted(
    connection: sqlite3.Connection, session_id: str, agent_id: str
) -> dict[str, tuple[str, ...]]:
    """Return the noted proof of what the platform read, by the ID of its record."""
    rows = connection.execute(
        "SELECT id, superseded_message_ids FROM formations"
        " WHERE session_id = ? AND agent_id = ? AND trigger = 'platform'",
        (session_id, agent_id),
    )
    return {id: from_list(ids) for id, ids in rows}


def _set_noted(connection: sqlite3.Connection, id: str, message_ids: Iterable[str]) -> None:
    connection.execute(
        "UPDATE formations SET superseded_message_ids = ? WHERE id = ?",
        (json_array(message_ids), id),
    )


class Formations(Part):
    """See `edenmem.store.protocol.formations.Formations`."""

    def backlog(
        self, session_id: str, agent_id: str, *, limit: int, reach: Reach = Reach.WAITING
    ) -> Backlog:
        with self._db.reading() as connection:
            return backlog_of(connection, session_id, agent_id, limit, reach)

    def proof(self, session_id: str, agent_id: str) -> set[str]:
        with self._db.reading() as connection:
            noted = _find_noted(connection, session_id, agent_id)
            return find_proof(connection, session_id, agent_id).difference(*noted.values())

    def drop_proof(self, session_id: str, agent_id: str, message_ids: Sequence[str]) -> None:
        gone = frozenset(message_ids)
        with self._db.writing() as connection:
            for id, known in _find_noted(connection, session_id, agent_id).items():
                _set_noted(connection, id, (each for each in known if each not in gone))
            connection.execute("UPDATE sessions SET settled = NULL WHERE id = ?", (session_id,))

    def note_proof(
        self, session_id: str, agent_id: str, message_ids: Sequence[str], *, now: datetime
    ) -> None:
        with self._db.writing() as connection:
            noted = _find_noted(connection, session_id, agent_id)
            for id, known in noted.items():
                _set_noted(connection, id, dict.fromkeys((*known, *message_ids)))
            if noted:
                return
            (last,) = connection.execute(
                "SELECT coalesce(max(seq), 0) FROM formations WHERE session_id = ?"
                " AND agent_id = ?",
                (session_id, agent_id),
            ).fetchone()
            record = proof_record(session_id, agent_id, last + 1, message_ids, now)
            insert_formation(connection, record)

    def platform_memory_at(self, *, since: datetime) -> datetime | None:
        return None

    def find_readings(
        self, *, agent_id: str | None = None, latest: int | None = None
    ) -> Iterator[Reading]:
        return iter(())  # no platform writes to a file

    def advance_cursor(self, session_id: str) -> bool:
        return False

    def claim(self, formation: Formation) -> bool:
        with self._db.writing() as connection:
            return insert_formation(connection, formation)

    def reclaim(
        self,
        formation_id: str,
        *,
        worker: str,
        now: datetime,
        lease_until: datetime,
        forced: bool = False,
    ) -> Formation | None:
        with self._db.writing() as connection:
            taken = connection.execute(
                "UPDATE formations SET worker = ?1, lease_until = ?2, updated_at = ?3,"
                " status = iif(status = 'recorded', 'recorded', 'claimed') WHERE id = ?4 AND ("
                " (status = 'released' AND (?5 OR coalesce(not_before, ?3) <= ?3))"
                " OR (status IN ('claimed', 'recorded')"
                " AND (worker = ?1 OR coalesce(lease_until, ?3) <= ?3)))",
                (worker, to_ms(lease_until), to_ms(now), formation_id, forced),
            ).rowcount
            return find_formation(connection, formation_id) if taken else None

    def renew(self, formation_id: str, *, worker: str, lease_until: datetime) -> bool:
        return self._update(
            "lease_until = ?",
            (to_ms(lease_until),),
            "id = ? AND worker = ? AND status IN ('claimed', 'recorded')",
            (formation_id, worker),
        )

    def narrow(
        self,
        formation_id: str,
        *,
        worker: str,
        message_ids: Sequence[str],
        last_message_at: datetime,
        now: datetime,
    ) -> bool:
        with self._db.writing() as connection:
            if _find_claimed(connection, formation_id, worker) is None:
                return False
            connection.execute(
                "DELETE FROM formation_messages WHERE formation_id = ?"
                " AND message_id NOT IN (SELECT value FROM json_each(?))",
                (formation_id, json_array(message_ids)),
            )
            connection.execute(
                "UPDATE formations SET last_message_at = ?, updated_at = ? WHERE id = ?",
                (to_ms(last_message_at), to_ms(now), formation_id),
            )
        return True

    def record(
        self,
        formation_id: str,
        *,
        worker: str,
        changes: ChangeSet,
        decisions: Sequence[Decision],
        usage: Sequence[CallUsage],
        counts: Mapping[str, Any],
        now: datetime,
        next_step: str = "",
    ) -> bool:
        with self._db.writing() as connection:
            found = _find_claimed(connection, formation_id, worker)
            if found is None:
                return False
            connection.execute(
                "UPDATE formations SET status = 'recorded', changes = ?, decisions = ?, usage = ?,"
                " counts = ?, error = NULL, updated_at = ?, next_step = ?,"
                " attempts = iif(? = '', attempts, 0) WHERE id = ?",
                (
                    msgspec.json.encode(changes),
                    _json((*found.decisions, *decisions)),
                    _json((*found.usage, *usage)),
                    _json(dict(counts)),
                    to_ms(now),
                    next_step,
                    next_step,
                    formation_id,
                ),
            )
        return True

    def apply_formation(
        self,
        formation_id: str,
        *,
        now: datetime,
        worker: str | None = None,
        skip: Set[str] = frozenset(),
    ) -> list[ChangeResult]:
        with self._db.writing() as connection:
            return apply_recorded(connection, formation_id, now, worker, skip)

    def release(
        self,
        formation_id: str,
        *,
        worker: str,
        now: datetime,
        not_before: datetime | None = None,
        error: str | None = None,
        count: bool = True,
        usage: Sequence[CallUsage] = (),
    ) -> bool:
        with self._db.writing() as connection:
            found = _find_claimed(connection, formation_id, worker)
            if found is None:
                return False
            connection.execute(
                "UPDATE formations SET status = 'released', worker = NULL, lease_until = NULL,"
                " not_before = ?, error = ?, attempts = ?, usage = ?, updated_at = ? WHERE id = ?",
                (
                    to_ms(not_before),
                    error,
                    found.attempts + int(count),
                    _json((*found.usage, *usage)),
                    to_ms(now),
                    formation_id,
                ),
            )
        return True

    def fail(
        self,
        formation_id: str,
        *,
        worker: str,
        now: datetime,
        error: str,
        usage: Sequence[CallUsage] = (),
    ) -> bool:
        with self._db.writing() as connection:
            found = _find_claimed(connection, formation_id, worker)
            if found is None:
                return False
            connection.execute(
                "UPDATE formations SET status = 'failed', worker = NULL, lease_until = NULL,"
                " not_before = NULL, error = ?, attempts = ?, usage = ?, updated_at = ?"
                " WHERE id = ?",
                (
                    error,
                    found.attempts + 1,
                    _json((*found.usage, *usage)),
                    to_ms(now),
                    formation_id,
                ),
            )
        return True

    def retry(self, formation_id: str, *, now: datetime) -> bool:
        return self._update(
            "status = 'released', attempts = 0, not_before = NULL, updated_at = ?",
            (to_ms(now),),
            "id = ? AND status = 'failed' AND NOT EXISTS (SELECT 1 FROM formations o"
            " WHERE o.session_id = formations.session_id AND o.agent_id = formations.agent_id"
            " AND o.status IN ('claimed', 'released', 'recorded'))",
            (formation_id,),
        )

    def supersede(self, formation_id: str, *, keep: Sequence[str] = (), now: datetime) -> bool:
        with self._db.writing() as connection:
            found = find_formation(connection, formation_id)
            finished = (FormationStatus.APPLIED, FormationStatus.FAILED)
            if found is None or found.status not in finished:
                return False
            kept = {*keep, *find_blocked(connection, found.message_ids)}
            given_up = [each for each in found.message_ids if each not in kept]
            if not given_up:
                return False
            connection.execute(
                "UPDATE formations SET status = 'applied', superseded_message_ids = ?,"
                " next_step = '', updated_at = ? WHERE id = ?",
                (json_array(found.message_ids), to_ms(now), formation_id),
            )
            connection.execute(
                "DELETE FROM formation_messages WHERE formation_id = ?"
                " AND message_id IN (SELECT value FROM json_each(?))",
                (formation_id, json_array(given_up)),
            )
            reset_cold_note(connection, found.session_id)
        return True

    def _update(
        self, change: str, values: tuple[Any, ...], where: str, keys: tuple[Any, ...]
    ) -> bool:
        with self._db.writing() as connection:
            updated = connection.execute(
                f"UPDATE formations SET {change} WHERE {where}", (*values, *keys)
            )
            return updated.rowcount == 1

    def formation(self, formation_id: str) -> Formation | None:
        with self._db.reading() as connection:
            return find_formation(connection, formation_id)

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

    def find_shared_messages(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        return iter(())


def apply_recorded(
    connection: sqlite3.Connection,
    formation_id: str,
    now: datetime,
    worker: str | None = None,
    skip: Set[str] = frozenset(),
) -> list[ChangeResult]:
    """Apply the outcome of a formation once, in the caller's transaction.

    See `edenmem.store.protocol.formations.Formations.apply_formation`.

    Raises:
        NotFoundError: the formation does not exist.
        ConflictError: the formation has no outcome to apply.
    """
    found = find_formation(connection, formation_id)
    if found is None:
        raise NotFoundError(f"formation does not exist: {formation_id}")
    if found.status in (FormationStatus.APPLIED, FormationStatus.SUPERSEDED):
        return []
    if found.status is not FormationStatus.RECORDED and found.next_step:
        return []  # the recorded step is applied
    if found.status is not FormationStatus.RECORDED or found.changes is None:
        raise ConflictError(
            f"the formation {formation_id} is {found.status} and has no outcome to apply"
        )
    results = apply_changes(connection, found.changes.without(skip))
    if found.next_step:
        _keep_or_release(connection, found, now, worker)
        return results
    connection.execute(
        "UPDATE formations SET status = 'applied', changes = NULL, worker = NULL,"
        " lease_until = NULL, updated_at = ? WHERE id = ?",
        (to_ms(now), formation_id),
    )
    return results


def _keep_or_release(
    connection: sqlite3.Connection, formation: Formation, now: datetime, worker: str | None
) -> None:
    """Leave an unfinished formation to its worker, or release it."""
    is_held = worker is not None and worker == formation.worker
    connection.execute(
        "UPDATE formations SET status = ?1, changes = NULL, updated_at = ?2,"
        " worker = iif(?1 = 'claimed', worker, NULL),"
        " lease_until = iif(?1 = 'claimed', lease_until, NULL), not_before = NULL WHERE id = ?3",
        ("claimed" if is_held else "released", to_ms(now), formation.id),
    )


def _find_claimed(
    connection: sqlite3.Connection, formation_id: str, worker: str
) -> Formation | None:
    """Return the formation, if this worker holds its claim."""
    found = find_formation(connection, formation_id)
    if found is None or found.status is not FormationStatus.CLAIMED or found.worker != worker:
        return None
    return found
