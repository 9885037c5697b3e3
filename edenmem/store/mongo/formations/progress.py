"""Find unread messages, and move the platform's cursor; see `edenmem.store.common.progress`."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from edenmem.models.forgetting import block
from edenmem.models.formation import Reach, Reading
from edenmem.models.ids import is_id, time_of
from edenmem.store.common.progress import (
    Place,
    Readers,
    Waiting,
    is_free_again,
    select_waiting,
)
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    EPOCH,
    EVERYTHING,
    IN_LIMIT,
    Filter,
    at_or_after,
    object_id,
)
from edenmem.store.mongo.host.host import set_in_context
from edenmem.store.mongo.host.host_codec import message_from, sub_document
from edenmem.store.protocol.formations import Backlog
from edenmem.store.protocol.store import batched

_READ = {
    "session_id": 1,
    "agent_id": 1,
    "status": 1,
    "trigger": 1,
    "message_ids": 1,
    "superseded_message_ids": 1,
}
#: Only edenmem writes the field "private".
_SOURCES = dict.fromkeys(
    ("session_id", "agent_id", "formation_id", "source_message_ids", "private"), 1
)
_CURSOR_FIELD = "last_memory_message_id"
_CURSOR = f"memory_context.{_CURSOR_FIELD}"
_IN_ORDER = (("createdAt", 1), ("_id", 1))
_SESSION = {"agents": 1, _CURSOR: 1, "memory_context.last_activity": 1, "updatedAt": 1}

#: Sessions whose messages are read together.
_PAGE = 50

#: Maximum attempts to move the platform's cursor while the platform moves it too.
_TRIES = 5


class MongoProgress:
    """What of each session was read, by edenmem and by the platform."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    def backlog(
        self, session_id: str, agent_id: str, *, limit: int, reach: Reach = Reach.WAITING
    ) -> Backlog:
        db, here = self._db, object_id(session_id)
        session = db.sessions.find_one({"_id": here}, _SESSION) or {}
        readers = _find_readers(db, [here], reach)[session_id, agent_id]
        # Only IDs and times, from the index. Unlike a count, this is exact for late messages with
        # an old time and for deleted ones.
        rows = db.messages.find({"session": here}, {"createdAt": 1}, sort=_IN_ORDER)
        waiting = self._select(list(map(_place, rows)), readers, session, reach)
        ids = waiting.ids[:limit]
        found = {
            str(document["_id"]): message_from(document, session_id)
            for document in db.find_by_ids(db.messages, ids)
        }
        context = sub_document(session.get("memory_context"))
        times = (codec.moment(session.get("updatedAt")), codec.moment(context.get("last_activity")))
        return Backlog(
            messages=tuple(found[key] for key in ids if key in found),
            total=len(waiting.ids),
            by_platform=waiting.by_platform,
            passed=waiting.passed,
            read_twice=len(readers.twice),
            unnoted=tuple(sorted(readers.unnoted)),
            touched_at=max(filter(None, times), default=None),
        )

    def find_blocked(self, message_ids: Iterable[str]) -> set[str]:
        keys = {block("message", message_id): message_id for message_id in message_ids}
        blocked: set[str] = set()
        for part in batched(keys, IN_LIMIT):
            for document in self._db.forgettings.find({"blocks": {"$in": part}}, {"blocks": 1}):
                blocked.update(keys[key] for key in document["blocks"] if key in keys)
        return blocked

    def proof(self, session_id: str, agent_id: str) -> set[str]:
        readers = _find_readers(self._db, [object_id(session_id)], Reach.WAITING)
        return readers[session_id, agent_id].new_proof

    def find_readings(
        self, *, agent_id: str | None = None, latest: int | None = None
    ) -> Iterator[Reading]:
        db = self._db
        order = (("memory_context.last_activity", -1), ("updatedAt", -1), ("_id", 1))
        recent = {"memory_context.last_activity": at_or_after(EPOCH)}
        fields = {**_SESSION, "deleted": 1, "extras.incognito": 1}
        sessions = db.sessions.find(
            recent if latest else EVERYTHING,
            fields,
            sort=order if latest else (("_id", 1),),
            limit=latest or 0,
        )
        readable = (
            session
            for session in sessions
            if session.get("deleted") is not True
            and not sub_document(session.get("extras")).get("incognito")
        )
        for page in batched(readable, _PAGE):
            keys = [session["_id"] for session in page]
            readers = _find_readers(db, keys, Reach.WAITING)
            places: dict[str, list[Place]] = defaultdict(list)
            here: Filter = {"session": {"$in": keys}}
            for row in db.messages.find(here, {"createdAt": 1, "session": 1}):
                held = row.get("session")
                for key in held if isinstance(held, list) else [held]:
                    places[str(key)].append(_place(row))
            for session in page:
                key = str(session["_id"])
                for agent in codec.text_ids(session.get("agents")):
                    if agent_id not in (None, agent):
                        continue
                    known = readers[key, agent]
                    unread = self._select(sorted(places[key]), known, session, Reach.WAITING).passed
                    if unread or known.twice:
                        yield Reading(
                            session_id=key, agent_id=agent, unread=unread, twice=len(known.twice)
                        )

    def _select(
        self, places: Sequence[Place], readers: Readers, session: Document, reach: Reach
    ) -> Waiting:
        return select_waiting(places, readers, _cursor_of(session), reach, self.find_blocked)

    # -- the platform's cursor ---------------------------------------------------------------

    def advance_cursor(self, session_id: str, *, past_replies: bool = False) -> bool:
        db, here = self._db, object_id(session_id)
        readers = _find_readers(db, [here], Reach.WAITING)
        of_session = [each for (session, _), each in readers.items() if session == session_id]
        read = {id for each in of_session for id in (*each.taken, *each.platform)}
        rows = db.find_by_ids(db.messages, read, {"createdAt": 1}, session=here)
        newest = max(map(_place, rows), default=None)
        if newest is not None and past_replies:
            newest = self._pass_replies(session_id, newest)
        return newest is not None and self._move_cursor(session_id, newest)

    def pass_over(self, session_id: str) -> None:
        """Move the platform's cursor to the session's newest message, and reset the counters."""
        backwards = [(field, -order) for field, order in _IN_ORDER]
        here = {"session": object_id(session_id)}
        newest = self._db.messages.find_one(here, {"createdAt": 1}, sort=backwards)
        if newest is not None:
            self._move_cursor(session_id, _place(newest))

    def _pass_replies(self, session_id: str, end: Place) -> Place:
        """Return the last message before the next one of a person.

        Up to a cursor of a message that was deleted, all count as formed.
        """
        db, here = self._db, object_id(session_id)
        cursor = _cursor_of(db.sessions.find_one({"_id": here}, {_CURSOR: 1}) or {})
        is_there = cursor is None or db.messages.count({"_id": object_id(cursor)}, limit=1)
        formed_until = time_of(cursor) if cursor is not None and not is_there else None
        later: Filter = {"session": here, "createdAt": {"$gte": end.at}}
        fields = {"createdAt": 1, "role": 1, "trigger": 1}
        for row in db.messages.find(later, fields, sort=_IN_ORDER):
            if (place := _place(row)) > end:
                is_by_person = row.get("role") == "user" and not row.get("trigger")
                if is_by_person and (formed_until is None or place.at > formed_until):
                    break
                end = place
        return end

    def _move_cursor(self, session_id: str, end: Place) -> bool:
        """Move the platform's cursor to a message unless the cursor is there or later.

        The move is made only if the replaced cursor is current: the platform may move it too.
        """
        db, here = self._db, object_id(session_id)
        for _ in range(_TRIES):
            session = db.sessions.find_one({"_id": here}, {_CURSOR: 1})
            if session is None:
                return False
            if (cursor := _cursor_of(session)) is not None:
                at = {"_id": object_id(cursor), "session": here}
                row = db.messages.find_one(at, {"createdAt": 1})
                # Without its message the platform begins at the first one.
                if row is not None and _place(row) >= end:
                    return False
            left = db.messages.count({"session": here, "createdAt": {"$gt": end.at}})
            fields = {_CURSOR_FIELD: object_id(end.id), "messages_since_memory_formation": left}
            if not left:
                fields["weighted_tokens_since_memory_formation"] = 0
            seen = sub_document(session.get("memory_context")).get(_CURSOR_FIELD)
            if set_in_context(db, session_id, "$set", fields, where={_CURSOR: seen}):
                return True
        return False


