"""Documents of v1's collections, and accounts of the host's, made of what a source has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from bson import json_util

from edenmem.models.ids import is_id
from edenmem.models.v1 import MEMORIES, SHARDS, USER_TEXTS
from edenmem.models.v1 import V1ProblemKind as Kind
from edenmem.models.v1_documents import (
    V1Account,
    V1Document,
    V1Memory,
    V1Read,
    V1Shard,
    V1UserText,
)
from edenmem.store.v1 import values
from edenmem.store.v1.values import Notes

#: Where hosts keep their users and agents.
ACCOUNTS = ("users3", "users", "agents")

_COMMON = {"_id", "agent_id", "agent_owner", "createdAt", "updatedAt", "created_at", "updated_at"}
_TEXT = _COMMON | {"content", "unabsorbed_memory_ids", "fully_formed_memory", "last_updated_at"}
_KNOWN = {
    MEMORIES: frozenset(
        _COMMON
        | {"source_session_id", "memory_type", "content", "source_message_ids", "related_users"}
        | {"shard_id"}
    ),
    USER_TEXTS: frozenset(_TEXT | {"user_id"}),
    SHARDS: frozenset(
        _TEXT
        | {"shard_name", "extraction_prompt", "is_active", "facts", "max_facts_per_shard"}
        | {"max_agent_memories_before_consolidation"}
    ),
}

#: Fields that tell which collection a document is of, if nothing else does.
_SIGNS = (("shard_name", SHARDS), ("memory_type", MEMORIES), ("unabsorbed_memory_ids", USER_TEXTS))

Raw = Mapping[str, Any]


def collection_of(raw: Raw) -> str | None:
    """The collection that a document must be of, judged by its fields."""
    return next((collection for field, collection in _SIGNS if field in raw), None)


def read(
    collection: str,
    raw: Raw,
    place: str,
    *,
    invalid_utf8: bool = False,
    canonical: Mapping[str, str] | None = None,
) -> V1Read:
    """The document of a collection; ``place`` names it if it has no id of its own.

    Args:
        collection: One of v1's, or one with accounts.
        raw: What was stored.
        place: Where it was found.
        invalid_utf8: Whether bytes in it had to be replaced.
        canonical: Account → canonical id, of people whose two differ.
    """
    notes = Notes()
    if invalid_utf8:
        notes.add(Kind.INVALID_UTF8, "holds bytes that are no UTF-8; they read as U+FFFD")
    document: V1Document | V1Account | None
    document_id = place
    try:
        document_id = values.identifier(raw.get("_id"), "_id", notes) or place
        build = _BUILDERS.get(collection)
        if build is None:
            document = _account(collection, raw, document_id)
        else:
            document = build(raw, document_id, notes, canonical or {})
    except RecursionError:  # MongoDB takes 100 levels: no server had this one
        document = None
        notes.found = [(Kind.UNREADABLE, "nested too deeply")]
    return V1Read(
        collection=collection, id=document_id, document=document, notes=tuple(notes.found)
    )


def _extra(collection: str, raw: Raw, notes: Notes, *more: str) -> str:
    names = raw.keys() - _KNOWN[collection]
    if not names and not more:
        return ""
    chosen = {name: raw[name] for name in sorted({*names, *more})}
    options = json_util.RELAXED_JSON_OPTIONS
    told = json_util.dumps(chosen, json_options=options, ensure_ascii=False)
    return values.readable(told, "an unknown field", notes)


def _first(raw: Raw, *fields: str) -> Any:
    for field in fields:
        if (value := raw.get(field)) is not None:
            return value
    return None


def _times(raw: Raw, document_id: str, notes: Notes) -> tuple[datetime, datetime | None]:
    updated = values.moment(_first(raw, "updatedAt", "updated_at"), "updatedAt", notes)
    created = values.moment(_first(raw, "createdAt", "created_at"), "createdAt", notes)
    if created is not None:
        return created, updated
    last = values.moment(raw.get("last_updated_at"), "last_updated_at", notes)
    by_id = values.read_creation_time(document_id)
    found = by_id or updated or last
    whence = "the id" if by_id else "another time of it" if found else "nothing: 1970"
    notes.add(Kind.TIME_MISSING, f"createdAt is missing; taken from {whence}")
    return found or values.EPOCH, updated


def _memory(raw: Raw, document_id: str, notes: Notes, canonical: Mapping[str, str]) -> V1Memory:
    get = raw.get
    created, updated = _times(raw, document_id, notes)
    memory_type = get("memory_type")
    people = values.identifiers(get("related_users"), "related_users", notes)
    if canonical:
        people = tuple(dict.fromkeys(canonical.get(person, person) for person in people))
    return V1Memory(
        id=document_id,
        agent_id=values.owner(get("agent_id"), "agent_id", notes),
        created_at=created,
        updated_at=updated,
        extra=_extra(MEMORIES, raw, notes),
        memory_type=values.readable(memory_type.strip().lower(), "memory_type", notes)
        if isinstance(memory_type, str)
        else "",
        content=values.text(get("content"), "content", notes),
        session_id=values.owner(get("source_session_id"), "source_session_id", notes),
        message_ids=values.identifiers(get("source_message_ids"), "source_message_ids", notes),
        users=people,
        shard_id=values.owner(get("shard_id"), "shard_id", notes),
    )


def _user_text(
    raw: Raw, document_id: str, notes: Notes, canonical: Mapping[str, str]
) -> V1UserText:
    created, updated = _times(raw, document_id, notes)
    content = values.text(raw.get("content"), "content", notes)
    user_id = values.owner(raw.get("user_id"), "user_id", notes)
    return V1UserText(
        id=document_id,
        agent_id=values.owner(raw.get("agent_id"), "agent_id", notes),
        created_at=created,
        updated_at=updated,
        extra=_extra(USER_TEXTS, raw, notes, *_only_copy(raw, content)),
        user_id=canonical.get(user_id, user_id),
        content=content,
        pending=values.identifiers(
            raw.get("unabsorbed_memory_ids"), "unabsorbed_memory_ids", notes
        ),
        last_updated_at=values.moment(raw.get("last_updated_at"), "last_updated_at", notes),
    )


def _shard(raw: Raw, document_id: str, notes: Notes, canonical: Mapping[str, str]) -> V1Shard:
    created, updated = _times(raw, document_id, notes)
    content = values.text(raw.get("content"), "content", notes)
    if not isinstance(raw.get("is_active"), bool):
        notes.add(Kind.WRONG_SHAPE, "is_active is not true or false: v1 took the shard as inactive")
    return V1Shard(
        id=document_id,
        agent_id=values.owner(raw.get("agent_id"), "agent_id", notes),
        created_at=created,
        updated_at=updated,
        extra=_extra(SHARDS, raw, notes, *_only_copy(raw, content)),
        name=values.text(raw.get("shard_name"), "shard_name", notes),
        instructions=values.text(raw.get("extraction_prompt"), "extraction_prompt", notes),
        active=raw.get("is_active") is True,
        content=content,
        pending=values.identifiers(
            raw.get("unabsorbed_memory_ids"), "unabsorbed_memory_ids", notes
        ),
        facts=values.identifiers(raw.get("facts"), "facts", notes),
        last_updated_at=values.moment(raw.get("last_updated_at"), "last_updated_at", notes),
        max_facts=values.number(raw.get("max_facts_per_shard"), "max_facts_per_shard", notes),
        max_pending=values.number(
            raw.get("max_agent_memories_before_consolidation"),
            "max_agent_memories_before_consolidation",
            notes,
        ),
    )


def _only_copy(raw: Raw, content: str) -> tuple[str, ...]:
    """The assembled text repeats the others, unless the text itself is gone."""
    return ("fully_formed_memory",) if raw.get("fully_formed_memory") and not content else ()


def _account(collection: str, raw: Raw, document_id: str) -> V1Account | None:
    unheard = Notes()  # what is wrong with accounts is the host's affair
    if not is_id(document_id):
        return None
    return V1Account(
        id=document_id,
        memory_id=values.owner(raw.get("eden_user_id"), "eden_user_id", unheard) or document_id,
        is_agent=raw.get("type", collection.rstrip("s")) == "agent",
        username=values.text(raw.get("username"), "username", unheard),
        name=values.text(raw.get("name"), "name", unheard),
        owner=values.owner(raw.get("owner"), "owner", unheard),
        deleted=values.flag(raw.get("deleted"), "deleted", unheard, default=False),
        user_memory_enabled=raw.get("user_memory_enabled") == 1,
    )


_BUILDERS: dict[str, Callable[[Raw, str, Notes, Mapping[str, str]], V1Document]] = {
    MEMORIES: _memory,
    USER_TEXTS: _user_text,
    SHARDS: _shard,
}
