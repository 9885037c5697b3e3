"""Changes, the only way to modify memory.

Edits, formations, consolidations, migrations, undos and repairs all send a `ChangeSet` to the
store. Each change has an ID, the scope of its target, and the expected version. The store rejects a
change if the version differs, ignores a change that was already applied, and writes one audit entry
with the ID of the change. A recorded set can therefore be applied repeatedly.

Every kind of change has an inverse (see `edenmem.engine.history.undo`): additions are removed,
removals are added with the same ID, and earlier texts and policies are written as new versions.
Version numbers never decrease, so that a version always means the same text.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import datetime
from functools import lru_cache
from itertools import takewhile

import msgspec

from edenmem.models.host import Agent, User
from edenmem.models.ids import derived_id, new_id
from edenmem.models.memory import (
    Fact,
    FactFields,
    FactTimes,
    FixedSentence,
    Held,
    Policy,
    Reflection,
    content_hash,
    join_times,
)
from edenmem.models.records import Actor as Actor
from edenmem.models.records import AuditEntry as AuditEntry
from edenmem.models.records import ChangeResult as ChangeResult
from edenmem.models.records import ChangeStatus as ChangeStatus
from edenmem.models.records import HistoryEntry as HistoryEntry
from edenmem.models.scope import Scope


class _Change(msgspec.Struct, frozen=True, kw_only=True, tag_field="op"):
    """Base class of changes, with an ID (also of the audit entry) and a reason.

    ``undoes`` is the ID of the audit entry that this change undoes, if any.
    """

    id: str = msgspec.field(default_factory=new_id)
    reason: str = ""
    undoes: str | None = None


class AddFact(_Change, frozen=True, kw_only=True, tag="add_fact"):
    """Insert ``fact``, unless the scope has a fact with the same hash (duplicate).

    A duplicate that expires earlier lasts as long as ``fact`` from then on. A key that another fact
    of the scope has is a conflict. The ID of a removed fact restores it, with its history.
    """

    fact: Fact


def _joined(ids: Sequence[str], more: Sequence[str], dropped: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct ``ids`` and ``more`` without ``dropped``."""
    gone = frozenset(dropped)
    return tuple(each for each in dict.fromkeys((*ids, *more)) if each not in gone)


class ReviseFact(_Change, frozen=True, kw_only=True, tag="revise_fact"):
    """Replace the text and vector of a fact; the old text goes to the history.

    If the fact was removed, or its version differs from ``expected_version``, ``or_add`` is
    inserted instead (so that a formation loses nothing); without it, the change is a conflict. If
    another fact of the scope already has the new text, the target is removed in its favor.

    ``source_message_ids`` are added to the sources, ``dropped_source_ids`` removed; related users
    likewise. A revision with the same text keeps the vector, and the quote unless there is a new
    one. ``unconfirmed`` is that of the revised fact; None keeps it with the text, and the quote.

    ``times`` are those of the revised fact. A revision without them is an edit: its own time counts
    as that of the fact. ``fields`` are those of the revised fact; None keeps the old ones. A key
    that another fact of the scope has is a conflict.
    """

    scope: Scope
    fact_id: str
    expected_version: int
    content: str
    at: datetime
    embedding: bytes | None = None
    embedding_model: str | None = None
    source_message_ids: tuple[str, ...] = ()
    dropped_source_ids: tuple[str, ...] = ()
    related_users: tuple[str, ...] = ()
    dropped_users: tuple[str, ...] = ()
    quote: str = ""
    unconfirmed: str | None = None
    times: FactTimes | None = None
    fields: FactFields | None = None
    or_add: Fact | None = None

    def revise(self, fact: Fact) -> Fact:
        """Return the revised fact."""
        is_same = content_hash(self.content, fact.key) == fact.hash
        embedding, model = self.embedding, self.embedding_model if self.embedding else None
        if embedding is None and is_same:
            embedding, model = fact.embedding, fact.embedding_model
        is_kept = is_same and not self.quote
        sources = _joined(fact.source_message_ids, self.source_message_ids, self.dropped_source_ids)
        times = self.times or join_times([fact.said_at], [self.at])
        unconfirmed = self.unconfirmed
        if unconfirmed is None:
            unconfirmed = fact.unconfirmed if is_kept else ""
        revised = msgspec.structs.replace(
            fact,
            content=self.content,
            previous_content=fact.previous_content if is_same else fact.content,
            updated_at=self.at,
            said_at=times.said_at,
            edited_at=times.edited_at,
            version=fact.version + 1,
            source_message_ids=sources,
            related_users=_joined(fact.related_users, self.related_users, self.dropped_users),
            quote=fact.quote if is_kept else self.quote,
            unconfirmed=unconfirmed,
            embedding=embedding,
            embedding_model=model,
        )
        return revised.with_fields(self.fields or fact.fields)


