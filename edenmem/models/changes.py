"""Changes: the one road by which memory is altered.

A person's edit, a formation, a consolidation, a migration, an undo and doctor's repairs all hand
the store a `ChangeSet`. Each change has an id of its own, names the scope that its target must
belong to, and says which version it was decided on; the store refuses it if that version is gone,
does nothing if the change was applied before, and writes one audit entry with the change's id.
So a set can be written down first and applied as often as needed.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from itertools import takewhile
from typing import Any

import msgspec

from edenmem.models.ids import new_id
from edenmem.models.memory import Fact, Policy, Reflection
from edenmem.models.scope import Scope


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """Who does it: a person's or engine's name, from which host, by which command, in which run."""

    name: str
    host: str
    command: str
    run_id: str | None = None


class _Change(msgspec.Struct, frozen=True, kw_only=True, tag_field="op"):
    """What all changes have: an id (also of the audit entry) and a reason in words."""

    id: str = msgspec.field(default_factory=new_id)
    reason: str = ""


class AddFact(_Change, frozen=True, kw_only=True, tag="add_fact"):
    """Insert ``fact``. A fact with the same hash in the same scope makes it a duplicate."""

    fact: Fact


class ReviseFact(_Change, frozen=True, kw_only=True, tag="revise_fact"):
    """Give a fact a new text and vector; the old text goes to history.

    If the fact is gone or not of ``expected_version`` any more, ``or_add`` is inserted instead
    (formation: nothing learned may be lost), or, without it, the change is a conflict. If another
    fact of the scope has the new text already, the target is removed in its favour.
    """

    scope: Scope
    fact_id: str
    expected_version: int
    content: str
    at: datetime
    embedding: bytes | None = None
    embedding_model: str | None = None
    source_message_ids: tuple[str, ...] = ()
    or_add: Fact | None = None


class RemoveFact(_Change, frozen=True, kw_only=True, tag="remove_fact"):
    """Take a fact away; the whole of it, with its vector, goes to history."""

    scope: Scope
    fact_id: str
    expected_version: int
    at: datetime


class SetPrivacy(_Change, frozen=True, kw_only=True, tag="set_privacy"):
    """Mark a fact or reflection as private, or no longer so. Its version stays."""

    scope: Scope
    target_type: str
    target_id: str
    private: bool
    at: datetime


class AddReflection(_Change, frozen=True, kw_only=True, tag="add_reflection"):
    """Insert ``reflection`` and, unless it is absorbed, put it at the end of its scope's buffer.

    ``word_limit`` is for the consolidated document, should the buffer be its first content.
    """

    reflection: Reflection
    word_limit: int


class ReviseReflection(_Change, frozen=True, kw_only=True, tag="revise_reflection"):
    """Give a pending reflection a new text. One that is absorbed meanwhile is a conflict."""

    scope: Scope
    reflection_id: str
    expected_version: int
    content: str
    at: datetime


class RemoveReflection(_Change, frozen=True, kw_only=True, tag="remove_reflection"):
    """Take a reflection away, from its buffer too; the audit entry keeps all of it."""

    scope: Scope
    reflection_id: str
    expected_version: int
    at: datetime


class WriteConsolidation(_Change, frozen=True, kw_only=True, tag="write_consolidation"):
    """Write the scope's text as version ``expected_version + 1``, in one atomic step.

    The step also takes exactly ``absorbed_ids`` out of the buffer, marks those reflections as
    absorbed, and keeps the replaced version in history. ``expected_version`` 0: there is no text.
    With ``propagate`` it also notes that the new version is still to be propagated (see
    `edenmem.models.memory.Consolidation.unpropagated_versions`).
    """

    scope: Scope
    expected_version: int
    content: str
    word_limit: int
    at: datetime
    absorbed_ids: tuple[str, ...] = ()
    propagate: bool = False


class WritePolicy(_Change, frozen=True, kw_only=True, tag="write_policy"):
    """Write the policy of ``policy.home``; the stored version must be ``expected_version``."""

    policy: Policy
    expected_version: int
    at: datetime


class SetAgentToggles(_Change, frozen=True, kw_only=True, tag="set_agent_toggles"):
    """Switch an agent's user or agent memory on or off; None leaves one as it is."""

    agent_id: str
    at: datetime
    user_memory_enabled: bool | None = None
    agent_memory_enabled: bool | None = None


Change = (
    AddFact
    | ReviseFact
    | RemoveFact
    | SetPrivacy
    | AddReflection
    | ReviseReflection
    | RemoveReflection
    | WriteConsolidation
    | WritePolicy
    | SetAgentToggles
)


class ChangeSet(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that belong together, by one actor at one time.

    Each is judged alone: one that conflicts does not keep the others from being applied.
    """

    id: str = msgspec.field(default_factory=new_id)
    actor: Actor
    at: datetime
    changes: tuple[Change, ...] = ()


class ChangeStatus(StrEnum):
    """What became of one change."""

    APPLIED = "applied"
    ALREADY = "already"  # this very change was applied before
    DUPLICATE = "duplicate"  # the scope has the same fact; ``target_id`` names it
    ADDED_INSTEAD = "added_instead"  # the target had changed, so ``or_add`` was inserted
    CONFLICT = "conflict"
    MISSING = "missing"


class ChangeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one change; ``detail`` explains a conflict to a person."""

    change_id: str
    status: ChangeStatus
    target_id: str
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether the memory now is as the change wanted it."""
        return self.status not in (ChangeStatus.CONFLICT, ChangeStatus.MISSING)


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change as it happened. ``before`` and ``after`` are whole documents without vectors.

    ``id`` is the change's id. ``status`` is "done", or "pending" if the process died between
    writing the entry and finishing the change (never on a store with transactions).
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


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a fact or of a consolidated text.

    ``at`` is when this version came to be, ``action`` how: "form", "add", "consolidate", "edit",
    "restore", "migrate", or "delete" for the tombstone of a fact, whose ``snapshot`` is the whole
    fact (JSON of `Fact`, with its vector), so that it can be restored without loss.
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
    snapshot: Fact | None = None


#: Words of a command → what is said of all versions that it makes.
_BY_COMMAND = {"restore": "restore", "undo": "restore", "migrate": "migrate"}


def action_of_command(command: str) -> str | None:
    """What history says of every version that a command makes, or None if that is up to each
    change. Options and what they name do not count: an agent may be called "restore"."""
    words = takewhile(lambda word: word.isalnum(), command.split())
    return next((_BY_COMMAND[word] for word in words if word in _BY_COMMAND), None)


def action_of_new_fact(fact: Fact) -> str:
    """What history says of the first version of a fact, if its command does not say it."""
    return "form" if fact.formation_id else "add"


def version_action(change: Change, actor: Actor) -> str:
    """What history says of the version that a change makes (see `HistoryEntry.action`)."""
    match change:
        case _ if by_command := action_of_command(actor.command):
            return by_command
        case AddFact(fact=fact) | ReviseFact(or_add=Fact() as fact):
            return action_of_new_fact(fact)
        case WriteConsolidation(absorbed_ids=(_, *_)):
            return "consolidate"
    return "edit"
