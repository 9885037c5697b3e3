"""The effect of a change: what a store writes, and the answer."""

from __future__ import annotations

import msgspec

from edenmem.memory.state import Origin
from edenmem.models.changes import Change
from edenmem.models.host import Agent, User
from edenmem.models.memory import Consolidation, Fact, Held, Policy, Reflection
from edenmem.models.records import AuditEntry, ChangeResult, HistoryEntry
from edenmem.models.scope import Scope

#: Documents that changes can write.
Model = Fact | Reflection | Held | Consolidation | Policy | Agent | User

_KINDS: dict[type, str] = {
    Fact: "fact",
    Reflection: "reflection",
    Held: "held",
    Consolidation: "consolidation",
    Policy: "policy",
    Agent: "agent",
    User: "user",
}


class Write(msgspec.Struct, frozen=True):
    """One document before and after. ``old`` is None for an insert, ``new`` for a deletion.

    A store writes the fields that differ, provided that the document still equals ``old`` (same
    version). A fact's vector is kept if ``embedding`` is the same object in both.

    ``unabsorbed_ids`` of a consolidated text is for the audit entry, and complete only if a version
    is written. The flags determine what is pending. A store that also keeps a list adds and removes
    the reflections whose `waits` differs, and leaves unknown ones.
    """

    old: Model | None
    new: Model | None

    @property
    def model(self) -> Model:
        """Return the document that identifies the write: the new one, or the deleted one."""
        found = self.old if self.new is None else self.new
        assert found is not None
        return found

    @property
    def kind(self) -> str:
        """Return "fact", "reflection", "held", "consolidation", "policy", "agent" or "user"."""
        return _KINDS[type(self.model)]

    @property
    def waits(self) -> tuple[bool, bool]:
        """Return whether it was, and will be, in its scope's buffer.

        The buffer has existing reflections that are not absorbed.
        """
        return _waits(self.old), _waits(self.new)


def _waits(model: Model | None) -> bool:
    return isinstance(model, Reflection) and not model.absorbed


class Touch(msgspec.Struct, frozen=True):
    """A scope that changes: its revision grows, and its counts by these numbers."""

    scope: Scope
    facts: int = 0
    reflections: int = 0
    pending: int = 0


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of one change. A refused or repeated change has only a result.

    Attributes:
        change: The change.
        result: The answer.
        writes: Documents.
        versions: New entries of history, in order: the replaced version, if history lacks it,
            and the new one or the tombstone.
        life: The life of the versions; see `Head`.
        origin: The origin of the resulting version of a fact or text, if any.
        entry: The finished audit entry; ``status`` is "void" for an addition that met a
            duplicate, which is hidden and keeps the answer.
        touches: Scopes that change.
        reads: Scopes that do not change, but on which the answer depends.
        repairs: The scope whose buffer the store repairs, in its own form.
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
