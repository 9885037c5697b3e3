"""Keep notes of what left the engine: replies, and the lists that they share.

A list is written before its replies. What a forgetting erases meanwhile is looked for after the
write: either it sees what was written, or this sees the forgetting.
"""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from pymongo import UpdateOne

from edenmem.models.forgetting import Traces
from edenmem.models.ids import utc_now
from edenmem.models.scope import ScopeKind
from edenmem.models.told import Note, Reply, Shown, forgotten_in, keys_of, pack, unpack, without
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import BATCH, Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    IN_LIMIT,
    Filter,
    id_parts,
    object_id,
    object_ids,
    optional_id,
)
from edenmem.store.protocol.store import batched

_NEWEST_FIRST = (("at", -1), ("_id", -1))


class MongoTold:
    """Implements `edenmem.store.protocol.told.Told`."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    def add(self, notes: Sequence[Note]) -> None:
        add_notes(self._db, notes)

    def replies(
        self,
        *,
        keys: Sequence[str] | None = None,
        reply_id: str | None = None,
        session_id: str | None = None,
        agent_id: str | None = None,
        user_ids: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[Reply]:
        given = {"_id": reply_id, "session_id": session_id, "agent_id": agent_id}
        filter: Filter = {name: object_id(id) for name, id in given.items() if id is not None}
        if user_ids is not None:
            filter["user_id"] = {"$in": object_ids(user_ids)}
        filters = [filter]
        if keys is not None:
            among: Filter = {"keys": {"$in": list(keys)}}
            ids = [str(found["_id"]) for found in self._db.told_lists.find(among, {"_id": 1})]
            filters = [
                {**filter, name: {"$in": part}}
                for part in id_parts(ids)
                for name in ("context", "found")
            ]
        most = 0 if limit is None else limit
        documents = self._db.find_all(self._db.told, filters, sort=_NEWEST_FIRST, limit=most)
        found = {reply.id: reply for reply in map(_reply, documents)}
        newest = sorted(found.values(), key=lambda one: (one.at, one.id), reverse=True)
        return newest[:limit]

    def lists(self, ids: Sequence[str]) -> dict[str, tuple[Shown, ...]]:
        found = self._db.find_by_ids(self._db.told_lists, ids)
        return {str(document["_id"]): unpack(document["items"]) for document in found}

    def prune(self, before: datetime) -> int:
        removed = self._db.told.delete_many({"at": {"$lt": before}})
        self._db.told_lists.delete_many({"last_day": {"$lt": _day(before)}})
        return removed


def add_notes(db: Connection, notes: Sequence[Note]) -> None:
    """Store notes; see `edenmem.store.protocol.told.Told.add`."""
    if not notes:
        return
    now = utc_now()
    lists: dict[str, UpdateOne] = {}
    for note in notes:
        for list_id, packed in note.lists.items():
            keys = keys_of(unpack(packed))
            new = {"items": packed, "keys": keys, "createdAt": now, "updatedAt": now}
            # The day changes nothing most times, so lists that are shared by many do not conflict.
            update = {"$setOnInsert": new, "$max": {"last_day": _day(note.reply.at)}}
            lists[list_id] = UpdateOne({"_id": object_id(list_id)}, update, upsert=True)
    db.told_lists.bulk(list(lists.values()))
    db.told.insert_new([_document(note.reply, now) for note in notes])
    since = min(note.reply.at for note in notes)
    recent: list[Filter] = [{"closed_at": None}, {"closed_at": {"$gte": since}}]
    found = db.find_all(db.forgettings, recent, {"blocks": 1})
    if blocks := {key for document in found for key in document["blocks"]}:
        replies, erased = forgotten_in(notes, blocks)
        for part in id_parts(replies):
            db.told.delete_many({"_id": {"$in": part}})
        erase_items(db, erased)


def erase_items(db: Connection, keys: Collection[str]) -> None:
    """Erase the items with these keys from all lists."""
    for part in batched(keys, IN_LIMIT):
        among: Filter = {"keys": {"$in": part}}
        while found := list(db.told_lists.find(among, limit=BATCH)):
            updates = []
            for document in found:
                left = without(unpack(document["items"]), set(part))
                changed = {"items": pack(left), "keys": keys_of(left), "updatedAt": utc_now()}
                # Another erasure may have changed it: then it is found again.
                seen = {"_id": document["_id"], "items": document["items"]}
                updates.append(UpdateOne(seen, {"$set": changed}))
            db.told_lists.bulk(updates)


def _of_subject(traces: Traces) -> list[Filter]:
    """Return filters for the replies that are removed with a subject."""
    agent: Filter = {} if traces.agent_id is None else {"agent_id": object_id(traces.agent_id)}
    agents = [scope.agent_id for scope in traces.scopes if scope.kind is ScopeKind.AGENT]
    filters: list[Filter] = [{"agent_id": {"$in": part}} for part in id_parts(agents)]
    for name, ids in (("user_id", traces.accounts), ("session_id", traces.own)):
        filters += [{**agent, name: {"$in": part}} for part in id_parts(ids)]
    return filters


def count_replies(db: Connection, traces: Traces) -> int:
    """Count the replies that are removed with a subject."""
    found = db.find_all(db.told, _of_subject(traces), {"_id": 1})
    return len({document["_id"] for document in found})


def erase_told(db: Connection, traces: Traces) -> int:
    """Remove a subject's replies, and its scopes and facts from lists; count the replies."""
    erase_items(db, dict.fromkeys((*(scope.key for scope in traces.scopes), *traces.facts)))
    return sum(db.told.delete_many(filter) for filter in _of_subject(traces))


def _day(moment: datetime) -> datetime:
    return moment - timedelta(
        hours=moment.hour,
        minutes=moment.minute,
        seconds=moment.second,
        microseconds=moment.microsecond,
    )


def _document(reply: Reply, now: datetime) -> Document:
    ids = ("session_id", "user_id", "message_id")
    return {
        "_id": object_id(reply.id),
        "at": reply.at,
        "kind": reply.kind,
        "agent_id": object_id(reply.agent_id),
        **{name: optional_id(getattr(reply, name)) for name in ids},
        "context": object_id(reply.context),
        "found": object_id(reply.found),
        "built_at": reply.built_at,
        "createdAt": now,
        "updatedAt": now,
    }


def _reply(document: Document) -> Reply:
    ids = ("session_id", "user_id", "message_id")
    optional: dict[str, Any] = {name: codec.text_id(document.get(name)) for name in ids}
    return Reply(
        id=str(document["_id"]),
        at=codec.require_moment(document, "at"),
        kind=document["kind"],
        agent_id=str(document["agent_id"]),
        built_at=codec.require_moment(document, "built_at"),
        context=str(document["context"]),
        found=str(document["found"]),
        **optional,
    )
