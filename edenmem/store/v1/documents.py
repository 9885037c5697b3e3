"""Convert raw documents of v1's collections, and the host's accounts, to models."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from bson import json_util

from edenmem.models.ids import is_id
from edenmem.models.v1 import (
    MEMORIES,
    SHARDS,
    USER_TEXTS,
    V1_COLLECTIONS,
    V1Account,
    V1DamageKind,
    V1Document,
    V1Memory,
    V1Read,
    V1Shard,
    V1UserText,
)
from edenmem.models.v1 import V1ProblemKind as Kind
from edenmem.store.v1 import values
from edenmem.store.v1.values import Notes

#: Collections of users and agents on hosts.
ACCOUNTS = ("users3", "users", "agents")

#: Names of collections until July 2025.
OLDER_COLLECTIONS = {"session_memories": MEMORIES, "agent_memories": SHARDS}

_COMMON = {"_id", "agent_id", "agent_owner", "createdAt", "updatedAt", "created_at", "updated_at"}
_TEXT = _COMMON | {"content", "unabsorbed_memory_ids", "fully_formed_memory", "last_updated_at"}
#: Former names of fields; v1 never moved their content to the new fields.
_OLDER = {
    "unabsorbed_memory_ids": "unabsorbed_directive_ids",
    "facts": "relevant_facts",
    "fully_formed_memory": "fully_formed_memory_shard",
}
#: Lists of memories.
_LISTS = ("unabsorbed_memory_ids", "unabsorbed_directive_ids", "facts", "relevant_facts")
_KNOWN = {
    MEMORIES: frozenset(
        _COMMON
        | {"source_session_id", "memory_type", "content", "source_message_ids", "related_users"}
        | {"shard_id"}
    ),
    USER_TEXTS: frozenset(_TEXT | {"user_id", "unabsorbed_directive_ids"}),
    SHARDS: frozenset(
        _TEXT
        | {"shard_name", "extraction_prompt", "is_active", "facts", "max_facts_per_shard"}
        | {"max_agent_memories_before_consolidation", "relevant_facts", "fully_formed_memory_shard"}
    ),
}

#: Fields that identify the collection of a document.
_SIGNS = (
    ("shard_name", SHARDS),
    ("memory_type", MEMORIES),
    ("unabsorbed_memory_ids", USER_TEXTS),
    ("unabsorbed_directive_ids", USER_TEXTS),
)

#: Fields that are lost if they have the wrong type.
_VITAL = frozenset({"agent_id", "user_id", "memory_type", "content"})

_VERSION_LINE = re.compile(r"\s*VERSION:\s*\d{1,9}[^\S\n]*(?:\n|\Z)", re.IGNORECASE)

Raw = Mapping[str, Any]
#: Account → canonical ID of the user.
Canonical = Callable[[str], str]


def collection_of(name: str | None, raw: Raw) -> str | None:
    """Return the collection of a document: by its name, else by its fields.

    ``agent_memories`` may have held more than shards.
    """
    if name in V1_COLLECTIONS:
        return name
    signs = (collection for field, collection in _SIGNS if field in raw)
    return next(signs, OLDER_COLLECTIONS.get(name or ""))


def read(
    collection: str,
    raw: Raw,
    place: str,
    *,
    invalid_utf8: bool = False,
    canonical: Canonical = str,
) -> V1Read:
    """Convert a document of a collection; ``place`` names it if it has no ID.

    Args:
        collection: A v1 collection.
        raw: The stored document.
        place: Its position in the input.
        invalid_utf8: Whether invalid bytes were replaced.
        canonical: Account → canonical ID.
    """
    notes = Notes()
    if invalid_utf8:
        notes.add(Kind.INVALID_UTF8, "contains bytes that are not UTF-8, replaced by U+FFFD")
    document: V1Document | None = None
    document_id = place
    try:
        document_id = values.identifier(raw.get("_id"), "_id", notes) or place
        document = _BUILDERS[collection](raw, document_id, notes, canonical)
    except RecursionError:  # MongoDB's limit is 100 levels
        notes.found = [(Kind.UNREADABLE, "nested too deeply")]
    return V1Read(
        collection=collection,
        id=document_id,
        document=document,
        notes=tuple(notes.found),
        damage=_damage(document, notes),
    )


def _damage(document: V1Document | None, notes: Notes) -> V1DamageKind | None:
    if document is None:
        return V1DamageKind.UNREADABLE
    if notes.wrong & _VITAL:
        return V1DamageKind.WRONG_TYPE
    if notes.found and any(kind is Kind.INVALID_UTF8 for kind, _ in notes.found):
        return V1DamageKind.INVALID_UTF8
    return None


def _extra(collection: str, raw: Raw, notes: Notes, *more: str) -> str:
    """Return unknown fields, fields to keep, and other entries than IDs in lists of memories."""
    left = {name: found for name, found in notes.left.items() if name in _LISTS}
    if not more and not left and _KNOWN[collection].issuperset(raw):
        return ""
    names = {*(raw.keys() - _KNOWN[collection]), *more}
    chosen = {name: raw[name] for name in sorted(names)} | left
    options = json_util.RELAXED_JSON_OPTIONS
    text = json_util.dumps(chosen, json_options=options, ensure_ascii=False)
    return values.readable(text, "an unknown field", notes)


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
    origin = "the id" if by_id else "another time" if found else "nothing: 1970"
    notes.add(Kind.TIME_MISSING, f"createdAt is missing; taken from {origin}")
    return found or values.EPOCH, updated


def _memory(raw: Raw, document_id: str, notes: Notes, canonical: Canonical) -> V1Memory:
    get = raw.get
    created, updated = _times(raw, document_id, notes)
    memory_type = get("memory_type")
    if memory_type is not None and not isinstance(memory_type, str):
        notes.wrong.add("memory_type")
    # An unknown user still counts: without one, the memory would be public.
    people = values.identifiers(get("related_users"), "related_users", notes, other="?")
    people = tuple(dict.fromkeys(map(canonical, people)))
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
        message_ids=values.message_ids(get("source_message_ids"), "source_message_ids", notes),
        users=people,
        shard_id=values.owner(get("shard_id"), "shard_id", notes),
    )


def _user_text(raw: Raw, document_id: str, notes: Notes, canonical: Canonical) -> V1UserText:
    created, updated = _times(raw, document_id, notes)
    content, assembled, more = _texts(raw, notes)
    user_id = values.owner(raw.get("user_id"), "user_id", notes)
    agent_id = values.owner(raw.get("agent_id"), "agent_id", notes)
    pending = _list(raw, "unabsorbed_memory_ids", notes)
    return V1UserText(
        id=document_id,
        agent_id=agent_id,
        created_at=created,
        updated_at=updated,
        extra=_extra(USER_TEXTS, raw, notes, *more),
        user_id=canonical(user_id) if user_id else "",
        content=content,
        assembled=assembled,
        pending=pending,
        last_updated_at=values.moment(raw.get("last_updated_at"), "last_updated_at", notes),
    )


def _shard(raw: Raw, document_id: str, notes: Notes, canonical: Canonical) -> V1Shard:
    created, updated = _times(raw, document_id, notes)
    content, assembled, more = _texts(raw, notes)
    if not isinstance(raw.get("is_active"), bool):
        notes.add(Kind.WRONG_SHAPE, "is_active is not true or false: v1 took the shard as inactive")
    agent_id = values.owner(raw.get("agent_id"), "agent_id", notes)
    pending = _list(raw, "unabsorbed_memory_ids", notes)
    facts = _list(raw, "facts", notes)
    return V1Shard(
        id=document_id,
        agent_id=agent_id,
        created_at=created,
        updated_at=updated,
        extra=_extra(SHARDS, raw, notes, *more),
        name=values.text(raw.get("shard_name"), "shard_name", notes),
        instructions=values.text(raw.get("extraction_prompt"), "extraction_prompt", notes),
        active=raw.get("is_active") is True,
        content=content,
        assembled=assembled,
        pending=pending,
        facts=facts,
        last_updated_at=values.moment(raw.get("last_updated_at"), "last_updated_at", notes),
        max_facts=values.number(raw.get("max_facts_per_shard"), "max_facts_per_shard", notes),
        max_pending=values.number(
            raw.get("max_agent_memories_before_consolidation"),
            "max_agent_memories_before_consolidation",
            notes,
        ),
    )


def _list(raw: Raw, field: str, notes: Notes) -> tuple[str, ...]:
    """Return the IDs of a list under its former name, then those only under its current name."""
    older = values.identifiers(raw.get(_OLDER[field]), _OLDER[field], notes)
    found = values.identifiers(raw.get(field), field, notes)
    if not older:
        return found
    known = set(older)
    return older + tuple([each for each in found if each not in known])


def _texts(raw: Raw, notes: Notes) -> tuple[str, str, tuple[str, ...]]:
    """Return the text, v1's assembled text if there is no other, and fields to keep in history.

    A field is kept if it holds a text that the document's own text does not contain.
    """
    content = values.without_word_count(values.text(raw.get("content"), "content", notes))
    field = next(
        (name for name in ("fully_formed_memory", _OLDER["fully_formed_memory"]) if raw.get(name)),
        None,
    )
    if field is None:
        return content, "", ()
    assembled = values.without_word_count(values.text(raw[field], field, notes))
    plain = _VERSION_LINE.sub("", content, count=1).strip()
    if not plain:
        return content, assembled, ()
    return content, "", () if plain in assembled else (field,)


def read_account(collection: str, raw: Raw) -> V1Account | None:
    """Convert an account of the host; None without a valid ID."""
    ignored = Notes()  # damage of accounts concerns the host
    own = values.identifier(raw.get("_id"), "_id", ignored)
    if not is_id(own):
        return None
    linked = values.owner(raw.get("eden_user_id"), "eden_user_id", ignored)
    return V1Account(
        id=own,
        is_agent=raw.get("type", collection.rstrip("s")) == "agent",
        known=raw.get("deleted") not in (True, 1),
        username=values.text(raw.get("username"), "username", ignored),
        name=values.text(raw.get("name"), "name", ignored),
        owner=values.owner(raw.get("owner"), "owner", ignored),
        eden_user_id=linked if linked != own else "",
        persona=values.text(raw.get("persona"), "persona", ignored),
        user_memory_enabled=raw.get("user_memory_enabled") == 1,
    )


_BUILDERS: dict[str, Callable[[Raw, str, Notes, Canonical], V1Document]] = {
    MEMORIES: _memory,
    USER_TEXTS: _user_text,
    SHARDS: _shard,
}
