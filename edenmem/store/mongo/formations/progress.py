"""Find unformed messages, and move the platform's cursor; see `edenmem.store.common.progress`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from edenmem.models.forgetting import block
from edenmem.models.formation import CursorMove, Formation, FormationStatus, Reach
from edenmem.models.ids import is_id
from edenmem.store.common.progress import (
    Past,
    Place,
    Span,
    ids_to_place,
    place_by_id,
    platform_spans,
)
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import IN_LIMIT, Filter, id_parts, object_id
from edenmem.store.mongo.host.host import set_in_context
from edenmem.store.mongo.host.host_codec import message_from, sub_document
from edenmem.store.protocol.formations import Backlog
from edenmem.store.protocol.store import batched

#: States that block a new formation.
UNFINISHED = ("claimed", "released", "recorded")
_PROGRESS = {
    "agent_id": 1,
    "status": 1,
    "message_ids": 1,
    "superseded_message_ids": 1,
    "last_message_at": 1,
    "cursor_moves": 1,
}

_CURSOR_AND_AGENTS = {"agents": 1, "memory_context.last_memory_message_id": 1}

#: Maximum attempts to move the platform's cursor while the platform moves it too.
_TRIES = 5


def find_backlog(
    db: Connection, session_id: str, agent_id: str, *, limit: int, reach: Reach = Reach.WAITING
) -> Backlog:
    """Find the messages to form; see `Formations.backlog`."""
    taken: set[Any] = set()
    ours: set[Any] = set()  # freed or to be formed again: not the platform's
    pasts: list[Past] = []
    for document in db.formations.find({"session_id": object_id(session_id)}, _PROGRESS):
        pasts.append(_past(document))
        if str(document["agent_id"]) == agent_id:
            free = reach.own and document.get("status") not in UNFINISHED
            (ours if free else taken).update(document.get("message_ids") or ())
            ours.update(document.get("superseded_message_ids") or ())
    spans = _platform_spans(db, session_id, pasts)
    # Only IDs and times, from the index. Unlike a count, this is exact for late messages with an
    # old time and for deleted ones.
    order = (("createdAt", 1), ("_id", 1))
    rows = db.messages.find({"session": object_id(session_id)}, {"createdAt": 1}, sort=order)
    waiting, by_platform = [], 0
    for row in rows:
        if row["_id"] in taken:
            continue
        covered = row["_id"] not in ours and any(span.covers(_place(row)) for span in spans)
        by_platform += covered
        if not covered or reach.platform:
            waiting.append(row["_id"])
    blocked = find_blocked(db, map(str, waiting))
    waiting = [key for key in waiting if str(key) not in blocked]
    found = {
        document["_id"]: message_from(document, session_id)
        for document in db.find_by_ids(db.messages, map(str, waiting[:limit]))
    }
    messages = tuple(found[key] for key in waiting[:limit] if key in found)
    return Backlog(messages=messages, total=len(waiting), by_platform=by_platform)


def find_blocked(db: Connection, message_ids: Iterable[str]) -> set[str]:
    """Return the source messages of forgotten facts, which must not be formed again."""
    keys = {block("message", message_id): message_id for message_id in message_ids}
    blocked: set[str] = set()
    for part in batched(keys, IN_LIMIT):
        for document in db.forgettings.find({"blocks": {"$in": part}}, {"blocks": 1}):
            blocked.update(keys[key] for key in document["blocks"] if key in keys)
    return blocked


def _platform_spans(db: Connection, session_id: str, pasts: Sequence[Past]) -> tuple[Span, ...]:
    """Return the spans of a session that the platform formed."""
    session = db.sessions.find_one({"_id": object_id(session_id)}, _CURSOR_AND_AGENTS) or {}
    cursor = _cursor_of(session)
    places: dict[str, Place] = {}
    for part in id_parts(ids_to_place(cursor, pasts)):
        here = {"_id": {"$in": part}, "session": object_id(session_id)}
        for row in db.messages.find(here, {"createdAt": 1}):
            places[str(row["_id"])] = _place(row)
    first = next(iter(codec.text_ids(session.get("agents"))), None)
    return platform_spans(cursor, first, pasts, places)


def advance_session(db: Connection, formation: Formation) -> None:
    """Move the platform's progress of the session, which follows its first agent.

    The replaced cursor is noted first, and the move is made only if it is still current: the
    platform may move it too. Only forwards, since an older range may be retried.
    """
    key = {"_id": object_id(formation.session_id)}
    noted = False
    for _ in range(_TRIES):
        session = db.sessions.find_one(key, _CURSOR_AND_AGENTS)
        if session is None or not formation.message_ids:
            break
        if codec.text_ids(session.get("agents"))[:1] != (formation.agent_id,):
            break
        seen = sub_document(session.get("memory_context")).get("last_memory_message_id")
        end = Place(formation.last_message_at, formation.message_ids[-1])
        if _is_beyond(db, _cursor_of(session), end, formation.session_id):
            break
        _note_moves(db, formation, {}, [{"to": object_id(end.id), "replaced": seen}])
        noted = True
        fields = {
            "last_memory_message_id": object_id(end.id),
            "messages_since_memory_formation": _count_after(db, formation.session_id, end.at),
            "weighted_tokens_since_memory_formation": 0,
        }
        same = {"memory_context.last_memory_message_id": seen}
        if set_in_context(db, formation.session_id, "$set", fields, where=same):
            return
    # Keep the note of an earlier, interrupted call: it moved the cursor.
    _note_moves(db, formation, {} if noted else {"cursor_moves": None}, [])


def _note_moves(db: Connection, formation: Formation, where: Filter, moves: list[Document]) -> None:
    key = {"_id": object_id(formation.id), **where}
    db.formations.update_one(key, {"$set": {"cursor_moves": moves}})


def note_cursor_move(
    db: Connection, session_id: str, message_id: str, to: Any, replaced: Any
) -> None:
    """Record a move of the platform's cursor in the formation that has the message."""
    of_session = db.formations.find({"session_id": object_id(session_id)}, _PROGRESS)
    key = object_id(message_id)
    found = next((each for each in of_session if key in (each.get("message_ids") or ())), None)
    if found is None:
        return
    moves = found.get("cursor_moves")
    if not isinstance(moves, list):  # an older formation may have moved it unrecorded
        moves = [{"to": found["message_ids"][-1], "replaced": None}]
    moves = [*moves, {"to": to, "replaced": replaced}]
    db.formations.update_one({"_id": found["_id"]}, {"$set": {"cursor_moves": moves}})


