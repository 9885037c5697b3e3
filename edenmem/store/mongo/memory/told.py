"""Keep notes of what left the engine: replies, and the lists that they share; IDs are text.

A list is written before its replies. What a forgetting erases meanwhile is looked for after the
write: either it sees what was written, or this sees the forgetting.
"""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime

import msgspec
from pymongo import UpdateOne

from edenmem.models.forgetting import Traces
from edenmem.models.ids import utc_now
from edenmem.models.scope import ScopeKind
from edenmem.models.told import Note, Reply, Shown, forgotten_in, keys_of, pack, unpack, without
from edenmem.store.mongo.core.collection import BATCH
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import IN_LIMIT, Filter
from edenmem.store.protocol.store import batched


class MongoTold:
    """Implements `edenmem.store.protocol.log.Told`."""

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
        until: datetime | None = None,
        limit: int | None = None,
    ) -> list[Reply]:
        given = {"_id": reply_id, "session_id": session_id, "agent_id": agent_id}
        filter: Filter = {name: id for name, id in given.items() if id is not None}
        if user_ids is not None:
            filter["user_id"] = {"$in": list(user_ids)}
        if until is not None:
            filter["at"] = {"$lt": until}
        filters = [filter]
        if keys is not None:
            lists = self._db.told_lists.find({"keys": {"$in": list(keys)}}, {"_id": 1})
            filters = [
                {**filter, name: {"$in": part}}
                for part in batched((found["_id"] for found in lists), IN_LIMIT)
                for name in ("context", "found")
            ]
        newest = (("at", -1), ("_id", -1))
        documents = self._db.find_all(self._db.told, filters, sort=newest, limit=limit or 0)
        names = set(Reply.__struct_fields__)
        found = {
            str(document["_id"]): Reply(
                id=document["_id"], **{name: document[name] for name in document if name in names}
            )
            for document in documents
        }
        return sorted(found.values(), key=lambda one: (one.at, one.id), reverse=True)[:limit]

    def lists(self, ids: Sequence[str]) -> dict[str, tuple[Shown, ...]]:
        filters = _among("_id", ids)
        found = self._db.find_all(self._db.told_lists, filters, {"items": 1})
        return {document["_id"]: unpack(document["items"]) for document in found}

    def prune(self, before: datetime) -> int:
        removed = self._db.told.delete_many({"at": {"$lt": before}})
        self._db.told_lists.delete_many({"last_day": {"$lt": _day(before)}})
        return removed


def add_notes(db: Connection, notes: Sequence[Note]) -> None:
    """Store notes; see `edenmem.store.protocol.log.Told.add`."""
    now = utc_now()
    made = {"createdAt": now, "updatedAt": now}
    # The day changes nothing most times, so lists that are shared by many do not conflict.
    lists = {
        id: UpdateOne(
            {"_id": id},
            {
                "$setOnInsert": {"items": packed, "keys": keys_of(unpack(packed)), **made},
                "$max": {"last_day": _day(note.reply.at)},
            },
            upsert=True,
        )
        for note in notes
        for id, packed in note.lists.items()
    }
    db.told_lists.bulk(list(lists.values()))
    fields = [msgspec.structs.asdict(note.reply) for note in notes]
    db.told.insert_new([{"_id": each.pop("id"), **each, **made} for each in fields])
    since = min((note.reply.at for note in notes), default=now)
    recent: list[Filter] = [{"closed_at": None}, {"closed_at": {"$gte": since}}]
    found = db.find_all(db.forgettings, recent, {"blocks": 1})
    if blocks := {key for document in found for key in document["blocks"]}:
        replies, erased = forgotten_in(notes, blocks)
        _delete(db, _among("_id", replies))
        erase_items(db, erased)


def erase_items(db: Connection, keys: Collection[str]) -> None:
    """Erase the items with these keys from all lists."""
    for filter in _among("keys", keys):
        while found := list(db.told_lists.find(filter, limit=BATCH)):
            updates = []
            for document in found:
                left = without(unpack(document["items"]), keys)
                changed = {"items": pack(left), "keys": keys_of(left), "updatedAt": utc_now()}
                # Another erasure may have changed it: then it is found again.
                seen = {"_id": document["_id"], "items": document["items"]}
                updates.append(UpdateOne(seen, {"$set": changed}))
            db.told_lists.bulk(updates)


def count_replies(db: Connection, traces: Traces) -> int:
    """Count the replies that are removed with a subject."""
    found = db.find_all(db.told, list(_of_subject(traces)), {"_id": 1})
    return len({document["_id"] for document in found})


def erase_told(db: Connection, traces: Traces) -> int:
    """Remove a subject's replies, and its scopes and facts from lists; count the replies."""
    erase_items(db, {*(scope.key for scope in traces.scopes), *traces.facts})
    return _delete(db, _of_subject(traces))


def _of_subject(traces: Traces) -> Iterator[Filter]:
    agent: Filter = {} if traces.agent_id is None else {"agent_id": traces.agent_id}
    agents = [scope.agent_id for scope in traces.scopes if scope.kind is ScopeKind.AGENT]
    yield from _among("agent_id", agents)
    for name, ids in (("user_id", traces.accounts), ("session_id", traces.own)):
        yield from ({**agent, **filter} for filter in _among(name, ids))


def _delete(db: Connection, filters: Iterable[Filter]) -> int:
    return sum(db.told.delete_many(filter) for filter in filters)


def _among(name: str, ids: Iterable[str]) -> list[Filter]:
    return [{name: {"$in": part}} for part in batched(ids, IN_LIMIT)]


def _day(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)
