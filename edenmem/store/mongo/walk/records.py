"""Every document of a kind, decoded or not: for a database that is not trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from bson import ObjectId

from edenmem.errors import ScopeError
from edenmem.models.formation import Formation
from edenmem.models.integrity import Record, RecordKind
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    EVERYTHING,
    Filter,
    build_consolidated_key,
    fact_fields,
    object_id,
    owner_fields,
)
from edenmem.store.mongo.formations.formations import formation_from
from edenmem.store.mongo.memory.history import audit_from, history_from

_Owned = Fact | Reflection | Consolidation | Policy
_Value = _Owned | Formation | None


_BY_ID = (("_id", 1),)

#: The fields that must be times wherever they are there at all.
_TIMES = (
    "formed_at",
    "updated_at",
    "absorbed_at",
    "last_consolidated_at",
    "last_accessed_at",
    "createdAt",
    "at",
    "created_at",
    "lease_until",
)

_LISTS = ("source_message_ids", "propagated_from", "unabsorbed_ids", "absorbed_ids", "message_ids")


class _Walk(NamedTuple):
    """How one kind is read; ``key``: the fields by which queries find a document of it."""

    collection: Callable[[Connection], Collection]
    decode: Callable[[Document], _Value]
    key: Callable[[_Owned], Filter] | None = None
    projection: Filter | None = None


def _check_history(document: Document) -> None:
    history_from(document)


def _check_audit(document: Document) -> None:
    entry = audit_from(document)
    if not all(isinstance(kept, dict | None) for kept in (entry.before, entry.after)):
        raise ValueError("what was, or is, is no document")


def _session_owner(item: _Owned) -> Filter:
    return owner_fields(item.home)


_WALKS: dict[RecordKind, _Walk] = {
    "fact": _Walk(
        lambda db: db.facts,
        codec.fact_from,
        lambda item: fact_fields(item.home),
        codec.NO_VECTOR,
    ),
    "reflection": _Walk(lambda db: db.reflections, codec.reflection_from, _session_owner),
    "consolidation": _Walk(
        lambda db: db.consolidated,
        codec.consolidation_from,
        lambda item: build_consolidated_key(item.home),
    ),
    "policy": _Walk(lambda db: db.policies, codec.policy_from, _session_owner),
    "formation": _Walk(lambda db: db.formations, formation_from, projection={"changes": 0}),
    "history": _Walk(lambda db: db.history, _check_history),
    "audit": _Walk(lambda db: db.audit, _check_audit),
}


def read_records(db: Connection, kind: RecordKind, agent_id: str | None) -> Iterator[Record]:
    """Read everything of a kind; see `Walk.records`."""
    walk = _WALKS[kind]
    filter = dict(EVERYTHING)
    if agent_id is not None and kind != "history":
        # However it is stored: what is stored otherwise is to be told of.
        filter["agent_id"] = {"$in": [object_id(agent_id), agent_id]}
    elif agent_id is not None:
        filter["agent_id"] = object_id(agent_id)
    documents = walk.collection(db).leniently().find(filter, walk.projection, sort=_BY_ID)
    for document in documents:
        record = _record(kind, walk, document)
        if record is not None:
            yield record


def _record(kind: RecordKind, walk: _Walk, document: Document) -> Record | None:
    """None for a document that only keeps a scope's revision."""
    key = str(document.get("_id"))
    agent_id = str(document.get("agent_id") or "")
    try:
        value = walk.decode(document)
        if kind == "policy" and value is None:
            return None
        wanted = walk.key(value) if walk.key and not isinstance(value, Formation | None) else {}
        fault = ""
    except codec.UNREADABLE as error:
        value, wanted = None, {}
        # These two say in words what is wrong with the document.
        plain = type(error) in (ScopeError, ValueError)
        fault = str(error) if plain else f"{type(error).__name__}: {error}"
    return Record(
        kind=kind,
        id=key if kind != "policy" or value is None else getattr(value, "id", key),
        agent_id=agent_id,
        value=value,
        fault=fault,
        oddities=() if fault else tuple(_oddities(document, wanted)),
    )


def _oddities(document: Document, wanted: Filter) -> Iterator[str]:
    """What is stored otherwise than the queries expect, which look past it."""
    if not isinstance(document.get("_id"), ObjectId):
        yield "its _id is no ObjectId"
    for field, value in wanted.items():
        found = document.get(field)
        if isinstance(found, list) and value in found:
            continue  # as some old documents have their scope
        if found != value or type(found) is not type(value):
            yield f"{field} is {_format_value(found)}, and is looked for as {_format_value(value)}"
    for field in _TIMES:
        found = document.get(field)
        if found is not None and codec.moment(found) is None:
            yield f"{field} is no time: {_format_value(found)}"
    for field in _LISTS:
        found = document.get(field)
        if not isinstance(found, list | dict | None):  # old documents have a dict for a list
            yield f"{field} is no list: {_format_value(found)}"


def _format_value(value: Any) -> str:
    if value is None:
        return "not there"
    return (
        f"{value!r}" if isinstance(value, str | int | float) else f"{type(value).__name__} {value}"
    )
