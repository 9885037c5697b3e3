"""Reading every document for a backup."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from heapq import merge
from itertools import groupby
from typing import Any

import msgspec

from edenmem.models.backup import (
    Record,
    RecordKind,
    Selection,
    StoredAgent,
    StoredSession,
    StoredUser,
    StoredVersion,
    Unreadable,
    version_id,
)
from edenmem.models.host import Message
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import ScopeKind
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import EVERYTHING, Filter, object_ids
from edenmem.store.mongo.core.merging import EPOCH
from edenmem.store.mongo.formations.formations import formation_from
from edenmem.store.mongo.formations.usage import usage_from
from edenmem.store.mongo.host import host_codec
from edenmem.store.mongo.memory.history import (
    Kept,
    audit_from,
    fact_version,
    history_from,
    in_order,
    text_version,
)

_BY_ID = (("_id", 1),)


def dump_records(
    db: Connection, kind: RecordKind, wanted: Selection, with_vectors: bool
) -> Iterator[Record | Unreadable]:
    """Read the records of a kind, or why they cannot be read."""
    match kind:
        case RecordKind.MESSAGE:
            return _dump_messages(db, wanted)
        case RecordKind.HISTORY:
            return _dump_history(db, wanted)
        case RecordKind.POLICY:  # whose documents have ids of their own, as they keep revisions
            return iter(sorted(_dump_kind(kind, db.policies, wanted), key=_scope_key))
        case RecordKind.FACT if not with_vectors:
            return _dump_kind(kind, db.facts, wanted, codec.NO_VECTOR)
    return _dump_kind(kind, _source(db, kind), wanted)


def _source(db: Connection, kind: RecordKind) -> Collection:
    return {
        RecordKind.AGENT: db.users,
        RecordKind.USER: db.users,
        RecordKind.SESSION: db.sessions,
        RecordKind.POLICY: db.policies,
        RecordKind.CONSOLIDATION: db.consolidated,
        RecordKind.REFLECTION: db.reflections,
        RecordKind.FACT: db.facts,
        RecordKind.FORMATION: db.formations,
        RecordKind.USAGE: db.usage,
        RecordKind.AUDIT: db.audit,
    }[kind]


def _dump_kind(
    kind: RecordKind,
    source: Collection,
    wanted: Selection,
    projection: Mapping[str, Any] | None = None,
) -> Iterator[Record | Unreadable]:
    for document in source.find({**EVERYTHING, **_filter(kind, wanted)}, projection, sort=_BY_ID):
        try:
            record = _READERS[kind](document)
        except codec.UNREADABLE as error:
            yield Unreadable(id=str(document["_id"]), reason=str(error) or type(error).__name__)
            continue
        if record is not None and _is_since(record, wanted.since):
            yield record


def _dump_messages(db: Connection, wanted: Selection) -> Iterator[Record | Unreadable]:
    """Session by session, each of which has a message that is in several."""
    sessions = {**EVERYTHING, **_filter(RecordKind.SESSION, wanted)}
    for session in db.sessions.find(sessions, {"_id": 1}, sort=_BY_ID):
        found = db.messages.find({"session": session["_id"]})
        for document in sorted(found, key=lambda message: str(message["_id"])):
            message = host_codec.message_from(document, str(session["_id"]))
            if _is_since(message, wanted.since):
                yield message


# -- history -------------------------------------------------------------------------------------


def _dump_history(db: Connection, wanted: Selection) -> Iterator[Record | Unreadable]:
    """What is written of each target, and the version that its document holds."""
    for target_type, source, projection, current in (
        ("consolidation", db.consolidated, None, _text_now),
        ("fact", db.facts, codec.NO_VECTOR, fact_version),
    ):
        filter = {"target_type": target_type, **_of_history(wanted)}
        order = (("target_type", 1), ("target_id", 1), ("version", 1))
        owned = {**EVERYTHING, **_filter(RecordKind(target_type), wanted)}
        written = db.history.find(filter, sort=order)
        documents = source.find(owned, projection, sort=_BY_ID)
        past = ((str(document["target_id"]), document, None) for document in written)
        present = ((str(document["_id"]), document, current) for document in documents)
        both = merge(past, present, key=lambda item: item[0])
        for target_id, items in groupby(both, key=lambda item: item[0]):
            yield from _versions(target_id, items, wanted.since)


def _versions(
    target_id: str, items: Iterator[Any], since: datetime | None
) -> Iterator[StoredVersion | Unreadable]:
    """The versions of one target, in order, as `HistoryPart.history` tells them."""
    versions: dict[tuple[int, int, bool], Kept] = {}
    current: Kept | None = None
    for _, document, read in items:
        try:
            version = history_from(document) if read is None else read(document)
        except codec.UNREADABLE as error:
            yield Unreadable(id=target_id, reason=str(error) or type(error).__name__)
            continue
        if version is None:
            continue
        if read is None:
            versions[version.place] = version
        else:
            current = version
            versions.setdefault(version.place, version)
    for version in in_order(versions.values(), current):
        entry = version.entry
        if since is None or entry.at >= since:
            id = version_id(entry.target_type, entry.target_id, version.place)
            fields = {**msgspec.structs.asdict(entry), "id": id}
            yield StoredVersion(**fields, life=version.life)


def _text_now(document: Document) -> Kept | None:
    return text_version(document) if codec.read_version(document) else None


# -- filters -------------------------------------------------------------------------------------


def _filter(kind: RecordKind, wanted: Selection) -> Filter:
    agents = object_ids(wanted.agent_ids)
    match kind:
        case RecordKind.AGENT:
            return {"type": "agent", **({"_id": {"$in": agents}} if agents else {})}
        case RecordKind.USER:
            ids = wanted.account_ids
            return {"type": "user", **({} if ids is None else {"_id": {"$in": object_ids(ids)}})}
        case RecordKind.SESSION:
            members = object_ids(wanted.member_ids)
            return {
                **({"agents": {"$in": agents}} if agents else {}),
                **({"users": {"$in": members}} if members else {}),
            }
        case RecordKind.AUDIT:
            return {"status": "done", **_of_history(wanted)}
        case RecordKind.FORMATION | RecordKind.USAGE:
            return {"agent_id": {"$in": agents}} if agents else {}
    filter: Filter = {"agent_id": {"$in": agents}} if agents else {}
    if wanted.user_ids is not None:
        filter["user_id"] = {"$in": object_ids(wanted.user_ids)}
    return filter | _of_kinds(wanted)


def _of_history(wanted: Selection) -> Filter:
    """History and audit entries name the owner of their scope in one field."""
    filter: Filter = {}
    if wanted.agent_ids:
        filter["agent_id"] = {"$in": object_ids(wanted.agent_ids)}
    if wanted.user_ids is not None:
        filter["owner"] = {"$in": list(wanted.user_ids)}
    return filter | _of_kinds(wanted)


def _of_kinds(wanted: Selection) -> Filter:
    """The kinds of scope that are wanted; with users, only user scopes are left of them."""
    kinds = set(wanted.kinds or ScopeKind)
    if wanted.user_ids is not None:
        kinds &= {ScopeKind.USER}
    elif not wanted.kinds:
        return {}
    return {"scope": {"$in": sorted(kinds)}}


# -- documents -----------------------------------------------------------------------------------


def agent_record(document: Document) -> StoredAgent:
    """An agent as it is stored."""
    fields = msgspec.structs.asdict(host_codec.agent_from(document))
    return StoredAgent(**fields, deleted=document.get("deleted") is True)


def session_record(document: Document) -> StoredSession:
    """A session as it is stored: its last activity is the one that is written down."""
    context = host_codec.sub_document(document.get("memory_context"))
    session = msgspec.structs.replace(
        host_codec.session_from(document), last_activity=codec.moment(context.get("last_activity"))
    )
    last = codec.text_id(context.get("last_memory_message_id"))
    return StoredSession(**msgspec.structs.asdict(session), last_memory_message_id=last)


def text_record(document: Document) -> Consolidation:
    """A text as it is stored, without its buffer."""
    text = codec.consolidation_from(document)
    _ = text.home
    return msgspec.structs.replace(
        text, unabsorbed_ids=(), updated_at=text.updated_at if text.version else None
    )


def fact_record(document: Document) -> Fact:
    """A fact as it is stored, with its vector."""
    fact = codec.fact_from(document, with_vector=True)
    _ = fact.home
    if fact.embedding is None:
        fact = msgspec.structs.replace(fact, embedding_model=None)
    return fact


def _reflection_record(document: Document) -> Reflection:
    reflection = codec.reflection_from(document)
    _ = reflection.home
    return reflection


def _policy_record(document: Document) -> Policy | None:
    policy = codec.policy_from(document)
    if policy is not None:
        _ = policy.home
    return policy


_READERS: Mapping[RecordKind, Callable[[Document], Record | None]] = {
    RecordKind.AGENT: agent_record,
    RecordKind.USER: host_codec.stored_user_from,
    RecordKind.SESSION: session_record,
    RecordKind.POLICY: _policy_record,
    RecordKind.CONSOLIDATION: text_record,
    RecordKind.REFLECTION: _reflection_record,
    RecordKind.FACT: fact_record,
    RecordKind.FORMATION: formation_from,
    RecordKind.USAGE: usage_from,
    RecordKind.AUDIT: audit_from,
}


def _scope_key(policy: Any) -> tuple[str, str, str]:
    if isinstance(policy, Unreadable):
        return "", "", policy.id
    return policy.agent_id, policy.scope.value, policy.home.owner


def _is_since(record: Any, since: datetime | None) -> bool:
    """Whether the record was made or changed at or after the moment."""
    if since is None or isinstance(record, StoredAgent | StoredUser):
        return True
    if isinstance(record, Message):
        return bool(record.created_at >= since)
    names = ("updated_at", "at", "formed_at", "absorbed_at", "last_activity")
    times = [getattr(record, name, None) for name in names]
    return max((time for time in times if time is not None), default=EPOCH) >= since
