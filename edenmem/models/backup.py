"""Records of a backup, one for each document of any store.

Buffers have no records, since they follow from the flags of reflections. Neither have cached
contexts and indexes, which can be rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

import msgspec

from edenmem.models.changes import HistoryEntry
from edenmem.models.forgetting import Traces
from edenmem.models.formation import Formation, UsageEntry
from edenmem.models.host import Agent, Message, Session, User
from edenmem.models.ids import derived_id
from edenmem.models.memory import (
    POLICY_FIELDS,
    Consolidation,
    Fact,
    FactFields,
    Held,
    Policy,
    Reflection,
)
from edenmem.models.records import StoredEntry
from edenmem.models.scope import ScopeKind


class RecordKind(StrEnum):
    """Kinds of records in their order of writing; referenced records come first."""

    AGENT = "agent"
    USER = "user"
    SESSION = "session"
    MESSAGE = "message"
    POLICY = "policy"
    CONSOLIDATION = "consolidation"
    REFLECTION = "reflection"
    FACT = "fact"
    HELD = "held"
    FORMATION = "formation"
    USAGE = "usage"
    AUDIT = "audit"
    HISTORY = "history"


class StoredAgent(Agent, frozen=True, kw_only=True):
    """A stored agent, possibly deleted."""

    deleted: bool = False


class StoredUser(User, frozen=True, kw_only=True):
    """A stored account, possibly deleted."""

    deleted: bool = False


class StoredSession(Session, frozen=True, kw_only=True):
    """A session with the platform's formation cursor of its first agent."""

    last_memory_message_id: str | None = None


class StoredMessage(Message, frozen=True, kw_only=True):
    """A stored message; ``forgotten`` keeps its words out of the search by source messages."""

    forgotten: bool = False


class StoredVersion(HistoryEntry, frozen=True, kw_only=True):
    """A version with ``life``, the number of earlier restores of its fact."""

    life: int = 0

    @property
    def place(self) -> tuple[int, int, bool]:
        """Return the sort key among the versions of the target; tombstones end a life."""
        return self.version, self.life, self.action == TOMBSTONE


Record = (
    StoredAgent
    | StoredUser
    | StoredSession
    | Message
    | Policy
    | Consolidation
    | Reflection
    | Fact
    | Held
    | Formation
    | UsageEntry
    | StoredEntry
    | StoredVersion
)

#: Types of records by kind.
RECORD_TYPES: dict[RecordKind, type[msgspec.Struct]] = {
    RecordKind.AGENT: StoredAgent,
    RecordKind.USER: StoredUser,
    RecordKind.SESSION: StoredSession,
    RecordKind.MESSAGE: StoredMessage,
    RecordKind.POLICY: Policy,
    RecordKind.CONSOLIDATION: Consolidation,
    RecordKind.REFLECTION: Reflection,
    RecordKind.FACT: Fact,
    RecordKind.HELD: Held,
    RecordKind.FORMATION: Formation,
    RecordKind.USAGE: UsageEntry,
    RecordKind.AUDIT: StoredEntry,
    RecordKind.HISTORY: StoredVersion,
}

#: Kinds that belong to one scope.
OF_SCOPES = frozenset(
    {
        RecordKind.POLICY,
        RecordKind.CONSOLIDATION,
        RecordKind.REFLECTION,
        RecordKind.FACT,
        RecordKind.HELD,
        RecordKind.AUDIT,
        RecordKind.HISTORY,
    }
)

#: The action of a removed fact's last version.
TOMBSTONE = "delete"


