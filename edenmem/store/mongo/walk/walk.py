"""Read everything stored, for backups, checks and surveys, and load backups.

Every document is yielded, decoded if possible, kind by kind. Without an indexed filter, documents
are read along their IDs. Otherwise the IDs are read first (some hundred bytes each), then the
documents, in order. Both use pages limited in number and bytes, with no cursor open between two
pages.
"""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from heapq import merge
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from bson import DBRef, ObjectId
from pymongo import DeleteOne, InsertOne

from edenmem.errors import ScopeError
from edenmem.models import backup
from edenmem.models.backup import (
    LoadResult,
    Record,
    RecordKind,
    Selection,
    StoredAgent,
    StoredMessage,
    StoredUser,
    StoredVersion,
)
from edenmem.models.host import Message
from edenmem.models.integrity import PresenceKind
from edenmem.models.memory import Policy
from edenmem.models.records import AuditEntry
from edenmem.models.scope import Scope
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.codec import from_json, to_json
from edenmem.store.mongo.core.collection import BATCH, Collection, Document, Read
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    EPOCH,
    IN_LIMIT,
    NOT_DELETED,
    Filter,
    after,
    id_parts,
    object_id,
    object_ids,
)
from edenmem.store.mongo.core.readiness import Readiness
from edenmem.store.mongo.core.transactions import Transaction, Transactions
from edenmem.store.mongo.memory.history import (
    Place,
    audit_document,
    fact_version,
    place_of,
    stored_version,
    text_version,
)
from edenmem.store.mongo.search.slots import Slots
from edenmem.store.mongo.walk.loader import RecordLoader
from edenmem.store.mongo.walk.sources import SOURCES, is_anchored, narrow
from edenmem.store.protocol.host import Host
from edenmem.store.protocol.memory import Memory
from edenmem.store.protocol.store import batched
from edenmem.store.protocol.walk import ALL

_ONLY_ID = {"_id": 1}

#: The collections whose unreadable documents can be set aside.
_COLLECTIONS = {
    "fact": names.FACTS,
    "reflection": names.REFLECTIONS,
    "consolidation": names.CONSOLIDATED,
}


class MongoWalk:
    """Implements `edenmem.store.protocol.walk.Walk`."""

    def __init__(
        self,
        db: Connection,
        readiness: Readiness,
        transactions: Transactions,
        slots: Slots,
        host: Host,
        memory: Memory,
    ) -> None:
        self._db = db
        self._transactions = transactions
        self._loader = RecordLoader(db, readiness, slots, host, memory)

    def documents(
        self,
        kinds: Sequence[RecordKind],
        selection: Selection = ALL,
        *,
        with_vectors: bool = False,
        snapshot: bool = False,
        unwritten: bool = False,
    ) -> Iterator[backup.Document]:
        db = self._db
        for kind in RecordKind:
            if kind not in kinds:
                continue
            match kind:
                case RecordKind.HISTORY:
                    found = _walk_history(db, selection, as_versions=unwritten)
                case RecordKind.MESSAGE:
                    found = _walk_messages(db, selection)
                case RecordKind.POLICY:
                    found = iter(sorted(_walk(db, kind, selection), key=_policy_order))
                case _:
                    is_short = kind is RecordKind.FACT and not with_vectors
                    found = _walk(db, kind, selection, codec.NO_VECTOR if is_short else None)
            yield from (each for each in found if _is_since(each.record, selection.since))

    def present(self, kind: PresenceKind, ids: Sequence[str]) -> set[str]:
        match kind:
            case "agent":
                return self._with_ids(self._db.users, ids, {"type": "agent", **NOT_DELETED})
            case "person":
                return self._persons(ids)
            case "session":
                return self._with_ids(self._db.sessions, ids, NOT_DELETED)
            case "group":
                groups = list(dict.fromkeys(ids))
                living = {"group_id": {"$in": groups}, **NOT_DELETED}
                return set(self._db.sessions.distinct("group_id", living))
            case "message":
                return self._with_ids(self._db.messages, ids)
            case "reflection":
                return self._with_ids(self._db.reflections, ids)
            case "consolidation":
                return self._with_ids(self._db.consolidated, ids)

    def _with_ids(
        self, collection: Collection, ids: Sequence[str], condition: Filter | None = None
    ) -> set[str]:
        found = self._db.find_by_ids(collection, ids, _ONLY_ID, **(condition or {}))
        return {str(document["_id"]) for document in found}

    def _persons(self, ids: Sequence[str]) -> set[str]:
        person: Filter = {"type": "user", **NOT_DELETED}
        found = self._with_ids(self._db.users, ids, person)
        # Few people lack an account with their own ID; these are found through linked accounts.
        aliases = [
            {**person, "eden_user_id": {"$in": [*part, *map(str, part)]}}
            for part in id_parts(each for each in ids if each not in found)
        ]
        for account in self._db.find_all(self._db.users, aliases, {"eden_user_id": 1}):
            found.add(str(account["eden_user_id"]))
        return found

    def set_aside(self, entry: AuditEntry) -> bool:
        collection = _COLLECTIONS.get(entry.target_type)
        if collection is None:
            return False

        def move(transaction: Transaction) -> bool:
            key = {"_id": object_id(entry.target_id)}
            found = transaction.find(collection, key)
            kind = RecordKind(entry.target_type)
            if not found or not (read := _decode(kind, Read(found[0], None))) or not read.fault:
                return False
            kept = msgspec.structs.replace(
                entry,
                scope=_guess_scope(found[0]),
                before={"content": json.dumps(to_json(found[0]), ensure_ascii=False)},
            )
            transaction.write(collection, [DeleteOne(key)])
            transaction.write(names.AUDIT, [InsertOne(audit_document(kept))])
            return True

        return self._transactions.run(move)

    def put_back(self, entry: AuditEntry, undo: AuditEntry) -> bool:
        document = from_json(json.loads((entry.before or {})["content"]))
        collection = _COLLECTIONS[entry.target_type]

        def restore(transaction: Transaction) -> bool:
            if transaction.find(collection, {"_id": document["_id"]}, {"_id": 1}):
                return False
            transaction.write(collection, [InsertOne(document)])
            transaction.write(names.AUDIT, [InsertOne(audit_document(undo))])
            return True

        return self._transactions.run(restore)

    def load(
        self, kind: RecordKind, records: Sequence[Record], *, dry_run: bool = False
    ) -> list[LoadResult]:
        return self._loader.load(kind, records, dry_run=dry_run)


