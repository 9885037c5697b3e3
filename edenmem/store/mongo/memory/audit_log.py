"""Read the audit log, and keep notes of what left the engine.

An index serves each filter of the log. Notes are replies, and the lists that they share; their IDs
are text. A list is written before its replies. What a forgetting erases meanwhile is looked for
after the write: either it sees what was written, or this sees the forgetting.
"""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice

import msgspec
from pymongo import UpdateOne
from pymongo.errors import DuplicateKeyError

from edenmem.errors import DocumentDamaged
from edenmem.memory.state import VOID
from edenmem.models.forgetting import Traces
from edenmem.models.ids import utc_now
from edenmem.models.records import AuditEntry, Seal, StoredEntry
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.told import Note, Reply, Shown, forgotten_in, keys_of, pack, unpack, without
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import BATCH, Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    EPOCH,
    EVERYTHING,
    IN_LIMIT,
    Filter,
    at_or_after,
    object_id,
)
from edenmem.store.mongo.memory.history import audit_from, stored_entry_from
from edenmem.store.protocol.memory import AuditKey, command_prefixes
from edenmem.store.protocol.store import batched

_NEWEST = (("at", -1), ("_id", -1))
_INDEXED = {"target_id", "agent_id", "scope_key", "actor.run_id", "actor.name"}
_FIELDS: dict[AuditKey, str] = {"entry": "_id", "target": "target_id", "run": "actor.run_id"}
_PREFIX = re.compile(r"[0-9a-f]{4,24}\Z")


class MongoAuditLog:
    """Implements `edenmem.store.protocol.memory.AuditLog`."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    def audit(
        self,
        *,
        agent_id: str | None = None,
        target_id: str | None = None,
        target_ids: Sequence[str] = (),
        scope: Scope | None = None,
        run_id: str | None = None,
        actor: str | None = None,
        command: str | None = None,
        actions: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        unreadable: set[str] | None = None,
    ) -> Iterator[AuditEntry]:
        targets = target_ids if target_id is None else [target_id]
        words = "|".join(re.escape(text.rstrip()) for text in command_prefixes(command or ""))
        wanted = {
            "target_id": {"$in": list(map(object_id, targets))} if targets else None,
            "agent_id": None if agent_id is None else object_id(agent_id),
            "scope_key": None if scope is None else scope.key,
            "actor.run_id": run_id,
            "actor.name": actor,
            "actor.command": None if command is None else {"$regex": f"^(?:{words})(?: |$)"},
            "action": {"$in": list(actions)} if actions else None,
        }
        filter: Filter = {name: value for name, value in wanted.items() if value is not None}
        if since is not None or until is not None or not filter.keys() & _INDEXED:
            # Without an indexed filter, a bound on the time uses its index.
            first = at_or_after(since or EPOCH)
            filter["at"] = {**first, **({"$lt": until} if until is not None else {})}
        found = self._db.audit.find(filter, sort=_NEWEST)
        return islice(_list_shown(found, unreadable), limit)

    def audit_entry(self, entry_id: str) -> AuditEntry | None:
        return self.audit_entries([entry_id]).get(entry_id)

    def audit_entries(
        self, entry_ids: Sequence[str], *, unreadable: set[str] | None = None
    ) -> dict[str, AuditEntry]:
        found = self._db.find_by_ids(self._db.audit, entry_ids)
        return {entry.id: entry for entry in _list_shown(found, unreadable)}

    def stored_entries(self, entry_ids: Sequence[str]) -> dict[str, StoredEntry]:
        found = dict[str, StoredEntry]()
        for document in self._db.find_by_ids(self._db.audit, entry_ids):
            with suppress(*codec.UNREADABLE):
                entry = stored_entry_from(document)
                if entry.status != VOID:
                    found[entry.id] = entry
        return found

    def seals(self) -> Iterator[Seal]:
        for document in self._db.seals.find(EVERYTHING, sort=(("_id", 1),)):
            try:
                yield msgspec.convert(document, Seal)
            except msgspec.ValidationError as error:
                what = f"seal {document['_id']} cannot be read"
                raise DocumentDamaged(f"{what}: {error}") from error

    def add_seal(self, seal: Seal) -> bool:
        fields = msgspec.to_builtins(seal, builtin_types=(datetime,))
        times = {"createdAt": seal.at, "updatedAt": seal.at}
        try:
            self._db.seals.insert_one({"_id": seal.number, **fields, **times})
        except DuplicateKeyError:
            return False
        return True

    def find_audited(self, key: AuditKey, prefix: str, *, limit: int = 20) -> Sequence[str]:
        if not _PREFIX.match(prefix):
            return []
        low, high = prefix.ljust(24, "0"), prefix.ljust(24, "f")
        field, found = _FIELDS[key], list[str]()
        stored = str if key == "run" else object_id
        begins: Filter = {"$gte": stored(low)}
        # One query per ID, regardless of the number of its entries.
        while len(found) < limit:
            document = self._db.audit.find_one(
                {field: {**begins, "$lte": stored(high)}},
                {"target_id": 1, "actor.run_id": 1, "status": 1},
                sort=((field, 1),),
            )
            if document is None:
                break
            value = _value(document, key)
            begins = {"$gt": stored(value)}
            if key != "entry" or document.get("status") != VOID:
                found.append(value)
        return found


def _list_shown(documents: Iterable[Document], unreadable: set[str] | None) -> Iterator[AuditEntry]:
    """Read the entries that are not void; see `AuditLog.audit` for ``unreadable``."""
    for document in documents:
        try:
            entry = audit_from(document)
        except codec.UNREADABLE as error:
            id = str(document["_id"])
            if unreadable is None:
                raise DocumentDamaged(f"audit entry {id} cannot be read: {error}") from error
            unreadable.add(id)
            continue
        if entry.status != VOID:
            yield entry


def _value(document: Document, key: AuditKey) -> str:
    if key == "run":
        return str(document["actor"]["run_id"])
    return str(document["_id" if key == "entry" else "target_id"])


class MongoTold:
    """Implements `edenmem.store.protocol.memory.Told`."""

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
    """Store notes; see `edenmem.store.protocol.memory.Told.add`."""
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
