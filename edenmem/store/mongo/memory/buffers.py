"""The buffers of scopes: the ids of what waits, in order, on the consolidated document."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from pymongo import UpdateOne

from edenmem.models.changes import (
    AddReflection,
    ChangeResult,
    ChangeStatus,
    RepairBuffer,
    RestoreReflection,
)
from edenmem.models.ids import utc_now
from edenmem.models.scope import Scope
from edenmem.store.mongo.apply.ledger import LedgerPart, Run, result
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.filters import (
    build_consolidated_filters,
    build_consolidated_key,
    id_parts,
    object_id,
    object_ids,
)
from edenmem.store.mongo.memory.history import plain

#: The field that a buffer is kept in.
BUFFER = "unabsorbed_ids"
#: The changes by which a reflection comes into one.
Addition = AddReflection | RestoreReflection


class BuffersPart(LedgerPart):
    """Fills buffers, and puts them right."""

    def _fill_buffers(self, changes: Sequence[Addition]) -> None:
        """Put reflections at the end of their scopes' buffers, in order, one write a scope; those
        that are restored then go to their places."""
        waiting: dict[Scope, list[Addition]] = {}
        for change in changes:
            if not change.reflection.absorbed:
                waiting.setdefault(change.reflection.home, []).append(change)
        for document in self._find_all(self._consolidated, build_consolidated_filters(waiting)):
            self._mend_buffer(document)
        operations = [
            _buffer_update(scope, members, utc_now()) for scope, members in waiting.items()
        ]
        while operations:
            # Two first reflections of a scope at once: the loser finds the document there.
            _, failed = self._consolidated.bulk(operations)
            operations = [operations[place] for place in sorted(failed)]
        restored = (change for change in changes if isinstance(change, RestoreReflection))
        for scope in dict.fromkeys(change.reflection.home for change in restored):
            self._sort_buffer(scope)

    def _sort_buffer(self, scope: Scope) -> None:
        """Put a buffer in order of time. One that changes meanwhile stays as it is: the order is
        for other readers, ours sort."""
        document = self._consolidated.find_one(build_consolidated_key(scope))
        if document is not None:
            key = {"_id": document["_id"], BUFFER: document[BUFFER]}
            ordered = self._in_time_order(document[BUFFER])
            self._consolidated.update_one(key, {"$set": {BUFFER: ordered}})

    def _in_time_order(self, stored: Sequence[Any]) -> list[Any]:
        """The ids as they are stored, each once, by the time of their reflections; first what
        there are none of."""
        ids = {str(value): value for value in stored}
        filters = [{"_id": {"$in": part}} for part in id_parts(ids)]
        found = map(codec.reflection_from, self._find_all(self._reflections, filters))
        ordered = sorted(found, key=lambda reflection: (reflection.formed_at, reflection.id))
        places = {reflection.id: place for place, reflection in enumerate(ordered)}
        return [ids[each] for each in sorted(ids, key=lambda each: places.get(each, -1))]

    def _buffer(self, scope: Scope) -> Document | None:
        """The scope's consolidated document, with its flags and its buffer in order."""
        document = self._consolidated.find_one(build_consolidated_key(scope))
        if document is not None:
            self._mend_buffer(document)
        return document

    def _mend_buffer(self, document: Document) -> None:
        self._finish_absorbing(document)
        if not isinstance(document.get(BUFFER), list):
            self._consolidated.update_one(
                {"_id": document["_id"], BUFFER: document.get(BUFFER)}, {"$set": {BUFFER: []}}
            )
            document[BUFFER] = []

    def _repair_buffer(self, run: Run, change: RepairBuffer) -> ChangeResult:
        scope = change.scope
        document = self._buffer(scope)
        stored = document[BUFFER] if document is not None else []
        waiting = [reflection.id for reflection in self.reflections((scope,), absorbed=False)]
        text_id = str(document["_id"]) if document is not None else ""
        if len(stored) == len(waiting) and set(map(str, stored)) == set(waiting):
            if change.id in run.resumed:
                return run.already(change, text_id, scope)
            return result(change, ChangeStatus.ALREADY, text_id, "it is in order")
        if document is None:
            document = self._new_buffer(scope)
        before = codec.consolidation_from(document)
        # Ids as the buffer has them: an old document may hold them as text.
        known = {str(value): value for value in stored}
        ordered = self._in_time_order([known.get(each, object_id(each)) for each in waiting])
        after = msgspec.structs.replace(before, unabsorbed_ids=codec.text_ids(ordered))
        entry = run.entry(
            change,
            target_type="consolidation",
            target_id=before.id,
            agent_id=scope.agent_id,
            scope=scope,
            before=plain(before),
            after=plain(after),
        )
        if not self._begin(run, entry):
            return run.answer(change)
        # What waits was read after the buffer, so that if the buffer is as it was, so is that.
        key = {"_id": document["_id"], BUFFER: document[BUFFER]}
        fields = {BUFFER: ordered, "updatedAt": utc_now()}
        if self._consolidated.update_one(key, {"$set": fields}):
            return run.applied(change, before.id, scope)
        run.resumed.add(change.id)
        return self._repair_buffer(run, change)

    def _new_buffer(self, scope: Scope) -> Document:
        """The scope's document, made if need be, without a text."""
        now = utc_now()
        made = {"consolidated_content": "", "word_limit": 0, "createdAt": now, BUFFER: []}
        update = {"$setOnInsert": made, "$set": {"updatedAt": now}}
        operation = UpdateOne(build_consolidated_key(scope), update, upsert=True)
        while self._consolidated.bulk([operation])[1]:  # two at once: the other's is there now
            continue
        found = self._buffer(scope)
        assert found is not None
        return found


def _buffer_update(scope: Scope, changes: Sequence[Addition], now: datetime) -> UpdateOne:
    ids = object_ids(change.reflection.id for change in changes)
    return UpdateOne(
        build_consolidated_key(scope),
        {
            "$addToSet": {BUFFER: {"$each": ids}},
            "$setOnInsert": {
                "consolidated_content": "",
                "word_limit": changes[0].word_limit,
                "createdAt": now,
            },
            "$set": {"updatedAt": now},
        },
        upsert=True,
    )
