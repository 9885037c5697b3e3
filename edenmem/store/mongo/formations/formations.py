"""Store formations: claims on messages, their outcomes, and the session's progress."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec
from bson import ObjectId
from bson.binary import Binary
from pymongo.errors import DuplicateKeyError

from edenmem.errors import ConflictError, StoreError
from edenmem.models.changes import ChangeResult, ChangeSet
from edenmem.models.formation import (
    UNFINISHED,
    CallUsage,
    Decision,
    Formation,
    FormationStatus,
    Reach,
    Reading,
    Trigger,
    calls_from,
)
from edenmem.models.ids import as_utc
from edenmem.models.integrity import Finding
from edenmem.store.common.progress import proof_record
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.collections import FORMATIONS, MEMORY_INDEXES
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import Filter, id_parts, object_id, object_ids
from edenmem.store.mongo.core.readiness import Readiness
from edenmem.store.mongo.core.unique_keys import CLAIM_KEYS, has_keys
from edenmem.store.mongo.formations.progress import (
    advance_cursor,
    find_backlog,
    find_blocked,
    find_proof,
    find_readings,
    pass_over,
)
from edenmem.store.mongo.host.host import reset_cold_note
from edenmem.store.mongo.host.host_codec import sub_document
from edenmem.store.mongo.search.slots import Slots
from edenmem.store.protocol.formations import Backlog
from edenmem.store.protocol.memory import Changes

#: Recorded changes are one binary value in a document, which MongoDB limits to 16 MiB. That fits
#: 2,000 facts with vectors of 1,536 dimensions.
RECORD_LIMIT = 15 * 1024 * 1024
_LATEST = (("created_at", -1), ("_id", -1))

#: For one session and agent: ordered by number, since the clocks of workers may disagree.
_LATEST_OF_PAIR = (("session_id", -1), ("agent_id", -1), ("seq", -1))
_FINISHED = frozenset({FormationStatus.APPLIED, FormationStatus.FAILED})
_MESSAGES_KEY = next(i for i in MEMORY_INDEXES if i.name == "edenmem_formation_messages")


class MongoFormations:
    """Implements `edenmem.store.protocol.formations.Formations`: each step is one compare-and-set.

    Three unique indexes guarantee the rules of `Formations.claim`: on ``seq``, on each message, and
    on ``unfinished``, a field that only claimed, recorded and released formations have.
    """

    def __init__(
        self, db: Connection, readiness: Readiness, slots: Slots, changes: Changes
    ) -> None:
        self._db = db
        self._readiness = readiness
        self._slots = slots
        self._changes = changes

    def backlog(
        self, session_id: str, agent_id: str, *, limit: int, reach: Reach = Reach.WAITING
    ) -> Backlog:
        """See `Formations.backlog`."""
        return find_backlog(self._db, session_id, agent_id, limit=limit, reach=reach)

    def proof(self, session_id: str, agent_id: str) -> set[str]:
        """See `Formations.proof`."""
        return find_proof(self._db, session_id, agent_id)

    def note_proof(
        self, session_id: str, agent_id: str, message_ids: Sequence[str], *, now: datetime
    ) -> None:
        """See `Formations.note_proof`."""
        pair = _pair(session_id, agent_id)
        seq = 0
        for document in self._db.formations.find(pair, {"trigger": 1, "seq": 1}):
            seq = max(seq, codec.number(document.get("seq")))
            if document.get("trigger") == Trigger.PLATFORM:
                ids = {"$each": object_ids(message_ids)}
                more = {"$addToSet": {"superseded_message_ids": ids}}
                self._db.formations.update_one({"_id": document["_id"]}, more)
                return
        record = proof_record(session_id, agent_id, seq + 1, message_ids, now)
        with suppress(DuplicateKeyError):  # another worker was first; the next look notes the rest
            self._db.formations.insert_one(formation_document(record))

    def drop_proof(self, session_id: str, agent_id: str, message_ids: Sequence[str]) -> None:
        """See `Formations.drop_proof`."""
        gone = {"$pullAll": {"superseded_message_ids": object_ids(message_ids)}}
        for document in self._db.formations.find(_pair(session_id, agent_id), {"trigger": 1}):
            if document.get("trigger") == Trigger.PLATFORM:
                self._db.formations.update_one({"_id": document["_id"]}, gone)
        self._db.cold.update_one({"_id": object_id(session_id)}, {"$set": {"settled": None}})

    def platform_memory_at(self, *, since: datetime) -> datetime | None:
        """See `Formations.platform_memory_at`."""
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

    def find_readings(
        self, *, agent_id: str | None = None, latest: int | None = None
    ) -> Iterator[Reading]:
        """See `Formations.find_readings`."""
        return find_readings(self._db, agent_id=agent_id, latest=latest)

    def advance_cursor(self, session_id: str) -> bool:
        """See `Formations.advance_cursor`."""
        return advance_cursor(self._db, session_id)

    # -- states ------------------------------------------------------------------------------

    def claim(self, formation: Formation) -> bool:
        """See `Formations.claim`."""
        self._readiness.require()
        self._readiness.require_keys(CLAIM_KEYS)
        self._slots.storage()  # raises before a model is paid
        pair = _pair(formation.session_id, formation.agent_id)
        for part in id_parts(formation.message_ids):
            taken = {**pair, "message_ids": {"$in": part}}
            if self._db.formations.find_one(taken, {"_id": 1}) is not None:
                return False
        try:
            self._db.formations.insert_one(formation_document(formation))
        except DuplicateKeyError:
            return False
        pass_over(self._db, formation.session_id)
        return True

    def reclaim(
        self,
        formation_id: str,
        *,
        worker: str,
        now: datetime,
        lease_until: datetime,
        forced: bool = False,
    ) -> Formation | None:
        """See `Formations.reclaim`."""
        held = {"worker": worker, "lease_until": lease_until, "updated_at": now, "updatedAt": now}
        free: list[Filter] = [{"worker": worker}, {"lease_until": {"$lte": now}}]
        due: list[Filter] = (
            [{}] if forced else [{"not_before": None}, {"not_before": {"$lte": now}}]
        )
        takeovers: list[tuple[Filter, Filter]] = [
            *(({"status": "claimed", **f}, {}) for f in free),
            *(({"status": "recorded", **f}, {}) for f in free),
            *(({"status": "released", **f}, {"status": "claimed"}) for f in due),
        ]
        for condition, fields in takeovers:
            found = self._move(formation_id, condition, {**held, **fields}, unset=("not_before",))
            if found is not None:
                advance_cursor(self._db, str(found["session_id"]))
                return formation_from(found)
        return None

    def renew(self, formation_id: str, *, worker: str, lease_until: datetime) -> bool:
        """See `Formations.renew`."""
        held = {"worker": worker, "unfinished": True, "status": {"$in": ["claimed", "recorded"]}}
        return self._move(formation_id, held, {"lease_until": lease_until}) is not None

    def narrow(
        self,
        formation_id: str,
        *,
        worker: str,
        message_ids: Sequence[str],
        last_message_at: datetime,
        now: datetime,
    ) -> bool:
        """See `Formations.narrow`."""
        fields = {
            "message_ids": object_ids(message_ids),
            "last_message_at": last_message_at,
            "updated_at": now,
            "updatedAt": now,
        }
        held = {"status": "claimed", "worker": worker}
        return self._move(formation_id, held, fields) is not None

    def record(
        self,
        formation_id: str,
        *,
        worker: str,
        changes: ChangeSet,
        decisions: Sequence[Decision],
        usage: Sequence[CallUsage],
        counts: Mapping[str, Any],
        now: datetime,
        next_step: str = "",
    ) -> bool:
        """See `Formations.record`.

        Raises:
            StoreError: the changes exceed one document.
        """
        packed = msgspec.msgpack.encode(changes)
        if len(packed) > RECORD_LIMIT:
            raise StoreError(
                f"outcome of formation {formation_id} has {len(packed):,} bytes, over the limit of "
                f"{RECORD_LIMIT:,} for one document",
                hint="lower formation.max_messages, so that one range brings less",
            )
        fields = {
            "status": "recorded",
            "changes": Binary(packed),
            "counts": dict(counts),
            "next_step": next_step or None,
            "updated_at": now,
            "updatedAt": now,
            **({"attempts": 0, "error": None} if next_step else {}),
        }
        return self._end(formation_id, worker, fields, usage, decisions=decisions) is not None

    def release(
        self,
        formation_id: str,
        *,
        worker: str,
        now: datetime,
        not_before: datetime | None = None,
        error: str | None = None,
        count: bool = True,
        usage: Sequence[CallUsage] = (),
    ) -> bool:
        """See `Formations.release`."""
        fields = {
            "status": "released",
            "worker": None,
            "lease_until": None,
            "not_before": not_before,
            "error": error,
            "updated_at": now,
            "updatedAt": now,
        }
        return self._end(formation_id, worker, fields, usage, attempts=int(count)) is not None

    def fail(
        self,
        formation_id: str,
        *,
        worker: str,
        now: datetime,
        error: str,
        usage: Sequence[CallUsage] = (),
    ) -> bool:
        """See `Formations.fail`."""
        fields = {
            "status": "failed",
            "worker": None,
            "lease_until": None,
            "not_before": None,
            "error": error,
            "updated_at": now,
            "updatedAt": now,
        }
        ended = self._end(formation_id, worker, fields, usage, attempts=1, unset=("unfinished",))
        return ended is not None

    def retry(self, formation_id: str, *, now: datetime) -> bool:
        """See `Formations.retry`."""
        fields = {
            "status": "released",
            "unfinished": True,
            "attempts": 0,
            "updated_at": now,
            "updatedAt": now,
        }
        try:
            return self._move(formation_id, {"status": "failed"}, fields) is not None
        except DuplicateKeyError:  # another one is unfinished
            return False

    def _end(
        self,
        formation_id: str,
        worker: str,
        fields: Document,
        usage: Sequence[CallUsage],
        *,
        attempts: int = 0,
        decisions: Sequence[Decision] = (),
        unset: Sequence[str] = (),
    ) -> Document | None:
        """End the worker's claim with these fields; append its calls and decisions."""
        added = {"usage": usage, "decisions": decisions}
        update: Document = {
            "$set": fields,
            "$push": {
                name: {"$each": msgspec.to_builtins(list(values))} for name, values in added.items()
            },
        }
        if attempts:
            update["$inc"] = {"attempts": attempts}
        if unset:
            update["$unset"] = dict.fromkeys(unset, "")
        key = {"_id": object_id(formation_id), "status": "claimed", "worker": worker}
        return self._db.formations.find_and_update(key, update, projection={"_id": 1})

    def _move(
        self, formation_id: str, condition: Filter, fields: Document, *, unset: Sequence[str] = ()
    ) -> Document | None:
        update: Document = {"$set": fields}
        if unset:
            update["$unset"] = dict.fromkeys(unset, "")
        return self._db.formations.find_and_update(
            {"_id": object_id(formation_id), **condition}, update
        )

    # -- the outcome -------------------------------------------------------------------------

    def apply_formation(
        self,
        formation_id: str,
        *,
        now: datetime,
        worker: str | None = None,
        skip: Set[str] = frozenset(),
    ) -> list[ChangeResult]:
        """See `Formations.apply_formation`."""
        formation = self.formation(formation_id)
        if formation is None or formation.status is not FormationStatus.RECORDED:
            return []
        try:
            changes = formation.changes and formation.changes.without(skip)
            results = self._changes.apply(changes) if changes is not None else []
        except ConflictError as error:
            reason = {"error": error.message, "updated_at": now, "updatedAt": now}
            self._move(formation_id, {"status": "recorded"}, reason)
            raise
        # Another worker may have applied the same step and recorded the next one.
        same = {"status": "recorded", "next_step": formation.next_step or None}
        if formation.next_step:
            self._go_on(formation, same, now, worker)
            return results
        self._move(
            formation_id,
            same,
            {"status": "applied", "updated_at": now, "updatedAt": now},
            unset=("unfinished", "changes", "worker", "lease_until", "error"),
        )
        return results

    def _go_on(self, formation: Formation, same: Filter, now: datetime, worker: str | None) -> None:
        """Continue a formation with its next step: keep the worker's claim, or release it."""
        fields: Document = {"status": "claimed", "updated_at": now, "updatedAt": now}
        if worker is None or worker != formation.worker:
            fields |= {"status": "released", "worker": None, "lease_until": None}
        held = {**same, "worker": formation.worker}
        self._move(formation.id, held, fields, unset=("changes", "not_before", "error"))

    def supersede(self, formation_id: str, *, keep: Sequence[str] = (), now: datetime) -> bool:
        """See `Formations.supersede`."""
        key = {"_id": object_id(formation_id)}
        found = self._db.formations.find_one(key, {"changes": 0})
        if found is None or found.get("status") not in _FINISHED:
            return False
        ids = found.get("message_ids") or []
        held = {*keep, *find_blocked(self._db, map(str, ids))}
        kept = [each for each in ids if str(each) in held]
        if len(kept) == len(ids):
            return False
        fields = {
            "status": "superseded",
            # Its own ID is a placeholder: a unique index allows only one empty list.
            "message_ids": kept or [key["_id"]],
            "superseded_message_ids": ids,
            "next_step": None,
            "updated_at": now,
            "updatedAt": now,
        }
        session_id = str(found["session_id"])
        same = {**key, "status": found["status"], "message_ids": ids}
        superseded = self._db.formations.update_one(same, {"$set": fields}) > 0
        reset_cold_note(self._db, session_id, codec.require_moment(found, "last_message_at"))
        return superseded

    # -- queries -----------------------------------------------------------------------------

    def formation(self, formation_id: str) -> Formation | None:
        """See `Formations.formation`."""
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
        """See `Formations.list_formations`."""
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

    def find_shared_messages(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        """See `Formations.find_shared_messages`."""
        if has_keys(self._db.collection(FORMATIONS).indexes(), _MESSAGES_KEY):
            return
        match = {} if agent_id is None else {"agent_id": object_id(agent_id)}
        owner = {"agent": "$agent_id", "session": "$session_id", "message": "$message_ids"}
        pipeline: list[dict[str, Any]] = [
            {"$match": match},
            {"$project": {"session_id": 1, "agent_id": 1, "message_ids": 1}},
            {"$unwind": "$message_ids"},
            {"$group": {"_id": owner, "in": {"$push": "$_id"}, "count": {"$sum": 1}}},
            {"$match": {"count": {"$gt": 1}}},
        ]
        for group in self._db.formations.aggregate(pipeline):
            formations = tuple(sorted(str(key) for key in group["in"]))
            yield Finding(
                target_type="message",
                target_id=str(group["_id"]["message"]),
                detail=f"is in the formations {', '.join(formations)}",
                agent_id=str(group["_id"]["agent"]),
                related=formations,
            )


def _pair(session_id: str, agent_id: str) -> Filter:
    return {"session_id": object_id(session_id), "agent_id": object_id(agent_id)}


def formation_document(formation: Formation) -> Document:
    """Return a new document for a formation."""
    document: Document = {
        "_id": object_id(formation.id),
        **_pair(formation.session_id, formation.agent_id),
        "seq": formation.seq,
        "status": formation.status.value,
        "trigger": formation.trigger.value,
        "message_ids": object_ids(formation.message_ids),
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
        document["message_ids"] = document["message_ids"] or [document["_id"]]
    if formation.next_step:
        document["next_step"] = formation.next_step
    if formation.changes is not None:
        document["changes"] = Binary(msgspec.msgpack.encode(formation.changes))
    return document


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
