"""Scope numbers: every row of memory has one, and every query is limited to some."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from edenmem.models.scope import Scope


def number_of(connection: sqlite3.Connection, scope: Scope) -> int | None:
    """Return the scope's number, if the scope was ever used."""
    row = connection.execute(
        "SELECT scope_id FROM scopes WHERE agent_id = ? AND kind = ? AND owner = ?",
        (scope.agent_id, scope.kind.value, scope.owner),
    ).fetchone()
    return row[0] if row else None


def numbers_of(connection: sqlite3.Connection, scopes: Iterable[Scope]) -> dict[Scope, int]:
    """Return the numbers of scopes that have one, in order, each once."""
    found = {}
    for scope in scopes:
        if scope not in found:
            number = number_of(connection, scope)
            if number is not None:
                found[scope] = number
    return found


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
