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
from edenmem.models.formation import Formation
from edenmem.models.ids import utc_now
from edenmem.store.common.progress import Place, finished_record, pass_over
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
    subject: Traces | None,
    at: datetime,
) -> int:
    """Settle all messages of a session, or only those of a subject.

    See `Erasure.settle_formations`.
    """
    accounts = None if subject is None else subject.accounts
    messages = find_messages_by(db, session_id, accounts, subject.messages if subject else ())
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
    waiting = [_place(document) for key, document in messages.items() if key not in formed]
    return finished_record(session_id, agent_id, last + 1, waiting, at) if waiting else None


def _pass_over(
    db: Connection, session_id: str, messages: dict[Any, Document], accounts: Sequence[str] | None
) -> None:
    """Move the platform's progress past the messages, never backwards."""
    if not messages:
        return
    newest = _place(next(reversed(messages.values())))
    for _ in range(_TRIES):
        session = db.sessions.find_one({"_id": object_id(session_id)}, {_CURSOR: 1})
        cursor = sub_document((session or {}).get("memory_context")).get(_CURSOR_FIELD)
        known = db.messages.find_one({"_id": cursor}, {"createdAt": 1}) if cursor else None
        if session is None or (known is not None and _place(known) >= newest):
            return
        is_deleted = isinstance(cursor, ObjectId) and known is None
        last, left = pass_over(
            _list_from(db, session_id, newest, accounts),
            newest,
            str(cursor) if is_deleted else None,
        )
        fields: Document = {_CURSOR_FIELD: object_id(last), "messages_since_memory_formation": left}
        if not left:
            fields["weighted_tokens_since_memory_formation"] = 0
        if set_in_context(db, session_id, "$set", fields, where={_CURSOR: cursor}):
            return
    raise ConflictError(
        f"the platform keeps moving its progress in session {session_id}",
        hint="run the command again",
    )


def _list_from(
    db: Connection, session_id: str, newest: Place, accounts: Sequence[str] | None
) -> Iterator[tuple[Place, bool]]:
    """Yield the messages from the newest one, and whether another person wrote each."""
    for document in db.messages.find(
        {"session": object_id(session_id), "createdAt": {"$gte": newest.at}},
        {"createdAt": 1, "role": 1, "sender": 1, "trigger": 1},
        sort=(("createdAt", 1), ("_id", 1)),
    ):
        is_by_person = document.get("role") == "user" and not document.get("trigger")
        is_of_others = is_by_person and str(document.get("sender")) not in (accounts or ())
        yield _place(document), is_of_others


def _place(document: Document) -> Place:
    return Place(codec.read_creation_time(document), str(document["_id"]))
