"""Write the records of a backup.

Each document is inserted whole. Its effects (an entry in a buffer, the revision of a scope) are
written afterwards, and completed by the next load of the same records after an interruption.
A message may be in several sessions: one that exists is added to another session.
"""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from pymongo import UpdateOne

from edenmem.models.backup import (
    LoadResult,
    LoadStatus,
    Record,
    RecordKind,
    StoredAgent,
    StoredUser,
    StoredVersion,
    compare_records,
    differences,
    forgotten_ids,
)
from edenmem.models.host import Message
from edenmem.models.ids import utc_now
from edenmem.models.memory import POLICY_FIELDS, Consolidation, Fact, Policy
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.common.loading import ADDED, BY_SCOPE, SAME, load_records, record_key
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.collections import CONSOLIDATED_KEY, FACT_KEY
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    IN_LIMIT,
    build_consolidated_filters,
    build_consolidated_key,
    id_parts,
    object_id,
    object_ids,
    optional_id,
    owner_fields,
    policy_id,
)
from edenmem.store.mongo.core.readiness import CLAIM_KEYS, Readiness
from edenmem.store.mongo.core.transactions import touch
from edenmem.store.mongo.formations.formations import formation_document
from edenmem.store.mongo.formations.usage import usage_document
from edenmem.store.mongo.host import host_codec
from edenmem.store.mongo.host.host import assign_owner, cold_note_reset
from edenmem.store.mongo.memory.history import (
    audit_document,
    fact_version,
    history_document,
    history_from,
    stored_version,
    text_version,
)
from edenmem.store.mongo.memory.memory import fill_buffers
from edenmem.store.mongo.search.slots import Slots
from edenmem.store.mongo.walk.sources import SOURCES
from edenmem.store.protocol.host import Host
from edenmem.store.protocol.memory import Memory
from edenmem.store.protocol.store import batched

#: The unique keys without which records of these kinds could be stored twice.
_NEEDED = {
    RecordKind.CONSOLIDATION: (CONSOLIDATED_KEY,),
    RecordKind.FACT: (FACT_KEY,),
    RecordKind.FORMATION: CLAIM_KEYS,
}
#: Kinds whose records raise the revision of their scope.
_OF_REVISIONS = BY_SCOPE | {RecordKind.REFLECTION, RecordKind.FACT}
#: Kinds whose documents have a maximum size, and may need an owner.
_LIMITED = (RecordKind.AGENT, RecordKind.USER, RecordKind.SESSION, RecordKind.MESSAGE)


