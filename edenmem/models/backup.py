"""What a backup is made of: one record for each stored document, whatever store it is in.

Buffers are no records: a scope's buffer is its reflections that are not absorbed. Neither is what
can be made again, such as cached contexts and indexes.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from edenmem.models.changes import AuditEntry, HistoryEntry
from edenmem.models.forgetting import Traces
from edenmem.models.formation import Formation, UsageEntry
from edenmem.models.host import Agent, Message, Session, User
from edenmem.models.ids import derived_id
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import ScopeKind


class RecordKind(StrEnum):
    """The kinds of records, in the order in which they are written: what is named by others comes
    before them."""

    AGENT = "agent"
    USER = "user"
    SESSION = "session"
    MESSAGE = "message"
    POLICY = "policy"
    CONSOLIDATION = "consolidation"
    REFLECTION = "reflection"
    FACT = "fact"
    FORMATION = "formation"
    USAGE = "usage"
    AUDIT = "audit"
    HISTORY = "history"


class StoredAgent(Agent, frozen=True, kw_only=True):
    """An agent as it is stored, also a deleted one."""

    deleted: bool = False


class StoredUser(User, frozen=True, kw_only=True):
    """A person's account as it is stored, also a deleted one."""

    deleted: bool = False


class StoredSession(Session, frozen=True, kw_only=True):
    """A session with the platform's own note of how far its first agent has formed memory."""

    last_memory_message_id: str | None = None


class StoredVersion(HistoryEntry, frozen=True, kw_only=True):
    """A version with its place: ``life`` counts how often its fact was restored before it."""

    life: int = 0

    @property
    def place(self) -> tuple[int, int, bool]:
        """Where it stands among the versions of its target; a tombstone comes last of its life."""
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
    | Formation
    | UsageEntry
    | AuditEntry
    | StoredVersion
)

#: What the records of each kind are.
RECORD_TYPES: dict[RecordKind, type[msgspec.Struct]] = {
    RecordKind.AGENT: StoredAgent,
    RecordKind.USER: StoredUser,
    RecordKind.SESSION: StoredSession,
    RecordKind.MESSAGE: Message,
    RecordKind.POLICY: Policy,
    RecordKind.CONSOLIDATION: Consolidation,
    RecordKind.REFLECTION: Reflection,
    RecordKind.FACT: Fact,
    RecordKind.FORMATION: Formation,
    RecordKind.USAGE: UsageEntry,
    RecordKind.AUDIT: AuditEntry,
    RecordKind.HISTORY: StoredVersion,
}

#: The kinds that are memory of one scope.
OF_SCOPES = frozenset(
    {
        RecordKind.POLICY,
        RecordKind.CONSOLIDATION,
        RecordKind.REFLECTION,
        RecordKind.FACT,
        RecordKind.AUDIT,
        RecordKind.HISTORY,
    }
)

#: The action of a removed fact's last version.
TOMBSTONE = "delete"


def version_id(target_type: str, target_id: str, place: tuple[int, int, bool]) -> str:
    """The id of a version in a backup: the same on every store."""
    version, life, is_tombstone = place
    end = (TOMBSTONE,) if is_tombstone else ()
    return derived_id("history", target_type, target_id, str(version), str(life), *end)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are wanted; nothing named means all.

    ``agent_ids``: theirs. ``user_ids``: memory of these accounts' scopes. ``kinds``: memory of such
    scopes. ``account_ids``: these people's accounts. ``member_ids``: sessions that one of these
    accounts is in. ``since``: what was made or changed at or after this time. ``traces``: facts,
    reflections and texts of the traces' scopes, and facts and reflections from their sources.
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
        kind: What it is.
        id: Its id, as far as it has one that can be read.
        agent_id: Whose memory it is part of; empty where there is none.
        record: What it means; None for what cannot be decoded.
        fault: Why it cannot be decoded.
        oddities: In words, what is stored in another form than edenmem's queries look for.
        is_ownerless: Whether it is somebody else's document that belongs to no scope: nobody is
            shown it.
    """

    kind: RecordKind
    id: str
    agent_id: str = ""
    record: Record | None = None
    fault: str = ""
    oddities: tuple[str, ...] = ()
    is_ownerless: bool = False


class LoadStatus(StrEnum):
    """What became of one record, or, in a look beforehand, would."""

    ADDED = "added"
    SAME = "same"  # it is there, and says the same
    DIFFERS = "differs"  # it is there, and says something else; it was left as it is
    KEPT = "kept"  # it belongs to one that differs, and was left out with it
    REFUSED = "refused"  # the store cannot have it


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one record; ``stored`` is what was there, if it differs."""

    status: LoadStatus
    detail: str = ""
    stored: Record | None = None


#: What makes a record what it is. Counters of use, vectors and times are not in it, and neither is
#: the number of a version: what was edited there and back again says the same.
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
    RecordKind.POLICY: (
        "home",
        "memory_instructions",
        "consolidation_instructions",
        "consolidate_at",
        "word_limit",
        "fact_buffer_max",
        "fast_model",
        "slow_model",
        "active",
        "private",
        "propagate",
        "orders",
    ),
    RecordKind.CONSOLIDATION: ("home", "consolidated_content"),
    RecordKind.REFLECTION: ("home", "content", "absorbed", "private"),
    RecordKind.FACT: ("home", "content", "private"),
    RecordKind.FORMATION: ("session_id", "agent_id", "seq", "status", "message_ids"),
    RecordKind.USAGE: ("agent_id", "work", "calls"),
    RecordKind.AUDIT: ("action", "target_type", "target_id", "at"),
    RecordKind.HISTORY: ("target_type", "target_id", "scope", "version", "content"),
}


def differences(kind: RecordKind, stored: Record, given: Record) -> tuple[str, ...]:
    """The fields in which two records of one thing say something else."""
    return tuple(
        name.replace("home", "scope")
        for name in DEFINING[kind]
        if getattr(stored, name) != getattr(given, name)
    )


def compare_records(kind: RecordKind, stored: Record, given: Record) -> LoadResult:
    """What becomes of a record whose place is taken."""
    fields = differences(kind, stored, given)
    if not fields:
        return LoadResult(status=LoadStatus.SAME)
    detail = f"another {', '.join(fields)} is stored"
    return LoadResult(status=LoadStatus.DIFFERS, detail=detail, stored=stored)