def _is_beyond(db: Connection, cursor: str | None, end: Place, session_id: str) -> bool:
    """Return whether the platform's cursor is at or after a place."""
    if cursor is None:
        return False
    here = {"_id": object_id(cursor), "session": object_id(session_id)}
    row = db.messages.find_one(here, {"createdAt": 1})
    return (place_by_id(cursor) if row is None else _place(row)) >= end


def _count_after(db: Connection, session_id: str, at: datetime) -> int:
    later: Filter = {"session": object_id(session_id), "createdAt": {"$gt": at}}
    return db.messages.count(later)


def moves_of(document: Document) -> tuple[CursorMove, ...] | None:
    """Return how a formation moved the platform's cursor; None if that was not recorded."""
    moves = document.get("cursor_moves")
    if not isinstance(moves, list):
        return None
    pairs = [(codec.text_id(move["to"]), codec.text_id(move.get("replaced"))) for move in moves]
    return tuple(CursorMove(to=to, replaced=replaced) for to, replaced in pairs if to)


def _past(document: Document) -> Past:
    ids = document.get("superseded_message_ids") or document.get("message_ids")
    return Past(
        agent_id=str(document["agent_id"]),
        status=FormationStatus(document["status"]),
        end=Place(codec.require_moment(document, "last_message_at"), str(ids[-1])) if ids else None,
        moves=moves_of(document),
    )


def _place(message: Document) -> Place:
    return Place(codec.read_creation_time(message), str(message["_id"]))


def _cursor_of(session: Document) -> str | None:
    """Return the platform's cursor; None for an invalid ID."""
    context = sub_document(session.get("memory_context"))
    cursor = codec.text_id(context.get("last_memory_message_id"))
    return cursor if cursor is not None and is_id(cursor) else None
