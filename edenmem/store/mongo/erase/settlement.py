"""Prevent past messages from being formed later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from bson import ObjectId
from pymongo.errors import DuplicateKeyError

from edenmem.errors import ConflictError
from edenmem.memory.formations import apply
from edenmem.models.forgetting import Traces
from edenmem.models.formation import Formation, FormationStatus, Trigger
from edenmem.models.ids import as_utc, new_id, utc_now
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import Filter, object_id
from edenmem.store.mongo.formations.formations import formation_document, formation_from
from edenmem.store.mongo.host.host import find_messages_by, set_in_context
from edenmem.store.mongo.host.host_codec import sub_document
from edenmem.store.protocol.formations import Formations

_TRIES = 5
_CURSOR_FIELD = "last_memory_message_id"
_CURSOR = f"memory_context.{_CURSOR_FIELD}"
_UNDER_WAY = ("claimed", "released", "failed")
#: Formations with content to empty.
_UNSETTLED: list[Filter] = [
    {"status": {"$nin": ["applied", "superseded"]}},
    {"decisions.0": {"$exists": True}},
    {"error": {"$ne": None}},
]


def find_unsettled(db: Connection, traces: Traces) -> Iterator[Document]:
    """Yield the formations with content, or that may still continue."""
    for session_id in traces.own:
        yield from db.formations.find(
            {**_of(session_id, traces.agent_id), "$or": _UNSETTLED}, {"changes": 0}
        )
    for session_id in traces.shared:
        messages = find_messages_by(db, session_id, traces.accounts, traces.messages)
        held = {**_of(session_id, traces.agent_id), "$or": _UNSETTLED}
        for document in db.formations.find(held, {"changes": 0}) if messages else ():
            if not messages.keys().isdisjoint(_message_ids(document)):
                yield document


def _of(session_id: str, agent_id: str | None) -> Filter:
    agent = {} if agent_id is None else {"agent_id": object_id(agent_id)}
    return {"session_id": object_id(session_id), **agent}


def _message_ids(document: Document) -> list[Any]:
    """Return the messages from which a formation was made, even if it is superseded."""
    return [*(document.get("message_ids") or ()), *(document.get("superseded_message_ids") or ())]


def settle_session(
    db: Connection,
    formations: Formations,
    session_id: str,
    agent_id: str | None,
    said_by: Traces | None,
    at: datetime,
) -> int:
    """Settle all messages of a session, or only those of a subject.

    See `Erasure.settle_formations`.
    """
    accounts = None if said_by is None else said_by.accounts
    messages = find_messages_by(db, session_id, accounts, said_by.messages if said_by else ())
    settled = 0
    for document in db.formations.find({**_of(session_id, agent_id), "$or": _UNSETTLED}):
        ids = document.get("message_ids") or []
        if accounts is not None and messages.keys().isdisjoint(_message_ids(document)):
            continue
        if document["status"] == "recorded":
            recorded = formation_from(document)
            done = apply(recorded, now=at)
            if recorded.changes is not None and done is not None:
                formations.apply_formation(recorded, done, recorded.changes)
        fields: Document = {
            "status": "superseded" if document["status"] == "superseded" else "applied",
            "decisions": [],
            "error": None,
            "worker": None,
            "lease_until": None,
            "not_before": None,
            "updated_at": at,
            "updatedAt": utc_now(),
        }
        is_under_way = document["status"] in _UNDER_WAY or bool(document.get("next_step"))
        if accounts is not None and is_under_way:
            # Messages of other users in a revoked claim are free again.
            fields["message_ids"] = [key for key in ids if key in messages]
        gone = dict.fromkeys(("unfinished", "changes", "next_step"), "")
        db.formations.update_one({"_id": document["_id"]}, {"$set": fields, "$unset": gone})
        settled += 1
    _count_as_done(db, session_id, agent_id, messages, at)
    _pass_over(db, session_id, messages, accounts)
    return settled


def _count_as_done(
    db: Connection,
    session_id: str,
    agent_id: str | None,
    messages: dict[Any, Document],
    at: datetime,
) -> None:
    """Give pending messages a finished, empty formation."""
    session = db.sessions.find_one({"_id": object_id(session_id)}, {"agents": 1})
    agents = codec.text_ids(session.get("agents")) if session else ()
    for agent in agents if agent_id is None else (agent_id,):
        for _ in range(_TRIES):
            done = _build_formation(db, session_id, agent, messages, at)
            if done is None:
                break
            try:
                db.formations.insert_one(formation_document(done))
            except DuplicateKeyError:  # another worker has claimed some of them
                continue
            break
        else:
            raise ConflictError(
                f"other workers keep claiming messages of session {session_id}",
                hint="stop the workers, or try again",
            )


def _build_formation(
    db: Connection, session_id: str, agent_id: str, messages: dict[Any, Document], at: datetime
) -> Formation | None:
    pair = {"session_id": object_id(session_id), "agent_id": object_id(agent_id)}
    formed: set[Any] = set()
    last = 0
    for document in db.formations.find(pair, {"message_ids": 1, "seq": 1}):
        formed.update(document.get("message_ids") or ())
        last = max(last, codec.number(document.get("seq")))
    waiting = [document for key, document in messages.items() if key not in formed]
    if not waiting:
        return None
    return Formation(
        id=new_id(at),
        session_id=session_id,
        agent_id=agent_id,
        seq=last + 1,
        status=FormationStatus.APPLIED,
        trigger=Trigger.FORCED,
        message_ids=tuple(str(document["_id"]) for document in waiting),
        last_message_at=codec.read_creation_time(waiting[-1]),
        created_at=at,
        updated_at=at,
    )


def _pass_over(
    db: Connection, session_id: str, messages: dict[Any, Document], accounts: Sequence[str] | None
) -> None:
    """Move the platform's progress past the messages, never backwards.

    The platform has one cursor per session. It stops before the next message of another user, so
    that the platform skips as few of their messages as possible.
    """
    if not messages:
        return
    newest = _place(next(reversed(messages.values())))
    for _ in range(_TRIES):
        key = {"_id": object_id(session_id)}
        session = db.sessions.find_one(key, {_CURSOR: 1})
        cursor = sub_document((session or {}).get("memory_context")).get(_CURSOR_FIELD)
        known = db.messages.find_one({"_id": cursor}, {"createdAt": 1}) if cursor else None
        if session is None or (known is not None and _place(known) >= newest):
            return
        deleted_at = None
        if isinstance(cursor, ObjectId) and known is None:
            deleted_at = as_utc(cursor.generation_time)
        last, left = _end_of_replies(db, session_id, newest, deleted_at, accounts)
        fields = {_CURSOR_FIELD: last, "messages_since_memory_formation": left}
        if not left:
            fields["weighted_tokens_since_memory_formation"] = 0
        if set_in_context(db, session_id, "$set", fields, where={_CURSOR: cursor}):
            return
    raise ConflictError(
        f"the platform keeps moving its progress in session {session_id}",
        hint="run the command again",
    )


def _end_of_replies(
    db: Connection,
    session_id: str,
    newest: tuple[datetime, str],
    deleted_at: datetime | None,
    accounts: Sequence[str] | None,
) -> tuple[Any, int]:
    """Find the last message before the next one of another user, and count the messages after it.

    ``deleted_at`` is the time of a deleted message at the platform's cursor: earlier messages count
    as formed. The platform itself would form the whole session again.
    """
    formed_until = max(newest[0], deleted_at or newest[0])
    last, left = object_id(newest[1]), 0
    for document in db.messages.find(
        {"session": object_id(session_id), "createdAt": {"$gte": newest[0]}},
        {"createdAt": 1, "role": 1, "sender": 1, "trigger": 1},
        sort=(("createdAt", 1), ("_id", 1)),
    ):
        is_of_others = (
            _place(document) > newest
            and codec.read_creation_time(document) > formed_until
            and document.get("role") == "user"
            and not document.get("trigger")
            and str(document.get("sender")) not in (accounts or ())
        )
        if left or is_of_others:
            left += 1
        else:
            last = document["_id"]
    return last, left


def _place(document: Document) -> tuple[datetime, str]:
    return codec.read_creation_time(document), str(document["_id"])
