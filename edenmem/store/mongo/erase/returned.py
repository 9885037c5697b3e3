"""Find forgotten memory that another program has written again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from bson import ObjectId

from edenmem.models.ids import as_utc
from edenmem.models.memory import Fact, Reflection
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import BATCH, Collection, Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import EVERYTHING, Filter, id_parts


def find_returned(db: Connection, since: datetime) -> Iterator[Fact | Reflection]:
    """Yield memory without a formation that has marked messages; see `Erasure.find_returned`."""
    if db.forgotten_messages.find_one(EVERYTHING) is None:
        return
    for page in _walk(db.facts, since):
        yield from _keep_marked(db, list(codec.read_owned(codec.fact_from, page)))
    for page in _walk(db.reflections, since):
        yield from _keep_marked(db, list(codec.read_owned(codec.reflection_from, page)))


def find_old_contexts(db: Connection, since: datetime, before: datetime) -> dict[str, datetime]:
    """Return sessions active since a moment with an older context; see `Erasure`."""
    cached_at = "memory_context.memory_context_timestamp"
    stale: Filter = {
        "memory_context.last_activity": {"$gte": since},
        "memory_context.cached_memory_context": {"$gt": ""},
        cached_at: {"$lt": before},
    }
    found = db.sessions.find(stale, {cached_at: 1})
    return {
        str(each["_id"]): as_utc(each["memory_context"]["memory_context_timestamp"])
        for each in found
    }


def _walk(collection: Collection, since: datetime) -> Iterator[list[Document]]:
    """Yield pages of documents whose ID was made since a moment."""
    ids: Filter = {"$gte": ObjectId.from_datetime(since)}
    order = (("_id", 1),)
    while True:
        new: Filter = {"_id": ids, "formation_id": None}
        page = list(collection.find(new, codec.NO_VECTOR, sort=order, limit=BATCH))
        if page:
            yield page
        if len(page) < BATCH:
            return
        ids = {"$gt": page[-1]["_id"]}


def _keep_marked(db: Connection, found: Sequence[Fact | Reflection]) -> Iterator[Fact | Reflection]:
    sources = (id for memory in found for id in memory.source_message_ids)
    parts: list[Filter] = [{"_id": {"$in": part}} for part in id_parts(sources)]
    marked = {str(mark["_id"]) for mark in db.find_all(db.forgotten_messages, parts, {"_id": 1})}
    for memory in found:
        if not marked.isdisjoint(memory.source_message_ids):
            yield memory
