"""Actors, results, audit entries with their seals, and history versions of changes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from edenmem.models.memory import NO_FIELDS, Fact, FactFields
from edenmem.models.scope import Scope


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """The author of changes: name, host, command and run."""

    name: str
    host: str
    command: str
    run_id: str | None = None


class ChangeStatus(StrEnum):
    """The status of a change."""

    APPLIED = "applied"
    ALREADY = "already"  # the change was applied before
    DUPLICATE = "duplicate"  # the scope already has the fact ``target_id``
    ADDED_INSTEAD = "added_instead"  # the target had changed, so ``or_add`` was inserted
    CONFLICT = "conflict"
    MISSING = "missing"


class ChangeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one change; ``detail`` explains a conflict."""

    change_id: str
    status: ChangeStatus
    target_id: str
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Check whether memory now has the state of the change."""
        return self.status not in (ChangeStatus.CONFLICT, ChangeStatus.MISSING)


#: The action of an entry that holds an unreadable document, which undo restores.
SET_ASIDE = "set_aside"


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a change. ``before`` and ``after`` are full documents without vectors.

    ``id`` is the ID of the change, ``action`` its tag. ``agent_id`` is "" for user accounts.
    ``undoes`` is the ID of the entry that this change undid. ``place`` orders the entries of one
    set, which have the same time.
    """

    id: str
    change_set_id: str
    at: datetime
    actor: Actor
    action: str
    target_type: str
    target_id: str
    agent_id: str
    scope: Scope | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    reason: str = ""
    status: str = "done"
    undoes: str | None = None
    place: int = 0

    @property
    def released_ids(self) -> tuple[str, ...]:
        """Return the reflections that this change returned to a buffer, in order."""
        before = set(_buffer(self.before))
        return tuple(each for each in _buffer(self.after) if each not in before)


def _buffer(document: dict[str, Any] | None) -> list[str]:
    return msgspec.convert((document or {}).get("unabsorbed_ids", []), list[str])


class StoredEntry(AuditEntry, frozen=True, kw_only=True):
    """An audit entry as the log stores it.

    ``salts`` are the random keys of the hashes in a seal, by field (see `values`): without its salt
    a short value cannot be guessed from its hash. An erasure that empties a field removes the salt
    too, and leaves its mark in ``erased``: "content/RUN", which includes users and reason, or
    "users/RUN".
    """

    salts: dict[str, str] = {}
    erased: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the documents, which other programs may have written."""
        if not all(isinstance(each, dict | None) for each in (self.before, self.after)):
            raise ValueError("'before' or 'after' is not a document")

    @property
    def values(self) -> dict[str, Any]:
        """Return the values that an erasure may empty, by field; empty ones are left out."""
        documents = (self.before, self.after)
        scope = self.scope.key if self.scope is not None else ""
        found: dict[str, Any] = {
            "actor": msgspec.to_builtins(self.actor),
            "target": [self.target_type, self.target_id, self.agent_id, scope],
            "content": [
                each and {name: each[name] for name in each if name != "related_users"}
                for each in documents
            ],
            "users": [_users(each) for each in documents],
            "reason": self.reason,
        }
        return {name: found[name] for name in filled_fields(self)}


def content_mark(run_id: str) -> str:
    """Return the mark of an erasure that emptied an entry."""
    return f"content/{run_id}"


def users_mark(run_id: str) -> str:
    """Return the mark of an erasure that emptied an entry's lists of related users."""
    return f"users/{run_id}"


def filled_fields(entry: AuditEntry) -> Iterator[str]:
    """Yield the names of `StoredEntry.values`."""
    yield from ("actor", "target")
    if entry.before is not None or entry.after is not None:
        yield "content"
    if _users(entry.before) or _users(entry.after):
        yield "users"
    if entry.reason:
        yield "reason"


def salts_of(entry: AuditEntry) -> dict[str, str]:
    """Return the salts of an entry that is to be stored; those of a backup stay."""
    known = entry.salts if isinstance(entry, StoredEntry) else {}
    random = os.urandom(12 * _FIELDS).hex()  # one call: each takes as long as the rest
    places = enumerate(filled_fields(entry))
    return {name: known.get(name) or random[24 * n : 24 * n + 24] for n, name in places}


#: Maximum number of `filled_fields`.
_FIELDS = 5


def _users(document: dict[str, Any] | None) -> list[Any]:
    return document.get("related_users") or [] if document else []


class SealedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry in a seal: the hash of the whole, and those of its erasable fields."""

    id: str
    leaf: str
    fields: dict[str, str]


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """A seal over entries of the log.

    ``root`` is the root of a Merkle tree over the entries, ``previous`` the hash of the seal
    before, and ``hash`` that of this one without its entries; see `edenmem.engine.seals.hashes`.
    """

    number: int
    at: datetime
    root: str
    previous: str
    hash: str
    entries: tuple[SealedEntry, ...]


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a fact or consolidated text.

    ``at`` is the creation time of the version, ``action`` its cause: "form", "add", "consolidate",
    "edit", "restore", "migrate", or "delete" for the tombstone of a fact. The ``snapshot`` of a
    tombstone is the full fact (JSON of `Fact`, with its vector) for a lossless restore. ``fields``
    are those of a fact. An empty ``content`` means that the text was removed.
    """

    id: str
    target_type: str
    target_id: str
    scope: Scope
    version: int
    content: str
    at: datetime
    action: str
    actor: str = ""
    change_id: str | None = None
    absorbed_ids: tuple[str, ...] = ()
    fields: FactFields = NO_FIELDS
    snapshot: Fact | None = None
