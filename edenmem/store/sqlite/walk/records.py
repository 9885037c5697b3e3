"""Every row of a kind, decoded or not: for a file that is not trusted."""


# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from edenmem.errors import ScopeError
from edenmem.models.formation import Formation
from edenmem.models.integrity import Record, RecordKind
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.store.sqlite.core import codec
from edenmem.store.sqlite.core.codec import Row
from edenmem.store.sqlite.core.connections import Connections
from edenmem.store.sqlite.core.part import BATCH
from edenmem.store.sqlite.formations.formations import COLUMNS as FORMATION
from edenmem.store.sqlite.formations.formations import formation_from
from edenmem.store.sqlite.memory.history import HISTORY, history_from
from edenmem.store.sqlite.memory.log import AUDIT, audit_from

_Value = Fact | Reflection | Consolidation | Policy | Formation | None

#: What decoding a row can raise, whatever is in it.
_UNREADABLE = (ValueError, TypeError, KeyError, OverflowError, ScopeError, msgspec.MsgspecError)


class _Walk(NamedTuple):
    """How one kind is read: a query whose first columns are a place, an id and an agent."""

    select: str
    place: str
    agent: str
    first: Any
    decode: Callable[[sqlite3.Connection, Row], _Value]


def _fact(connection: sqlite3.Connection, row: Row) -> Fact:
    fact = codec.fact_from(row)
    _check_ids(fact.source_message_ids)
    return fact


def _reflection(connection: sqlite3.Connection, row: Row) -> Reflection:
    reflection = codec.reflection_from(row)
    _check_ids((*reflection.source_message_ids, *reflection.propagated_from))
    return reflection


def _consolidation(connection: sqlite3.Connection, row: Row) -> Consolidation:
    pending = connection.execute(
        "SELECT r.id FROM reflections r JOIN consolidations c USING (scope_id)"
        " WHERE c.id = ? AND r.absorbed = 0 ORDER BY r.formed_at, r.id",
        (row[3],),
    )
    found = codec.consolidation_from(row, [reflection_id for (reflection_id,) in pending])
    _check_ids(found.absorbed_ids)
    if not all(isinstance(version, int) for version in found.unpropagated_versions):
        raise ValueError("a version is no number")
    return found


def _policy(connection: sqlite3.Connection, row: Row) -> Policy:
    return codec.policy_from(row)


def _formation(connection: sqlite3.Connection, row: Row) -> Formation:
    return formation_from(connection, row)


def _history(connection: sqlite3.Connection, row: Row) -> None:
    _check_ids(history_from(row).absorbed_ids)


def _audit(connection: sqlite3.Connection, row: Row) -> None:
    entry = audit_from(row)
    if not all(isinstance(document, dict | None) for document in (entry.before, entry.after)):
        raise ValueError("what was, or is, is no document")


def _check_ids(ids: tuple[Any, ...]) -> None:
    if not all(isinstance(each, str) for each in ids):
        raise ValueError("a list of ids has something else in it")


def _prefix_columns(select: str, columns: str) -> str:
    return select.replace("SELECT ", f"SELECT {columns}, ", 1)


_WALKS: dict[RecordKind, _Walk] = {
    "fact": _Walk(
        _prefix_columns(codec.FACT, "f.fact_no, f.id, s.agent_id"),
        "f.fact_no",
        "s.agent_id",
        0,
        _fact,
    ),
    "reflection": _Walk(
        _prefix_columns(codec.REFLECTION, "r.reflection_no, r.id, s.agent_id"),
        "r.reflection_no",
        "s.agent_id",
        0,
        _reflection,
    ),
    "consolidation": _Walk(
        _prefix_columns(codec.CONSOLIDATION, "c.scope_id, c.id, s.agent_id"),
        "c.scope_id",
        "s.agent_id",
        0,
        _consolidation,
    ),
    "policy": _Walk(
        _prefix_columns(codec.POLICY, "p.scope_id, p.id, s.agent_id"),
        "p.scope_id",
        "s.agent_id",
        0,
        _policy,
    ),
    "formation": _Walk(
        f"SELECT id, id, agent_id, {FORMATION} FROM formations", "id", "agent_id", "", _formation
    ),
    "history": _Walk(
        _prefix_columns(HISTORY, "h.history_no, h.id, s.agent_id"),
        "h.history_no",
        "s.agent_id",
        0,
        _history,
    ),
    "audit": _Walk(
        _prefix_columns(AUDIT, "a.audit_no, a.id, a.agent_id"),
        "a.audit_no",
        "a.agent_id",
        0,
        _audit,
    ),
}


class _Lenient:
    """Reads bytes that are no UTF-8 too, and notes that there were some."""

    broken = False

    def __call__(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.broken = True
            return raw.decode(errors="backslashreplace")


def read_records(db: Connections, kind: RecordKind, agent_id: str | None) -> Iterator[Record]:
    """Every row of a kind, each once, in one ordered walk."""
    walk = _WALKS[kind]
    values: tuple[Any, ...] = () if agent_id is None else (agent_id,)
    # The "+" keeps the planner from leaving the order of the walk for an index of agents.
    narrowed = "" if agent_id is None else f" AND +{walk.agent} = ?2"
    query = f"{walk.select} WHERE {walk.place} > ?1{narrowed} ORDER BY {walk.place} LIMIT {BATCH}"
    last = walk.first
    while True:
        with db.reading() as connection:
            page = list(_read(connection, kind, walk, query, (last, *values)))
        yield from (record for _, record in page)
        if len(page) < BATCH:
            return
        last = page[-1][0]


def _read(
    connection: sqlite3.Connection,
    kind: RecordKind,
    walk: _Walk,
    query: str,
    values: tuple[Any, ...],
) -> Iterator[tuple[Any, Record]]:
    lenient = _Lenient()
    connection.text_factory = lenient
    try:
        for row in connection.execute(query, values):
            value, fault = None, ""
            if lenient.broken:
                lenient.broken, fault = False, "a text is not UTF-8"
            else:
                try:
                    value = walk.decode(connection, row[3:])
                except _UNREADABLE as error:
                    fault = f"{type(error).__name__}: {error}"
            record = Record(kind=kind, id=row[1], agent_id=row[2], value=value, fault=fault)
            yield row[0], record
    finally:
        connection.text_factory = str
