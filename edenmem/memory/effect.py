"""What a change does: what a store has to write, and the answer."""

from __future__ import annotations

import msgspec

from edenmem.memory.state import Origin
from edenmem.models.changes import Change
from edenmem.models.host import Agent, User
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.records import AuditEntry, ChangeResult, HistoryEntry
from edenmem.models.scope import Scope

#: What changes can write.
Model = Fact | Reflection | Consolidation | Policy | Agent | User

_KINDS: dict[type, str] = {
    Fact: "fact",
    Reflection: "reflection",
    Consolidation: "consolidation",
    Policy: "policy",
    Agent: "agent",
    User: "user",
}


class Write(msgspec.Struct, frozen=True):
    """One document: as it was planned from, and as it is to be. ``old`` None: it is inserted,
    ``new`` None: it is deleted.

    A store writes the fields that differ, on condition that the document still is ``old`` (of the
    same version). The vector of a fact is kept if ``embedding`` is the same object in both.

    ``unabsorbed_ids`` of a consolidated text is for the audit entry, and complete only where a
    version is written. What waits follows from the flags: a store that keeps it in a list too puts
    into it, and takes out of it, the reflections whose `waits` differs, and leaves what it does not
    know.
    """

    old: Model | None
    new: Model | None

    @property
    def model(self) -> Model:
        """The document that says which one it is: the new one, or what is deleted."""
        found = self.old if self.new is None else self.new
        assert found is not None
        return found

    @property
    def kind(self) -> str:
        """ "fact", "reflection", "consolidation", "policy", "agent" or "user"."""
        return _KINDS[type(self.model)]

    @property
    def waits(self) -> tuple[bool, bool]:
        """Whether it was, and is to be, in its scope's buffer; a reflection that is there and is
        not absorbed."""
        return _waits(self.old), _waits(self.new)


def _waits(model: Model | None) -> bool:
    return isinstance(model, Reflection) and not model.absorbed


class Touch(msgspec.Struct, frozen=True):
    """A scope in which something changes: its revision grows, and its counts by so much."""

    scope: Scope
    facts: int = 0
    reflections: int = 0
    pending: int = 0


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What one change does. One that is refused, or was applied before, has a result alone.

    Attributes:
        change: The change.
        result: The answer.
        writes: Documents.
        versions: What history gets, in order: the version that is replaced, if history does not
            have it, and the new one or the tombstone.
        life: Of which life the versions are; see `Head`.
        origin: How the version that a fact or text has afterwards came to be, where it gets one.
        entry: The audit entry, done; ``status`` "void" for an addition that met with a duplicate,
            which is shown to nobody and keeps the answer.
        touches: Scopes that change.
        reads: Scopes that do not change, but on which the answer depends.
        repairs: The scope whose buffer the store puts right, in its own form.
    """

    change: Change
    result: ChangeResult
    writes: tuple[Write, ...] = ()
    versions: tuple[HistoryEntry, ...] = ()
    life: int = 0
    origin: Origin | None = None
    entry: AuditEntry | None = None
    touches: tuple[Touch, ...] = ()
    reads: tuple[Scope, ...] = ()
    repairs: Scope | None = None