#: The reason of removing a fact that has expired.
EXPIRED = "expired"

_MERGED_INTO = "merged into "


def merge_reason(fact_id: str) -> str:
    """Return the reason of removing a fact that was merged into another one."""
    return f"{_MERGED_INTO}{fact_id}"


def merged_into(reason: str) -> str | None:
    """Return the fact of a `merge_reason`, or None for another reason."""
    return reason.removeprefix(_MERGED_INTO) if reason.startswith(_MERGED_INTO) else None


class RemoveFact(_Change, frozen=True, kw_only=True, tag="remove_fact"):
    """Remove a fact; the history keeps all of it, with its vector."""

    scope: Scope
    fact_id: str
    expected_version: int
    at: datetime

    @classmethod
    def of(cls, fact: Fact, at: datetime, reason: str) -> RemoveFact:
        """Return the removal of a fact as it is now."""
        return cls(
            scope=fact.home,
            fact_id=fact.id,
            expected_version=fact.version,
            at=at,
            reason=reason,
        )


class SetPrivacy(_Change, frozen=True, kw_only=True, tag="set_privacy"):
    """Set or clear the private mark of a fact or reflection. The version does not change."""

    scope: Scope
    target_type: str
    target_id: str
    private: bool
    at: datetime


class AddReflection(_Change, frozen=True, kw_only=True, tag="add_reflection"):
    """Insert ``reflection``, at the end of its scope's buffer unless absorbed.

    ``word_limit`` is set if this creates the consolidated document.
    """

    reflection: Reflection
    word_limit: int


class ReviseReflection(_Change, frozen=True, kw_only=True, tag="revise_reflection"):
    """Replace the text of a pending reflection; an absorbed one is a conflict.

    ``unconfirmed`` is that of the revised reflection; None keeps it with the text.
    """

    scope: Scope
    reflection_id: str
    expected_version: int
    content: str
    at: datetime
    unconfirmed: str | None = None


class RemoveReflection(_Change, frozen=True, kw_only=True, tag="remove_reflection"):
    """Remove a reflection, also from its buffer; the audit entry keeps all of it."""

    scope: Scope
    reflection_id: str
    expected_version: int
    at: datetime

    @classmethod
    def of(cls, reflection: Reflection, at: datetime, reason: str) -> RemoveReflection:
        """Return the removal of a reflection as it is now."""
        return cls(
            scope=reflection.home,
            reflection_id=reflection.id,
            expected_version=reflection.version,
            at=at,
            reason=reason,
        )


class RestoreReflection(_Change, frozen=True, kw_only=True, tag="restore_reflection"):
    """Restore a removed reflection with its ID, in its scope's buffer by time unless absorbed.

    ``reflection.version`` is one more than the removed version, so that changes based on the
    removed reflection conflict. ``word_limit`` as for `AddReflection`.
    """

    reflection: Reflection
    word_limit: int


class HoldItem(_Change, frozen=True, kw_only=True, tag="hold_item"):
    """Keep ``held`` for review, outside of memory."""

    held: Held


class RemoveHeld(_Change, frozen=True, kw_only=True, tag="remove_held"):
    """Remove a held item; the audit entry keeps all of it."""

    scope: Scope
    held_id: str


def held_change_id(change_id: str) -> str:
    """Return the ID of the `RemoveHeld` in the set of a change that accepts a held item.

    The log finds one by the other, so that they are undone together.
    """
    return derived_id("accepts", change_id)


class WriteConsolidation(_Change, frozen=True, kw_only=True, tag="write_consolidation"):
    """Write the text of a scope as version ``expected_version + 1``, in one atomic step.

    A greater ``as_version`` is used instead, so that a migrated text keeps its number. The step
    also removes ``absorbed_ids`` from the buffer, marks these reflections as absorbed, and keeps
    the replaced version in the history. ``expected_version`` is 0 without a text. With
    ``propagate`` the new version is marked for propagation (see
    `edenmem.models.memory.Consolidation.unpropagated_versions`). ``fixed`` replaces the fixed
    sentences; None keeps them.
    """

    scope: Scope
    expected_version: int
    content: str
    word_limit: int
    at: datetime
    absorbed_ids: tuple[str, ...] = ()
    propagate: bool = False
    as_version: int = 0
    fixed: tuple[FixedSentence, ...] | None = None

    @property
    def next_version(self) -> int:
        """Return the number of the new version."""
        return max(self.expected_version + 1, self.as_version)


class RevertConsolidation(_Change, frozen=True, kw_only=True, tag="revert_consolidation"):
    """Undo versions of a scope's text, in one atomic step.

    The earlier text is written as version ``expected_version + 1``, and ``released_ids`` return to
    the buffer, sorted by time; they must be absorbed (else a conflict). Empty ``content`` means no
    text, as before the first version. ``reverted_versions`` are no longer marked for propagation.
    """

    scope: Scope
    expected_version: int
    content: str
    word_limit: int
    at: datetime
    released_ids: tuple[str, ...] = ()
    reverted_versions: tuple[int, ...] = ()
    fixed: tuple[FixedSentence, ...] = ()

    @property
    def next_version(self) -> int:
        """Return the number of the new version."""
        return self.expected_version + 1