def version_id(target_type: str, target_id: str, place: tuple[int, int, bool]) -> str:
    """Return the ID of a version in a backup, the same on every store."""
    version, life, is_tombstone = place
    end = (TOMBSTONE,) if is_tombstone else ()
    return derived_id("history", target_type, target_id, str(version), str(life), *end)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of records; empty fields match everything.

    ``agent_ids``: records of these agents. ``user_ids``: memory in scopes of these accounts.
    ``kinds``: memory in scopes of these kinds. ``account_ids``: these accounts. ``member_ids``:
    sessions with one of these accounts. ``since``: records created or changed at or after this
    time. ``traces``: facts, reflections and texts in the scopes of the traces, and facts and
    reflections from their sources.
    """

    agent_ids: tuple[str, ...] = ()
    user_ids: tuple[str, ...] | None = None
    kinds: tuple[ScopeKind, ...] = ()
    account_ids: tuple[str, ...] | None = None
    member_ids: tuple[str, ...] = ()
    since: datetime | None = None
    traces: Traces | None = None


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One stored document or row, readable or not.

    Attributes:
        kind: The kind of the record.
        id: The ID, if readable.
        agent_id: The agent of the memory, or empty.
        record: The decoded record, or None.
        fault: Reason of a failed decoding.
        oddities: Descriptions of values in a form that edenmem's queries do not match.
        raw: All its texts and IDs, if it cannot be decoded.
    """

    kind: RecordKind
    id: str
    agent_id: str = ""
    record: Record | None = None
    fault: str = ""
    oddities: tuple[str, ...] = ()
    raw: str = ""


class LoadStatus(StrEnum):
    """The result of loading one record, or its preview."""

    ADDED = "added"
    SAME = "same"  # exists with the same content
    DIFFERS = "differs"  # exists with different content; left unchanged
    KEPT = "kept"  # skipped, since it belongs to a record that differs
    REFUSED = "refused"  # rejected by the store


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of loading one record; ``stored`` is the existing record if it differs."""

    status: LoadStatus
    detail: str = ""
    stored: Record | None = None


#: Fields that must match for two records to be the same: no access counters, vectors, times or
#: version numbers.
DEFINING: dict[RecordKind, tuple[str, ...]] = {
    RecordKind.AGENT: (
        "username",
        "name",
        "persona",
        "user_memory_enabled",
        "agent_memory_enabled",
        "deleted",
    ),
    RecordKind.USER: ("username", "eden_user_id", "deleted"),
    RecordKind.SESSION: ("group_id", "name", "title", "incognito", "deleted"),
    RecordKind.MESSAGE: ("session_id", "role", "content", "created_at", "sender"),
    RecordKind.POLICY: ("home", *POLICY_FIELDS),
    RecordKind.CONSOLIDATION: ("home", "consolidated_content"),
    RecordKind.REFLECTION: ("home", "content", "absorbed", "private"),
    RecordKind.FACT: ("home", "content", "private", *FactFields.__struct_fields__),
    RecordKind.HELD: ("home", "kind", "content", "private"),
    RecordKind.FORMATION: ("session_id", "agent_id", "seq", "status", "message_ids"),
    RecordKind.USAGE: ("agent_id", "work", "calls"),
    RecordKind.AUDIT: ("action", "target_type", "target_id", "at"),
    RecordKind.HISTORY: ("target_type", "target_id", "scope", "version", "content"),
}


def differences(kind: RecordKind, stored: Record, given: Record) -> tuple[str, ...]:
    """Return the defining fields in which two records differ."""
    return tuple(
        name.replace("home", "scope")
        for name in DEFINING[kind]
        if getattr(stored, name) != getattr(given, name)
    )


def compare_records(kind: RecordKind, stored: Record, given: Record) -> LoadResult:
    """Return the result of loading a record whose ID exists."""
    fields = differences(kind, stored, given)
    if not fields:
        return LoadResult(status=LoadStatus.SAME)
    detail = f"stored with different {', '.join(fields)}"
    return LoadResult(status=LoadStatus.DIFFERS, detail=detail, stored=stored)


def forgotten_ids(records: Iterable[Record]) -> list[str]:
    """Return the IDs of the messages that a backup marks as forgotten."""
    return [each.id for each in records if isinstance(each, StoredMessage) and each.forgotten]