class RecordLoader:
    """Loads records; see `edenmem.store.common.loading`."""

    def __init__(
        self, db: Connection, readiness: Readiness, slots: Slots, host: Host, memory: Memory
    ) -> None:
        self._db = db
        self._readiness = readiness
        self._slots = slots
        self._host = host
        self._memory = memory

    def load(
        self, kind: RecordKind, records: Sequence[Record], *, dry_run: bool = False
    ) -> list[LoadResult]:
        if not dry_run:
            self._readiness.require()
        if kind in _NEEDED:
            self._readiness.require_keys(_NEEDED[kind])
        if kind is RecordKind.HISTORY:
            return self._load_history(records, dry_run)  # type: ignore[arg-type]
        return load_records(self, kind, records, dry_run=dry_run)

    # -- rows --------------------------------------------------------------------------------

    def stored(self, kind: RecordKind, records: Sequence[Any]) -> dict[Any, Record | None]:
        if kind in BY_SCOPE:
            scopes = [record.home for record in records]
            stored = self._memory.policies if kind is RecordKind.POLICY else self._read_texts
            return dict(stored(scopes))
        source = SOURCES[kind]
        projection = codec.NO_VECTOR if kind is RecordKind.FACT else None
        ids = (record.id for record in records)
        documents = self._db.find_by_ids(source.collection(self._db), ids, projection)
        if kind is RecordKind.MESSAGE:
            return _stored_messages({str(each["_id"]): each for each in documents}, records)
        found: dict[Any, Record | None] = {}
        for document in documents:
            try:
                found[str(document["_id"])] = source.decode(document)
            except codec.UNREADABLE:
                found[str(document["_id"])] = None
        return found

    def _read_texts(self, scopes: Sequence[Scope]) -> dict[Scope, Consolidation]:
        filters = build_consolidated_filters(scopes)
        return {
            scope: codec.consolidation_from(document)
            for document in self._db.find_all(self._db.consolidated, filters)
            if (scope := codec.find_text_scope(document))
        }

    def sessions(self, ids: Sequence[str]) -> set[str]:
        found = self._db.find_by_ids(self._db.sessions, ids, {"_id": 1})
        return {str(document["_id"]) for document in found}

    def taken_names(self, kind: RecordKind, names: Sequence[str]) -> set[str]:
        named = [
            {"type": kind.value, "username": {"$in": part}} for part in batched(names, IN_LIMIT)
        ]
        found = self._db.find_all(self._db.users, named, {"username": 1})
        return {str(document["username"]) for document in found}

    def twins(self, facts: Sequence[Fact]) -> dict[tuple[Scope, str], str]:
        hashes: dict[Scope, list[str]] = {}
        for fact in facts:
            hashes.setdefault(fact.home, []).append(fact.hash)
        return {
            (scope, hash): fact.id
            for scope, wanted in hashes.items()
            for hash, fact in self._memory.facts_by_hashes(scope, wanted).items()
        }

    def taken_keys(self, facts: Sequence[Fact]) -> set[tuple[Scope, str | None]]:
        return {
            (fact.home, fact.key)
            for fact in facts
            if any(self._memory.facts(FactFilter(scopes=(fact.home,), key=fact.key), limit=1))
        }

    def obstacles(self, kind: RecordKind, records: Sequence[Any]) -> dict[int, str]:
        refusals = enumerate(map(self._host.refusal, records if kind in _LIMITED else ()))
        return {place: reason for place, reason in refusals if reason}

    def insert(
        self, kind: RecordKind, records: Sequence[Any], stored: Mapping[Any, Record | None]
    ) -> dict[int, str]:
        if kind is RecordKind.POLICY:
            _, failed = self._db.policies.bulk([_policy_update(record) for record in records])
            return dict.fromkeys(failed, "another process has just written it")
        if kind is RecordKind.CONSOLIDATION:
            buffers = [text for text in records if text.home in stored]
            self._db.consolidated.bulk([_first_text(text) for text in buffers])
            new = [place for place, text in enumerate(records) if text.home not in stored]
            documents = [_text_document(records[place]) for place in new]
            return {new[order]: "" for order in self._db.consolidated.insert_new(documents)}
        write = self._writer(kind, records)
        taken = SOURCES[kind].collection(self._db).insert_new([write(each) for each in records])
        refused = dict.fromkeys(taken, "")
        for place in taken if kind is RecordKind.MESSAGE else ():  # in another session already
            one = records[place]
            same = {"_id": object_id(one.id), "role": one.role, "content": one.content}
            joined = {"$addToSet": {"session": object_id(one.session_id)}}
            if self._db.messages.update_one(same, joined):
                del refused[place]
        return refused

    def _writer(self, kind: RecordKind, records: Sequence[Any]) -> Callable[[Any], Document]:
        """Return the function that makes the document of a record."""
        now = utc_now()
        has_vectors = kind is RecordKind.FACT and any(fact.embedding for fact in records)
        storage = self._slots.storage() if has_vectors else "array"
        writers: dict[RecordKind, Callable[[Any], Document]] = {
            RecordKind.AGENT: lambda agent: _account(host_codec.agent_document(agent), agent),
            RecordKind.USER: lambda user: _account(host_codec.user_document(user), user),
            RecordKind.SESSION: lambda one: _session_document(assign_owner(self._db, one)),
            RecordKind.MESSAGE: host_codec.message_document,
            RecordKind.REFLECTION: partial(codec.reflection_document, at=now),
            RecordKind.FACT: partial(codec.fact_document, at=now, storage=storage),
            RecordKind.HELD: partial(codec.held_document, at=now),
            RecordKind.FORMATION: formation_document,
            RecordKind.USAGE: usage_document,
            RecordKind.AUDIT: audit_document,
        }
        return writers[kind]

    def complete(self, kind: RecordKind, added: Sequence[Any], there: Sequence[Any]) -> None:
        if kind is RecordKind.SESSION:  # the cold run must check them, however old they are
            self._db.cold.bulk(
                [
                    UpdateOne({"_id": object_id(session.id)}, cold_note_reset(at), upsert=True)
                    for session in added
                    if (at := session.last_activity) is not None
                ]
            )
        elif kind is RecordKind.MESSAGE:
            marks = [{"_id": object_id(id)} for id in forgotten_ids(there)]
            self._db.forgotten_messages.insert_new(marks)
        elif kind is RecordKind.REFLECTION:
            waiting = (one for one in there if not one.absorbed)
            fill_buffers(self._db, sorted(waiting, key=lambda one: one.order))
        if kind in _OF_REVISIONS:
            touch(self._db, {record.home for record in added})

    # -- history -----------------------------------------------------------------------------

    def _load_history(self, records: Sequence[StoredVersion], dry_run: bool) -> list[LoadResult]:
        answers: dict[int, LoadResult] = {}
        past = self._past(records)
        for target_type, collection in (
            ("fact", self._db.facts),
            ("consolidation", self._db.consolidated),
        ):
            places = [n for n, record in enumerate(records) if record.target_type == target_type]
            ids = [records[place].target_id for place in places]
            targets = self._targets(collection, target_type, ids)
            inserts: list[Document] = []
            marks: list[UpdateOne] = []
            for place in places:
                target = targets.get(records[place].target_id)
                answers[place] = _judge(records[place], past, target, inserts, marks)
            if not dry_run:
                self._db.history.insert_new(inserts)
                collection.bulk(marks)
        return [answers.get(place, _OF_ANOTHER) for place in range(len(records))]

    def _past(self, records: Sequence[StoredVersion]) -> dict[str, StoredVersion]:
        """Return the stored versions of these targets, by position-based ID.

        Entries of an older edenmem have other IDs.
        """
        filters = [
            {"target_type": kind, "target_id": {"$in": part}}
            for kind in sorted({record.target_type for record in records})
            for part in id_parts(r.target_id for r in records if r.target_type == kind)
        ]
        found = map(history_from, self._db.find_all(self._db.history, filters))
        return {stored_version(version).id: version for version in found}

    def _targets(
        self, collection: Collection, target_type: str, ids: Sequence[str]
    ) -> dict[str, _Target]:
        read = fact_version if target_type == "fact" else text_version
        return {
            str(document["_id"]): _Target(
                codec.version_filter(document),
                read(document),
                document.get("last_change_id") is not None,
            )
            for document in self._db.find_by_ids(collection, ids, codec.NO_VECTOR)
            if target_type == "fact" or codec.read_version(document)
        }