def _find_readers(
    db: Connection, sessions: Sequence[Any], reach: Reach
) -> dict[tuple[str, str], Readers]:
    """Return the read messages by session and agent."""
    found: dict[tuple[str, str], Readers] = defaultdict(Readers)
    here: Filter = {"session_id": {"$in": list(sessions)}}
    for document in db.formations.find(here, _READ):
        taken = codec.text_ids(document.get("message_ids"))
        freed = codec.text_ids(document.get("superseded_message_ids"))
        if is_free_again(document.get("status", ""), reach):
            taken, freed = (), (*freed, *taken)
        found[_pair(document)].add(str(document.get("trigger")), taken, freed)
    for collection in (db.facts, db.reflections):
        for document in collection.find(here, _SOURCES):
            if document.get("formation_id") is not None:
                continue
            sources = codec.text_ids(document.get("source_message_ids"))
            readers = found[_pair(document)]
            readers.proof.update(sources)
            if "private" not in document:
                readers.platform_proof.update(sources)
    return found


def _pair(document: Document) -> tuple[str, str]:
    return str(document.get("session_id")), str(document.get("agent_id"))


def _place(message: Document) -> Place:
    return Place(codec.read_creation_time(message), str(message["_id"]))


def _cursor_of(session: Document) -> str | None:
    """Return the platform's cursor; None for an invalid ID."""
    context = sub_document(session.get("memory_context"))
    cursor = codec.text_id(context.get(_CURSOR_FIELD))
    return cursor if cursor is not None and is_id(cursor) else None
