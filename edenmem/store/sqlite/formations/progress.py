"""The platform's cursor of a session; see `edenmem.store.common.progress`."""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import msgspec

from edenmem.models.formation import CursorMove, Formation, FormationStatus
from edenmem.models.ids import is_id
from edenmem.store.common.progress import (
    Past,
    Place,
    Span,
    ids_to_place,
    place_by_id,
    platform_spans,
)
from edenmem.store.sqlite.core.codec import time
from edenmem.store.sqlite.core.part import json_array

#: Columns of formations for progress; then the last message of each, and its ID.
_PASTS = (
    "SELECT agent_id, status, last_message_at, cursor_moves, coalesce("
    " json_extract(superseded_message_ids, '$[#-1]'), (SELECT message_id FROM formation_messages"
    " WHERE formation_id = f.id ORDER BY place DESC LIMIT 1)), id"
    " FROM formations f WHERE session_id = ?"
)


def moves_from(text: str | None) -> tuple[CursorMove, ...] | None:
    """Decode a formation's move of the platform's cursor; None if none was recorded."""
    return None if text is None else msgspec.json.decode(text, type=tuple[CursorMove, ...])


def move_cursor(connection: sqlite3.Connection, formation: Formation) -> None:
    """Move the platform's cursor of a session forwards, and record the old value.

    The platform keeps the progress of a session's first agent on the session. Its counters are not
    stored here: the backlog is counted.
    """
    cursor, first = _cursor_and_first_agent(connection, formation.session_id)
    moves: tuple[CursorMove, ...] = ()
    if first == formation.agent_id and formation.message_ids:
        end = Place(formation.last_message_at, formation.message_ids[-1])
        known = _places(connection, formation.session_id, [cursor] if cursor else [])
        if cursor is None or (known.get(cursor) or place_by_id(cursor)) < end:
            connection.execute(
                "UPDATE sessions SET last_memory_message_id = ? WHERE id = ?",
                (end.id, formation.session_id),
            )
            moves = (CursorMove(to=end.id, replaced=cursor),)
    _note(connection, formation.id, moves)


def note_cursor_move(
    connection: sqlite3.Connection, session_id: str, message_id: str, replaced: str | None
) -> None:
    """Record a move of the platform's cursor with the formation of the message."""
    (to,) = connection.execute(
        "SELECT last_memory_message_id FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    row = connection.execute(
        f"{_PASTS} AND id IN (SELECT formation_id FROM formation_messages"
        " WHERE session_id = ? AND message_id = ?)",
        (session_id, session_id, message_id),
    ).fetchone()
    if row is None:
        return
    *_, noted, last, formation_id = row
    moves = moves_from(noted)
    if moves is None:  # a formation from before moves were recorded may have moved the cursor
        moves = (CursorMove(to=last),)
    moves = (*moves, CursorMove(to=to, replaced=replaced))
    _note(connection, formation_id, moves)


def _note(connection: sqlite3.Connection, formation_id: str, moves: tuple[CursorMove, ...]) -> None:
    connection.execute(
        "UPDATE formations SET cursor_moves = ? WHERE id = ?",
        (msgspec.json.encode(moves).decode(), formation_id),
    )


def _cursor_and_first_agent(
    connection: sqlite3.Connection, session_id: str
) -> tuple[str | None, str | None]:
    """Return the platform's cursor (None if invalid), and the session's first agent."""
    row = connection.execute(
        "SELECT last_memory_message_id, (SELECT member_id FROM session_members"
        " WHERE session_id = s.id AND role = 'agent' ORDER BY place LIMIT 1)"
        " FROM sessions s WHERE id = ?",
        (session_id,),
    ).fetchone()
    cursor, first = row or (None, None)
    return (cursor if cursor is not None and is_id(cursor) else None), first


def _places(
    connection: sqlite3.Connection, session_id: str, ids: Iterable[str]
) -> dict[str, Place]:
    rows = connection.execute(
        "SELECT id, created_at FROM messages WHERE session_id = ?"
        " AND id IN (SELECT value FROM json_each(?))",
        (session_id, json_array(ids)),
    )
    return {id: Place(time(at), id) for id, at in rows}


def spans_of(connection: sqlite3.Connection, session_id: str) -> tuple[Span, ...]:
    """Return the ranges of a session that the platform formed."""
    cursor, first = _cursor_and_first_agent(connection, session_id)
    pasts = [
        Past(
            agent_id=agent_id,
            status=FormationStatus(status),
            end=Place(time(at), last) if last else None,
            moves=moves_from(moves),
        )
        for agent_id, status, at, moves, last, _ in connection.execute(_PASTS, (session_id,))
    ]
    places = _places(connection, session_id, ids_to_place(cursor, pasts))
    return platform_spans(cursor, first, pasts, places)
