"""Lookup of typed names and ID prefixes."""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import re
import sqlite3
from typing import Any, NamedTuple

from edenmem.models.ids import is_id
from edenmem.store.protocol.host import Reference, ReferenceKind

#: Minimum number of digits of an ID prefix.
SHORTEST_PREFIX = 4

_SURROGATE = re.compile("[\ud800-\udfff]")
_DIGITS = re.compile(r"[0-9a-f]{0,24}\Z")
#: Sorts after all continuations of a prefix.
_LAST = "\U0010ffff"
_PREFIX = re.compile(rf"[0-9a-f]{{{SHORTEST_PREFIX},23}}\Z")


class _NameTable(NamedTuple):
    """The table of a kind of thing: name expression, name columns and a condition.

    Each name column has a twin ``…_folded`` for comparison without case.
    """

    table: str
    label: str
    names: tuple[str, ...] = ()
    condition: str = "1"


_BEGINNING = "iif(length(content) > 100, substr(content, 1, 99) || '…', content)"


_KINDS: dict[ReferenceKind, _NameTable] = {
    "agent": _NameTable("agents", "username", ("username",), "NOT deleted"),
    "user": _NameTable("users", "username", ("username",), "NOT deleted"),
    "session": _NameTable(
        "sessions", "coalesce(name, title, id)", ("name", "title"), "NOT deleted"
    ),
    "fact": _NameTable("facts", _BEGINNING),
    "reflection": _NameTable("reflections", _BEGINNING),
    "formation": _NameTable(
        "formations",
        "iif(superseded_message_ids IS NULL, status, 'superseded') || ' #' || seq"
        " || ' of session ' || session_id",
    ),
}


def find_references(
    connection: sqlite3.Connection, kind: ReferenceKind, text: str, limit: int
) -> list[Reference]:
    """Find what a typed text may refer to; see `edenmem.store.protocol.host.Host.find`."""
    named = _KINDS[kind]
    digits = text.lower()
    if _SURROGATE.search(text):  # no stored name has surrogates, and SQLite rejects them
        return []
    if is_id(digits):
        found = _where(connection, named, "id = ?", [digits], 1)
        if found:
            return found
    for exact in (True, False):
        for name in named.names:
            where, values = f"{name}_folded = ?", [text.casefold()]
            if exact:
                where, values = f"{where} AND {name} = ?", [*values, text]
            found = _where(connection, named, where, values, limit)
            if found:
                return found
    if _PREFIX.match(digits):
        return _where(connection, named, "id >= ? AND id < ?", [digits, digits + "g"], limit)
    return []


def complete_reference(
    connection: sqlite3.Connection, kind: ReferenceKind, text: str, limit: int
) -> list[Reference]:
    """Complete a typed prefix; see `edenmem.store.protocol.host.Host.find_by_prefix`."""
    named = _KINDS[kind]
    if _SURROGATE.search(text):
        return []
    found: dict[str, Reference] = {}
    for name in named.names:
        low = text.casefold()
        rows = connection.execute(
            f"SELECT id, {name} FROM {named.table} WHERE {named.condition}"
            f" AND {name}_folded >= ? AND {name}_folded < ?"
            f" ORDER BY {name}_folded LIMIT ?",
            (low, low + _LAST, limit),
        )
        for row_id, label in rows:
            found.setdefault(row_id, Reference(id=row_id, label=label))
    if _DIGITS.match(text.lower()):
        low = text.lower()
        rows = connection.execute(
            f"SELECT id, id FROM {named.table} WHERE {named.condition}"
            " AND id >= ? AND id < ? ORDER BY id DESC LIMIT ?",
            (low, low + "g", limit),
        )
        for row_id, label in rows:
            found.setdefault(row_id, Reference(id=row_id, label=label))
    return list(found.values())[:limit]


def _where(
    connection: sqlite3.Connection, named: _NameTable, where: str, values: list[Any], limit: int
) -> list[Reference]:
    rows = connection.execute(
        f"SELECT id, {named.label} FROM {named.table} WHERE {named.condition} AND {where}"
        " ORDER BY id LIMIT ?",
        (*values, limit),
    )
    return [Reference(id=row_id, label=label) for row_id, label in rows]