class RepairBuffer(_Change, frozen=True, kw_only=True, tag="repair_buffer"):
    """Rebuild the scope's buffer from its reflections that are not absorbed, in order.

    The flags of the reflections are authoritative. A store that derives buffers from the flags
    recounts them. A correct buffer is left unchanged (ALREADY, no audit entry). This change has no
    inverse. ``word_limit`` is set if this creates the consolidated document.
    """

    scope: Scope
    at: datetime
    word_limit: int = 0


class WritePolicy(_Change, frozen=True, kw_only=True, tag="write_policy"):
    """Write the policy of ``policy.home``; the stored version must be ``expected_version``."""

    policy: Policy
    expected_version: int
    at: datetime


class RemovePolicy(_Change, frozen=True, kw_only=True, tag="remove_policy"):
    """Remove the policy of a scope, which restores the defaults of its kind.

    Without a policy, a shard no longer exists. Its memory stays, and a new policy makes it visible
    again.
    """

    scope: Scope
    expected_version: int
    at: datetime


class SetAgentToggles(_Change, frozen=True, kw_only=True, tag="set_agent_toggles"):
    """Switch an agent's user or agent memory on or off; None leaves a switch unchanged."""

    agent_id: str
    at: datetime
    user_memory_enabled: bool | None = None
    agent_memory_enabled: bool | None = None


class AddAgent(_Change, frozen=True, kw_only=True, tag="add_agent"):
    """Add an agent to the host. A taken ID or username is a conflict."""

    agent: Agent


class RemoveAgent(_Change, frozen=True, kw_only=True, tag="remove_agent"):
    """Remove an unused agent.

    Memory, a policy, a session or further fields of the host are a conflict.
    """

    agent_id: str


class AddUser(_Change, frozen=True, kw_only=True, tag="add_user"):
    """Add a user account to the host, like `AddAgent`."""

    user: User


class RemoveUser(_Change, frozen=True, kw_only=True, tag="remove_user"):
    """Remove an unused account, like `RemoveAgent`."""

    user_id: str


Change = (
    AddFact
    | ReviseFact
    | RemoveFact
    | SetPrivacy
    | AddReflection
    | ReviseReflection
    | RemoveReflection
    | RestoreReflection
    | HoldItem
    | RemoveHeld
    | WriteConsolidation
    | RevertConsolidation
    | RepairBuffer
    | WritePolicy
    | RemovePolicy
    | SetAgentToggles
    | AddAgent
    | RemoveAgent
    | AddUser
    | RemoveUser
)


class ChangeSet(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of one actor at one time.

    A conflict of one change does not affect the others, unless the set is ``whole``: then all or
    none are made (only for small sets). ``automatic`` marks earlier decisions of the engine: they
    are rejected for memory that was paused, switched off or removed with its agent since, which
    operators may still change.
    """

    id: str = msgspec.field(default_factory=new_id)
    actor: Actor
    at: datetime
    changes: tuple[Change, ...] = ()
    automatic: bool = False
    whole: bool = False

    def without(self, skip: Set[str]) -> ChangeSet:
        """Return the set without the changes with these IDs."""
        kept = tuple(change for change in self.changes if change.id not in skip)
        return msgspec.structs.replace(self, changes=kept)


#: History actions of all versions made by a command.
_BY_COMMAND = {
    "restore": "restore",
    "undo": "restore",
    "migrate rollback": "restore",
    "migrate": "migrate",
    "consolidate": "consolidate",
}


@lru_cache(maxsize=64)
def action_of_command(command: str) -> str | None:
    """Return the history action of a command, or None if it depends on the change.

    Options and arguments are ignored: an agent may be named "restore".
    """
    words = " ".join(takewhile(lambda word: word.isalnum(), command.split()))
    return next(
        (action for each, action in _BY_COMMAND.items() if f" {each} " in f" {words} "), None
    )


def action_of_new_fact(fact: Fact) -> str:
    """Return the history action of the first version of a fact, by its origin."""
    return "form" if fact.formation_id else "add"


def version_action(change: Change, actor: Actor) -> str:
    """Return the history action of a change (see `HistoryEntry.action`)."""
    match change:
        case RevertConsolidation():
            return "restore"
        case _ if by_command := action_of_command(actor.command):
            return by_command
        case AddFact(fact=fact) | ReviseFact(or_add=Fact() as fact):
            return action_of_new_fact(fact)
        case WriteConsolidation(absorbed_ids=(_, *_)):
            return "consolidate"
    return "edit"
