"""Scope numbers: every row of memory has one, and every query is limited to some."""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from edenmem.models.scope import Scope

_JOIN = (
    "json_each(?) k CROSS JOIN scopes s ON s.agent_id = k.value ->> 0 AND s.kind = k.value ->> 1"
    " AND s.owner = k.value ->> 2"
)
#: A condition on the number of a scope; its parameter is `scope_keys`.
OF_SCOPES = f"IN (SELECT s.scope_id FROM {_JOIN})"
#: The same for a single scope, so that an index also gives the order of its rows.
OF_SCOPE = f"= (SELECT s.scope_id FROM {_JOIN})"


def scope_keys(*scopes: Scope) -> str:
    """Encode a parameter for `OF_SCOPES`."""
    keys = [(one.agent_id, one.kind.value, one.owner) for one in scopes]
    return msgspec.json.encode(keys).decode()


def number_of(connection: sqlite3.Connection, scope: Scope) -> int | None:
    """Return the scope's number, if the scope was ever used."""
    row = connection.execute(
        "SELECT scope_id FROM scopes WHERE agent_id = ? AND kind = ? AND owner = ?",
        (scope.agent_id, scope.kind.value, scope.owner),
    ).fetchone()
    return row[0] if row else None


class State(NamedTuple):
    """A used scope: its number, its revisions, and the number of its facts."""

    number: int
    revision: int
    codes_revision: int
    facts: int


def states_of(connection: sqlite3.Connection, scopes: Iterable[Scope]) -> dict[Scope, State]:
    """Return the states of the scopes that were ever used, in order, each once."""
    wanted = list(dict.fromkeys(scopes))
    rows = connection.execute(
        f"SELECT k.key, scope_id, revision, codes_revision, facts FROM {_JOIN} ORDER BY k.key",
        (scope_keys(*wanted),),
    )
    return {wanted[place]: State(*state) for place, *state in rows}


def numbers_of(connection: sqlite3.Connection, scopes: Iterable[Scope]) -> dict[Scope, int]:
    """Return the numbers of scopes that have one, in order, each once."""
    return {scope: state.number for scope, state in states_of(connection, scopes).items()}


def make_number(connection: sqlite3.Connection, scope: Scope) -> int:
    """Return the scope's number; create one if needed."""
    number = number_of(connection, scope)
    if number is not None:
        return number
    made = connection.execute(
        "INSERT INTO scopes (agent_id, kind, owner) VALUES (?, ?, ?)",
        (scope.agent_id, scope.kind.value, scope.owner),
    )
    assert made.lastrowid is not None
    return made.lastrowid


def touch(
    connection: sqlite3.Connection,
    number: int,
    at: int,
    *,
    revision: int = 1,
    facts: int = 0,
    reflections: int = 0,
    pending: int = 0,
) -> None:
    """Record changes in a scope: revisions, time, and differences of the counts."""
    connection.execute(
        "UPDATE scopes SET revision = revision + ?, updated_at = max(coalesce(updated_at, ?), ?),"
        " facts = facts + ?, reflections = reflections + ?, pending = pending + ?"
        " WHERE scope_id = ?",
        (revision, at, at, facts, reflections, pending, number),
    )


def touch_all(connection: sqlite3.Connection, numbers: Collection[int]) -> None:
    """Raise the revisions of scopes, which the caches of other processes depend on."""
    connection.execute(
        "UPDATE scopes SET revision = revision + 1"
        " WHERE scope_id IN (SELECT value FROM json_each(?))",
        (msgspec.json.encode(list(numbers)).decode(),),
    )
