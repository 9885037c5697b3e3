"""Update buffers: the IDs of pending reflections, in order, on the consolidated document."""

from __future__ import annotations

from collections.abc import Sequence

from pymongo import UpdateOne

from edenmem.models.ids import utc_now
from edenmem.models.memory import Reflection
from edenmem.models.scope import Scope
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    build_consolidated_filters,
    build_consolidated_key,
    object_ids,
)

#: The field of the buffer.
BUFFER = "unabsorbed_ids"


def fill_buffers(db: Connection, reflections: Sequence[Reflection]) -> None:
    """Append reflections to their scopes' buffers, in order."""
    waiting: dict[Scope, list[str]] = {}
    for reflection in reflections:
        waiting.setdefault(reflection.home, []).append(reflection.id)
    made = {"consolidated_content": "", "createdAt": utc_now(), BUFFER: []}
    operations = [
        UpdateOne(build_consolidated_key(scope), {"$setOnInsert": made}, upsert=True)
        for scope in waiting
    ]
    while operations:
        # Two concurrent first reflections of a scope: the second finds the document on retry.
        _, failed = db.consolidated.bulk(operations)
        operations = [operations[place] for place in sorted(failed)]
    for document in db.find_all(db.consolidated, build_consolidated_filters(waiting)):
        scope = codec.find_text_scope(document)
        if scope in waiting:
            db.consolidated.bulk(moves(document, [(True, waiting[scope])]))


def moves(document: Document, steps: Sequence[tuple[bool, Sequence[str]]]) -> list[UpdateOne]:
    """Return the updates that add IDs to a buffer (True) or remove them.

    Other entries of the buffer stay, known or not.
    """
    key = {"_id": document["_id"]}
    stamp = {"$set": {"updatedAt": utc_now()}}
    updates = []
    if not isinstance(document.get(BUFFER), list):
        updates.append(UpdateOne(key, {"$set": {BUFFER: []}}))
    for waits, ids in steps:
        both = [*object_ids(ids), *ids]  # the buffer may hold text
        put = {"$addToSet": {BUFFER: {"$each": object_ids(ids)}}}
        update = put if waits else {"$pull": {BUFFER: {"$in": both}}}
        updates.append(UpdateOne(key, {**update, **stamp}))
    return updates