def _guess_scope(document: dict[str, Any]) -> Scope | None:
    """Return the scope of a user or session that the document names, whose erasure removes it."""
    agent_id = codec.text_id(document.get("agent_id"))
    user_id, session_id = (codec.text_id(document.get(f"{who}_id")) for who in ("user", "session"))
    if agent_id and user_id:
        return Scope.user(agent_id, user_id)
    return Scope.session(agent_id, session_id) if agent_id and session_id else None


_BY_TARGET = (("target_type", 1), ("target_id", 1), ("version", 1))
#: The fields that determine the order of versions.
_PLACES = {"target_id": 1, "version": 1, "life": 1, "action": 1}
#: History entries whose positions are read together.
_ROWS = 5000

#: Fields that must be times if they exist.
_TIMES = (
    "formed_at",
    "said_at",
    "recent_at",
    "updated_at",
    "absorbed_at",
    "held_at",
    "last_consolidated_at",
    "last_accessed_at",
    "createdAt",
    "at",
    "created_at",
    "lease_until",
)
_LISTS = (
    "source_message_ids",
    "propagated_from",
    "related_users",
    "unabsorbed_ids",
    "absorbed_ids",
    "message_ids",
)


def _walk(
    db: Connection, kind: RecordKind, selection: Selection, projection: Filter | None = None
) -> Iterator[backup.Document]:
    """Yield the documents of a kind, by ID."""
    for read in _read(db, kind, selection, projection):
        found = _decode(kind, read)
        if found is not None:
            yield found


def _read(
    db: Connection, kind: RecordKind, selection: Selection, projection: Filter | None = None
) -> Iterator[Read]:
    collection, filters = SOURCES[kind].collection(db), _filters(kind, selection)
    if is_anchored(kind, filters):
        return _read_in_order(collection, _find_ids(collection, filters), projection)
    (filter,) = filters
    return collection.walk_by_id(filter, projection)


def _filters(kind: RecordKind, selection: Selection) -> list[Filter]:
    """Return the filters of a selection, extended to agent IDs stored as text."""
    filters = narrow(kind, selection)
    if not selection.agent_ids:
        return filters
    agents = {"$in": [*object_ids(selection.agent_ids), *selection.agent_ids]}
    return [{**each, **({"agent_id": agents} if "agent_id" in each else {})} for each in filters]