# -- documents -----------------------------------------------------------------------------------


def _stored_messages(
    documents: Mapping[str, Document], messages: Sequence[Message]
) -> dict[Any, Record | None]:
    """Return the messages that are in their session, or differ from the stored ones."""
    found: dict[Any, Record | None] = {}
    for message in messages:
        if (document := documents.get(message.id)) is not None:
            stored = host_codec.message_from(document, message.session_id)
            is_here = message.session_id in codec.text_ids(document.get("session"))
            if is_here or differences(RecordKind.MESSAGE, stored, message):
                found[record_key(RecordKind.MESSAGE, message)] = stored
    return found


def _account(document: Document, account: StoredAgent | StoredUser) -> Document:
    return {**document, "deleted": account.deleted, "createdAt": account.created_at}


def _session_document(session: Any) -> Document:
    document = host_codec.session_document(session)
    document["createdAt"] = session.created_at
    if session.last_memory_message_id is not None:
        last = object_id(session.last_memory_message_id)
        document["memory_context"]["last_memory_message_id"] = last
    return document


def _policy_update(policy: Policy) -> UpdateOne:
    """Return the update for a policy; its document may exist already and keep a revision."""
    now = utc_now()
    fields = {
        **owner_fields(policy.home),
        **{name: getattr(policy, name) for name in POLICY_FIELDS},
        "policy_id": object_id(policy.id),
        "version": policy.version,
        "updated_at": policy.updated_at,
        "updatedAt": now,
    }
    key = {"_id": policy_id(policy.home), "version": None}
    return UpdateOne(key, {"$set": fields, "$setOnInsert": {"createdAt": now}}, upsert=True)


