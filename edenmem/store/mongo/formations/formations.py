"""Store formations: claims on messages, their outcomes, and the session's progress."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice

import msgspec
from bson import ObjectId
from bson.binary import Binary
from pymongo.errors import DuplicateKeyError

from edenmem.errors import StoreError
from edenmem.memory.formations import DECIDING
from edenmem.models.changes import ChangeResult, ChangeSet
from edenmem.models.formation import (
    UNFINISHED,
    Decision,
    Formation,
    FormationStatus,
    Trigger,
    calls_from,
)
from edenmem.models.ids import as_utc
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import Filter, object_id, object_ids
from edenmem.store.mongo.core.readiness import CLAIM_KEYS, Readiness
from edenmem.store.mongo.formations.progress import MongoProgress
from edenmem.store.mongo.host.host import reset_cold_note
from edenmem.store.mongo.host.host_codec import sub_document
from edenmem.store.mongo.search.slots import Slots
from edenmem.store.protocol.memory import Changes

#: Recorded changes are one binary value in a document, which MongoDB limits to 16 MiB. That fits
#: 2,000 facts with vectors of 1,536 dimensions.
RECORD_LIMIT = 15 * 1024 * 1024
_LATEST = (("created_at", -1), ("_id", -1))

#: For one session and agent: ordered by number, since the clocks of workers may disagree.
_LATEST_OF_PAIR = (("session_id", -1), ("agent_id", -1), ("seq", -1))


class MongoFormations(MongoProgress):
    """Implements `edenmem.store.protocol.formations.Formations`: each step is one compare-and-set.

    Three unique indexes guarantee the rules of `Formations.claim`: on ``seq``, on each message, and
    on ``unfinished``, a field that only claimed, recorded and released formations have.
    """

    def __init__(
        self, db: Connection, readiness: Readiness, slots: Slots, changes: Changes
    ) -> None:
        super().__init__(db)
        self._readiness = readiness
        self._slots = slots
        self._changes = changes

    def platform_memory_at(self, *, since: datetime) -> datetime | None:
        # IDs contain the time of creation. Only edenmem writes the field "private".
        theirs: Filter = {
            "_id": {"$gte": ObjectId.from_datetime(since)},
            "private": {"$exists": False},
            "formation_id": None,
        }
        found = [
            as_utc(newest["_id"].generation_time)
            for collection in (self._db.facts, self._db.reflections)
            if (newest := collection.find_one(theirs, {"_id": 1}, sort=(("_id", -1),)))
        ]
        return max(found, default=None)

    # -- states ------------------------------------------------------------------------------

    def claim(self, formation: Formation) -> bool:
        self._readiness.require()
        self._readiness.require_keys(CLAIM_KEYS)
        is_open = formation.status is FormationStatus.CLAIMED
        if is_open:
            self._slots.storage()  # raises before a model is paid
        try:
            self._db.formations.insert_one(formation_document(formation))
        except DuplicateKeyError:
            return False
        if is_open:
            self.pass_over(formation.session_id)
        return True

    def move(self, before: Formation, after: Formation) -> bool:
        """See `Formations.move`.

        Raises:
            StoreError: the changes exceed one document.
        """
        old, new = formation_document(before), formation_document(after)
        always: Document = {"updated_at": after.updated_at}  # a renewal may change nothing
        changed = {name: value for name, value in new.items() if (name, value) not in old.items()}
        update: Document = {"$set": always | changed}
        if gone := {name: "" for name in old if name not in new}:
            update["$unset"] = gone
        same = {name: old.get(name) for name in ("_id", *DECIDING)}
        try:
            found = self._db.formations.update_one(same, update)
        except DuplicateKeyError:  # another one of the session and agent is unfinished
            return False
        if found and after.status is FormationStatus.SUPERSEDED:
            reset_cold_note(self._db, after.session_id, after.last_message_at)
        return found > 0

    def apply_formation(
        self, before: Formation, after: Formation, changes: ChangeSet
    ) -> list[ChangeResult] | None:
        results = self._changes.apply(changes)
        return results if self.move(before, after) else None

    # -- queries -----------------------------------------------------------------------------

    def formation(self, formation_id: str) -> Formation | None:
        found = self._db.formations.find_one({"_id": object_id(formation_id)})
        return None if found is None else formation_from(found)

    def list_formations(
        self,
        *,
        session_id: str | None = None,
        agent_id: str | None = None,
        statuses: Sequence[FormationStatus] = (),
        limit: int | None = None,
    ) -> Iterator[Formation]:
        filter: Filter = {}
        if session_id is not None:
            filter["session_id"] = object_id(session_id)
        if agent_id is not None:
            filter["agent_id"] = object_id(agent_id)
        if statuses:
            filter["status"] = {"$in": [status.value for status in statuses]}
        one_pair = session_id is not None and agent_id is not None
        order = _LATEST_OF_PAIR if one_pair else _LATEST
        found = self._db.formations.find(filter, {"changes": 0}, sort=order)
        return islice(map(formation_from, found), limit)


def formation_document(formation: Formation) -> Document:
    """Return a new document for a formation.

    Raises:
        StoreError: the changes exceed one document.
    """
    document: Document = {
        "_id": object_id(formation.id),
        "session_id": object_id(formation.session_id),
        "agent_id": object_id(formation.agent_id),
        "seq": formation.seq,
        "status": formation.status.value,
        "trigger": formation.trigger.value,
        # Never empty, so that the unique index of messages applies to no two empty lists.
        "message_ids": object_ids(formation.message_ids) or [object_id(formation.id)],
        "last_message_at": formation.last_message_at,
        "created_at": formation.created_at,
        "updated_at": formation.updated_at,
        "worker": formation.worker,
        "lease_until": formation.lease_until,
        "not_before": formation.not_before,
        "attempts": formation.attempts,
        "error": formation.error,
        "decisions": msgspec.to_builtins(list(formation.decisions)),
        "usage": msgspec.to_builtins(list(formation.usage)),
        "counts": dict(formation.counts),
        "createdAt": formation.created_at,
        "updatedAt": formation.updated_at,
    }
    if formation.status.value in UNFINISHED:
        document["unfinished"] = True
    if formation.superseded_message_ids:
        document["superseded_message_ids"] = object_ids(formation.superseded_message_ids)
    if formation.next_step:
        document["next_step"] = formation.next_step
    if formation.changes is not None:
        document["changes"] = _pack(formation)
    return document


def _pack(formation: Formation) -> Binary:
    packed = msgspec.msgpack.encode(formation.changes)
    if len(packed) > RECORD_LIMIT:
        raise StoreError(
            f"outcome of formation {formation.id} has {len(packed):,} bytes, over the limit of "
            f"{RECORD_LIMIT:,} for one document",
            hint="lower formation.max_messages, so that one range brings less",
        )
    return Binary(packed)


def formation_from(document: Document) -> Formation:
    """Return the formation of a document."""
    changes = document.get("changes")
    return Formation(
        id=str(document["_id"]),
        session_id=str(document["session_id"]),
        agent_id=str(document["agent_id"]),
        seq=codec.number(document.get("seq")),
        status=FormationStatus(document["status"]),
        trigger=Trigger(document["trigger"]),
        message_ids=tuple(
            id for id in codec.text_ids(document.get("message_ids")) if id != str(document["_id"])
        ),
        last_message_at=codec.require_moment(document, "last_message_at"),
        created_at=codec.require_moment(document, "created_at"),
        updated_at=codec.require_moment(document, "updated_at"),
        worker=codec.optional_text(document.get("worker")),
        lease_until=codec.moment(document.get("lease_until")),
        not_before=codec.moment(document.get("not_before")),
        attempts=codec.number(document.get("attempts")),
        error=codec.optional_text(document.get("error")),
        decisions=msgspec.convert(tuple(document.get("decisions") or ()), tuple[Decision, ...]),
        usage=calls_from(document.get("usage")),
        counts=sub_document(document.get("counts")),
        changes=None if changes is None else msgspec.msgpack.decode(changes, type=ChangeSet),
        superseded_message_ids=codec.text_ids(document.get("superseded_message_ids")),
        next_step=codec.optional_text(document.get("next_step")) or "",
    )