def _find_ids(collection: Collection, filters: Iterable[Filter]) -> list[Any]:
    """Return the IDs of the matches of any filter, in the server's order."""
    found = {
        repr(each["_id"]): each["_id"]  # an ID may be an unhashable document
        for filter in filters
        for each in collection.find(filter, _ONLY_ID)
    }
    return sorted(found.values(), key=_order)


def _order(key: Any) -> tuple[bool, str]:
    """Return the sort key of an ID: text sorts before all others."""
    return isinstance(key, ObjectId), str(key)


def _read_in_order(
    collection: Collection, ids: Sequence[Any], projection: Filter | None = None
) -> Iterator[Read]:
    """Yield the existing documents with these IDs, in this order."""
    start, size = 0, BATCH
    while start < len(ids):
        part = ids[start : start + size]
        page = collection.read_page({"_id": {"$in": part}}, projection, limit=len(part))
        by_id = {repr(read.document["_id"]): read for read in page.documents}
        if page.is_cut:  # large documents
            size = max(1, len(by_id) // 2)
            continue
        yield from (by_id[name] for name in map(repr, part) if name in by_id)
        start, size = start + len(part), min(2 * size, BATCH)


# -- kinds with a special order -----------------------------------------------------------------


def _walk_messages(db: Connection, selection: Selection) -> Iterator[backup.Document]:
    """Yield messages session by session; one in several sessions is repeated."""
    for session, _ in _read(db, RecordKind.SESSION, selection, _ONLY_ID):
        ids = _find_ids(db.messages, [{"session": session["_id"]}])
        marks = [{"_id": {"$in": part}} for part in batched(ids, IN_LIMIT)]
        marked_messages = db.find_all(db.forgotten_messages, marks, _ONLY_ID)
        forgotten = {str(each["_id"]) for each in marked_messages}
        for read in _read_in_order(db.messages, ids):
            here = Read({**read.document, "session": [session["_id"]]}, read.error)
            found = _decode(RecordKind.MESSAGE, here)
            if found is not None and found.id in forgotten and found.record is not None:
                marked = StoredMessage(**msgspec.structs.asdict(found.record), forgotten=True)
                found = msgspec.structs.replace(found, record=marked)
            if found is not None:
                yield found


def _policy_order(found: backup.Document) -> tuple[str, str, str]:
    if not isinstance(found.record, Policy):
        return "", "", found.id
    scope = found.record.home
    return scope.agent_id, scope.kind.value, scope.owner


# -- history -------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """A history entry; without an ID, the current version of a document."""

    target: tuple[bool, str]
    place: Place
    id: Any = None
    version: StoredVersion | None = None


def _walk_history(
    db: Connection, selection: Selection, *, as_versions: bool
) -> Iterator[backup.Document]:
    """Yield history entries target by target, in version order.

    ``as_versions``: each version once, including the current one, and without tombstones of
    removals that did not happen.
    """
    for kind in (RecordKind.CONSOLIDATION, RecordKind.FACT):
        rows = _read_rows(db, kind, _filters(RecordKind.HISTORY, selection))
        if as_versions:
            target = attrgetter("target")
            both = merge(rows, _read_current(db, kind, selection), key=target)
            rows = (row for _, each in groupby(both, key=target) for row in _as_versions(each))
        for page in batched(rows, BATCH):
            yield from _read_entries(db, page)


def _read_rows(db: Connection, kind: RecordKind, filters: Sequence[Filter]) -> Iterator[_Row]:
    """Yield the positions of entries, in order."""
    of_kind = {"target_type": kind.value}
    if is_anchored(RecordKind.HISTORY, filters):
        found = (db.history.find({**filter, **of_kind}, _PLACES) for filter in filters)
        yield from _rows(each for documents in found for each in documents)
        return
    (filter,) = filters
    later: Filter = {}
    while True:
        narrowed = {**filter, **of_kind, **later}
        page = list(db.history.find(narrowed, _PLACES, sort=_BY_TARGET, limit=_ROWS))
        if len(page) < _ROWS:
            yield from _rows(page)
            return
        last = page[-1]["target_id"]  # there may be more entries of it
        yield from _rows(each for each in page if each["target_id"] != last)
        of_last = {**filter, **of_kind, "target_id": last}
        yield from _rows(db.history.find(of_last, _PLACES))
        later = after("target_id", last)


def _rows(documents: Iterable[Document]) -> list[_Row]:
    rows = (
        _Row(_order(document.get("target_id")), place_of(document), document["_id"])
        for document in documents
    )
    return sorted(rows, key=lambda row: (row.target, row.place))


def _read_current(db: Connection, kind: RecordKind, selection: Selection) -> Iterator[_Row]:
    """Yield the current versions, by target; unreadable documents are reported with their kind."""
    is_fact = kind is RecordKind.FACT
    for document, error in _read(db, kind, selection, codec.NO_VECTOR):
        if error is not None:
            continue
        with suppress(*codec.UNREADABLE):
            if is_fact or codec.read_version(document):
                version = fact_version(document) if is_fact else text_version(document)
                target = _order(document["_id"])
                yield _Row(target, version.place, version=stored_version(version))


def _as_versions(rows: Iterable[_Row]) -> list[_Row]:
    """Return the versions of one target, in order; history takes precedence over the document."""
    current_first = sorted(rows, key=lambda row: row.version is None)
    by_place = {row.place: row for row in current_first}
    return [by_place[place] for place in sorted(by_place)]


def _read_entries(db: Connection, rows: Sequence[_Row]) -> Iterator[backup.Document]:
    """Yield the documents of these entries."""
    ids = [row.id for row in rows if row.version is None]
    written = _read_in_order(db.history, ids)
    ahead = next(written, None)
    for row in rows:
        if row.version is not None:
            yield backup.Document(
                kind=RecordKind.HISTORY,
                id=row.version.id,
                agent_id=row.version.scope.agent_id,
                record=row.version,
            )
        elif ahead is not None and ahead.document["_id"] == row.id:
            found = _decode(RecordKind.HISTORY, ahead)
            if found is not None:
                yield found
            ahead = next(written, None)


# -- documents -----------------------------------------------------------------------------------


def _decode(kind: RecordKind, read: Read) -> backup.Document | None:
    """Decode a document; None if it is not a record."""
    source, (document, error) = SOURCES[kind], read
    record: Any = None
    wanted: Filter = {}
    try:
        if error is None:
            record = source.decode(document)
            if record is None:
                return None
            wanted = source.key(record) if source.key else {}
    except codec.UNREADABLE as raised:
        record, error = None, raised
    fault = ""
    if error is not None:  # the message of some types is enough
        is_plain = type(error) in (ScopeError, ValueError)
        fault = str(error) if is_plain else f"{type(error).__name__}: {error}"
    is_policy = kind is RecordKind.POLICY and record is not None
    return backup.Document(
        kind=kind,
        id=record.id if is_policy else str(document.get("_id")),
        agent_id=str(document.get("agent_id") or ""),
        record=record,
        fault=fault,
        oddities=() if error else tuple(_oddities(document, wanted)),
        raw="\n".join(_texts_in(document)) if error else "",
    )


def _texts_in(value: Any) -> Iterator[str]:
    """Yield all texts and IDs of a value."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for item in value:
            yield from _texts_in(item)
    elif isinstance(value, str | ObjectId | DBRef):
        yield str(value)


def _oddities(document: Document, wanted: Filter) -> Iterator[str]:
    """Yield the fields whose stored form the queries do not match."""
    if not isinstance(document.get("_id"), ObjectId):
        yield "its _id is not an ObjectId"
    for field, value in wanted.items():
        found = document.get(field)
        if isinstance(found, list) and value in found:
            continue  # as some old documents have their scope
        if found != value or type(found) is not type(value):
            yield f"{field} is {_format_value(found)}, expected {_format_value(value)}"
    for field in _TIMES:
        if (found := document.get(field)) is not None and codec.moment(found) is None:
            yield f"{field} is not a time: {_format_value(found)}"
    for field in _LISTS:  # old documents have a dict for a list
        if not isinstance(found := document.get(field), list | dict | None):
            yield f"{field} is not a list: {_format_value(found)}"


def _format_value(value: Any) -> str:
    if value is None:
        return "missing"
    is_plain = isinstance(value, str | int | float)
    return f"{value!r}" if is_plain else f"{type(value).__name__} {value}"


def _is_since(record: Record | None, since: datetime | None) -> bool:
    """Return whether a record was created or changed since the moment; True if unreadable."""
    if since is None or record is None or isinstance(record, StoredAgent | StoredUser):
        return True
    if isinstance(record, Message):
        return record.created_at >= since
    names = ("updated_at", "at", "formed_at", "held_at", "absorbed_at", "last_activity")
    times = [getattr(record, name, None) for name in names]
    return max((time for time in times if time is not None), default=EPOCH) >= since