def _text_document(text: Consolidation) -> Document:
    now = utc_now()
    document: Document = {
        **build_consolidated_key(text.home),
        "_id": object_id(text.id),
        "consolidated_content": "",
        **({"word_limit": text.word_limit} if text.word_limit else {}),
        "unabsorbed_ids": [],
        "last_consolidated_at": text.last_consolidated_at,
        "createdAt": now,
        "updatedAt": now,
    }
    if text.version:
        document |= {
            **codec.text_fields(text.consolidated_content, text.version),
            "absorbed_ids": object_ids(text.absorbed_ids),
            "updated_at": text.updated_at,
        }
        if text.updated_at is not None:  # edenmem's; the actor comes with history
            made = {"version": text.version, "at": text.updated_at}
            document["last_version"] = {**made, "action": "consolidate", "actor": ""}
    if text.unpropagated_versions:
        document["unpropagated_versions"] = list(text.unpropagated_versions)
    if text.fixed:
        document["fixed"] = codec.fixed_field(text)
    return document


def _first_text(text: Consolidation) -> UpdateOne:
    """Return the update for a text whose document only holds a buffer."""
    fields = _text_document(text)
    kept = {*build_consolidated_key(text.home), "_id", "unabsorbed_ids", "createdAt"}
    new = {name: value for name, value in fields.items() if name not in kept}
    return UpdateOne({**build_consolidated_key(text.home), "version": None}, {"$set": new})


# -- versions ------------------------------------------------------------------------------------

_OF_ANOTHER = LoadResult(status=LoadStatus.KEPT, detail="its target differs here")


class _Target(msgspec.Struct):
    """A document whose versions are loaded; ``is_marked`` if its origin is recorded."""

    key: Document
    current: StoredVersion
    is_marked: bool


def _judge(
    record: StoredVersion,
    past: dict[str, StoredVersion],
    target: _Target | None,
    inserts: list[Document],
    marks: list[UpdateOne],
) -> LoadResult:
    """Return the result for one version, and add its writes."""
    version = stored_version(record)
    known = past.get(version.id)
    if known is not None:
        return compare_records(RecordKind.HISTORY, stored_version(known), record)
    is_tombstone = version.place[2]
    if target is None or (
        version.version <= target.current.version  # it ended an earlier life
        if is_tombstone
        else version.place < target.current.place
    ):
        inserts.append(history_document(version, version.life))
        return ADDED
    current = target.current
    could_be = version.version == current.version and version.content == current.content
    if is_tombstone or not could_be:
        return _OF_ANOTHER
    if version.life > current.life:  # the fact was removed and restored since
        inserts.append(history_document(current, current.life))
    elif _origin(version) == _origin(current):
        return SAME
    elif target.is_marked:
        return compare_records(RecordKind.HISTORY, stored_version(current), record)
    made = {name: getattr(version, name) for name in ("version", "at", "action", "actor")}
    mark: Document = {"last_version": made, "last_change_id": optional_id(version.change_id)}
    if version.life:
        mark["life"] = version.life
    marks.append(UpdateOne(target.key, {"$set": mark}))
    target.current, target.is_marked = version, True
    return ADDED


def _origin(version: StoredVersion) -> tuple[object, ...]:
    return version.life, version.action, version.actor, version.change_id, version.at
