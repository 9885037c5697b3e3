"""Read history and audit entries, and memory as it was at a moment."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from bson.binary import Binary

from edenmem.memory import Origin, facts, texts
from edenmem.models import backup
from edenmem.models.backup import TOMBSTONE, StoredVersion
from edenmem.models.changes import Actor, AuditEntry, HistoryEntry, action_of_new_fact
from edenmem.models.memory import Consolidation, Fact, Reflection
from edenmem.models.records import StoredEntry, salts_of
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.store.common.past import REWRITING, buffer_at, facts_at
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    Filter,
    build_consolidated_key,
    id_parts,
    object_id,
    object_ids,
    optional_id,
)
from edenmem.store.protocol.memory import Memory

_ENTRY_FIELDS = HistoryEntry.__struct_fields__


#: The position of a version among those of its target: its number, the number of restorations
#: before it, and whether it is the tombstone that ended that life.
Place = tuple[int, int, bool]


def history_document(entry: HistoryEntry, life: int) -> Document:
    """Return the stored form of a version; a fact's snapshot is MessagePack.

    ``life`` counts the restorations of the fact before it: removing and restoring a fact keeps its
    version number.
    """
    document: Document = {
        "_id": object_id(entry.id),
        "target_type": entry.target_type,
        "target_id": object_id(entry.target_id),
        "agent_id": object_id(entry.scope.agent_id),
        **_scope_fields(entry.scope),
        "version": entry.version,
        "life": life,
        "content": entry.content,
        "at": entry.at,
        "action": entry.action,
        "actor": entry.actor,
        "change_id": optional_id(entry.change_id),
        "absorbed_ids": object_ids(entry.absorbed_ids),
        "createdAt": entry.at,
        "updatedAt": entry.at,
        **codec.write_fields(entry.fields),
    }
    if entry.snapshot is not None:
        document["snapshot"] = Binary(msgspec.msgpack.encode(entry.snapshot))
    return document


def history_from(document: Document) -> StoredVersion:
    """Read a stored version."""
    snapshot = document.get("snapshot")
    return StoredVersion(
        id=str(document["_id"]),
        target_type=codec.text(document.get("target_type")),
        target_id=str(document["target_id"]),
        scope=_scope_from(document),
        version=codec.number(document.get("version")),
        content=codec.text(document.get("content")),
        at=codec.require_moment(document, "at"),
        action=codec.text(document.get("action")),
        actor=codec.text(document.get("actor")),
        change_id=codec.text_id(document.get("change_id")),
        absorbed_ids=codec.text_ids(document.get("absorbed_ids")),
        fields=codec.read_fields(document),
        snapshot=None if snapshot is None else msgspec.msgpack.decode(snapshot, type=Fact),
        life=codec.number(document.get("life")),
    )


def place_of(document: Document) -> Place:
    """Return the position of a stored version."""
    is_tombstone = document.get("action") == TOMBSTONE
    return codec.number(document.get("version")), codec.number(document.get("life")), is_tombstone


def stored_version(version: StoredVersion) -> StoredVersion:
    """Return a version for a backup, with an ID that is the same on every store."""
    id = backup.version_id(version.target_type, version.target_id, version.place)
    return msgspec.structs.replace(version, id=id)


def audit_document(entry: AuditEntry) -> Document:
    """Return the stored form of an audit entry."""
    return {
        "_id": object_id(entry.id),
        "change_set_id": object_id(entry.change_set_id),
        "at": entry.at,
        "actor": msgspec.to_builtins(entry.actor),
        "action": entry.action,
        "target_type": entry.target_type,
        "target_id": object_id(entry.target_id),
        "agent_id": optional_id(entry.agent_id or None),
        **({} if entry.scope is None else _scope_fields(entry.scope)),
        "before": entry.before,
        "after": entry.after,
        "reason": entry.reason,
        "status": entry.status,
        "undoes": optional_id(entry.undoes),
        "place": entry.place,
        "salts": salts_of(entry),
        **({"erased": list(entry.erased)} if isinstance(entry, StoredEntry) else {}),
        "createdAt": entry.at,
        "updatedAt": entry.at,
    }


def stored_entry_from(document: Document) -> StoredEntry:
    """Read an audit entry with its salts.

    Raises:
        ValueError: the entry is found in another scope than it names.
    """
    entry = audit_from(document)
    if document.get("scope_key") != (entry.scope and entry.scope.key):
        raise ValueError("the scope is inconsistent")
    return StoredEntry(
        **msgspec.structs.asdict(entry),
        salts=msgspec.convert(document.get("salts") or {}, dict[str, str]),
        erased=codec.text_ids(document.get("erased")),
    )


def audit_from(document: Document) -> AuditEntry:
    """Read a stored audit entry."""
    return AuditEntry(
        id=str(document["_id"]),
        change_set_id=str(document["change_set_id"]),
        at=codec.require_moment(document, "at"),
        actor=msgspec.convert(document.get("actor"), Actor),
        action=codec.text(document.get("action")),
        target_type=codec.text(document.get("target_type")),
        target_id=str(document["target_id"]),
        agent_id=codec.text_id(document.get("agent_id")) or "",
        scope=_scope_from(document) if document.get("scope_key") else None,
        before=_past_document(document.get("before")),
        after=_past_document(document.get("after")),
        reason=codec.text(document.get("reason")),
        status=codec.text(document.get("status")),
        undoes=codec.text_id(document.get("undoes")),
        place=codec.number(document.get("place")),
    )


def _past_document(stored: dict[str, Any] | None) -> dict[str, Any] | None:
    value = (stored or {}).get("value")
    return stored if value is None else {**(stored or {}), "value": codec.read_json(value)}


def _scope_fields(scope: Scope) -> Document:
    return {"scope_key": scope.key, "scope": scope.kind.value, "owner": scope.owner}


def _scope_from(document: Document) -> Scope:
    owner = codec.text(document.get("owner"))
    return Scope(ScopeKind(document["scope"]), str(document["agent_id"]), owner)


class MongoHistory:
    """Implements `edenmem.store.protocol.memory.History`."""

    def __init__(self, db: Connection, memory: Memory) -> None:
        self._db = db
        self._memory = memory

    def versions(
        self, target_type: str, target_id: str, *, scope: Scope | None = None
    ) -> list[HistoryEntry]:
        key: Filter = {"target_type": target_type}
        if target_type == "consolidation" and scope is not None:
            key = {"scope_key": scope.key, **key}
        else:
            key["target_id"] = object_id(target_id)
        # The platform may delete a scope's document, and number the text of the next from 1 again.
        targets: dict[str, dict[Place, StoredVersion]] = {}
        for version in map(history_from, self._db.history.find(key)):
            targets.setdefault(version.target_id, {})[version.place] = version
        current = self._current_version(target_type, target_id, scope)
        if current is not None:
            last = targets.pop(current.target_id, {})
            targets[current.target_id] = {current.place: current, **last}
        entries = [
            HistoryEntry(**{name: getattr(version, name) for name in _ENTRY_FIELDS})
            for versions in targets.values()
            for version in sorted(versions.values(), key=lambda each: each.place)
        ]
        return [entry for entry in entries if scope is None or entry.scope == scope]

    def _current_version(
        self, target_type: str, target_id: str, scope: Scope | None
    ) -> StoredVersion | None:
        """Return the current version, which history may not contain, if it is readable."""
        if target_type == "fact":
            found = self._db.facts.find_one({"_id": object_id(target_id)}, codec.NO_VECTOR)
            readable = found is not None and codec.readable_fact(found) is not None
            return fact_version(found) if found is not None and readable else None
        filter = build_consolidated_key(scope) if scope else {"_id": object_id(target_id)}
        found = self._db.consolidated.find_one(filter)
        if found is None or codec.read_version(found) == 0:
            return None
        return text_version(found)

    def facts_at(self, scopes: Sequence[Scope], moment: datetime, *, limit: int) -> list[Fact]:
        moved = {"target_type": "fact", "action": {"$in": [TOMBSTONE, "restore"]}}
        since = {"at": {"$gt": moment}}
        filters = [{"scope_key": each.key, **moved, **since} for each in dict.fromkeys(scopes)]
        moves = map(history_from, self._db.find_all(self._db.history, filters))
        facts = self._memory.facts(FactFilter(scopes=tuple(scopes)))

        def find_versions(ids: Iterable[str]) -> dict[str, StoredVersion]:
            latest: dict[str, StoredVersion] = {}
            filters = [
                {"target_type": "fact", "target_id": {"$in": each}} for each in id_parts(ids)
            ]
            found = map(history_from, self._db.find_all(self._db.history, filters))
            for version in (each for each in found if each.at <= moment):
                known = latest.setdefault(version.target_id, version)
                latest[version.target_id] = max(known, version, key=lambda each: each.place)
            return latest

        return facts_at(moment, facts, moves, find_versions, limit=limit)

    def pending_at(self, scope: Scope, moment: datetime) -> list[Reflection]:
        entries = self._rewriting(scope, moment)
        versions = self.versions("consolidation", "", scope=scope) if entries else ()
        return buffer_at(moment, self._memory.reflections((scope,)), entries, versions)

    def _rewriting(self, scope: Scope, moment: datetime) -> list[AuditEntry]:
        """Return the changes of the buffer after a moment that flags do not show, latest first."""
        filters = [
            {"scope_key": scope.key, "action": action, "at": {"$gt": moment}}
            for action in REWRITING
        ]
        found = map(audit_from, self._db.find_all(self._db.audit, filters))
        done = (entry for entry in found if entry.status == "done")
        return sorted(done, key=lambda entry: entry.at, reverse=True)


def fact_origin(document: Document, fact: Fact) -> Origin:
    """Return the origin of the current version of a fact."""
    other = Origin(action=action_of_new_fact(fact), at=fact.changed_at)
    return _read_origin(document, fact.version, other)


def text_origin(document: Document, text: Consolidation) -> Origin:
    """Return the origin of the current version of a text."""
    at = text.last_consolidated_at or codec.read_creation_time(document)
    return _read_origin(document, text.version, Origin(action="consolidate", at=at))


def _read_origin(document: Document, version: int, other: Origin) -> Origin:
    """Return what a document says of its version; else the origin of another program's."""
    made = codec.read_last_version(document, version)
    return Origin(
        action=codec.text(made.get("action")) or other.action,
        actor=codec.text(made.get("actor")),
        change_id=codec.text_id(made.get("change_id")),
        at=codec.moment(made.get("at")) or other.at,
    )


def fact_version(document: Document) -> StoredVersion:
    """Return the current version of a fact from its document."""
    fact = codec.fact_from(document)
    origin = fact_origin(document, fact)
    entry = facts.version_of(fact, origin, origin.at or fact.changed_at)
    life = codec.number(document.get("life"))
    return StoredVersion(**msgspec.structs.asdict(entry), life=life)


def text_version(document: Document) -> StoredVersion:
    """Return the current version of a text from its document."""
    text = codec.consolidation_from(document)
    origin = text_origin(document, text)
    at = origin.at or codec.read_creation_time(document)
    return StoredVersion(**msgspec.structs.asdict(texts.version_of(text, origin, at)))
