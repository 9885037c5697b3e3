"""Verify by the log that the entries of a target lead from a run's result to the current document.

Documents are compared by their remembered fields, without access counters and vectors. The
consolidation marks of a reflection follow from the entries of the text that absorbed it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from itertools import groupby
from typing import Any

import msgspec

from edenmem.models.changes import AuditEntry
from edenmem.models.host import Agent, User
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store

#: Consolidation marks of a reflection: absorbed, time, text.
_Marks = tuple[bool, datetime | None, str | None]
Remembered = Fact | Reflection | Consolidation | Policy | Agent | User

#: Fields that change without a log entry.
_LOOSE: dict[type, frozenset[str]] = {
    Fact: frozenset({"access_count", "last_accessed_at", "embedding", "embedding_model"}),
    Reflection: frozenset(),
    Consolidation: frozenset({"unabsorbed_ids", "unpropagated_versions"}),
    Policy: frozenset(),
    Agent: frozenset({"created_at"}),
    User: frozenset({"created_at", "subscription_tier", "feature_flags"}),
}

#: Consolidation marks of a reflection.
MARKS = frozenset({"absorbed", "absorbed_at", "consolidated_into"})

_TARGETS: dict[str, type] = {
    "fact": Fact,
    "reflection": Reflection,
    "consolidation": Consolidation,
    "policy": Policy,
    "agent": Agent,
    "user": User,
}

#: Entries about a text without its content.
_OF_BUFFERS = ("repair_buffer",)


@cache
def fields_of(kind: type, without: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the compared fields of a kind of document."""
    names: Sequence[str] = kind.__struct_fields__  # type: ignore[attr-defined]
    return tuple(name for name in names if name not in _LOOSE[kind] | without)


def differing(
    expected: Remembered, found: Remembered, without: frozenset[str] = frozenset()
) -> list[tuple[str, Any, Any]]:
    """Return the differing fields: name, expected value, found value."""
    names = fields_of(type(expected), without)
    pairs = ((name, getattr(expected, name), getattr(found, name)) for name in names)
    return [(name, want, have) for name, want, have in pairs if want != have]


def read_after(entry: AuditEntry) -> Remembered | None:
    """Return the document after an entry; None if removed or unreadable."""
    return _read(entry, entry.after)


def _read(entry: AuditEntry, document: dict[str, Any] | None) -> Remembered | None:
    kind = _TARGETS.get(entry.target_type)
    if document is None or kind is None:
        return None
    try:
        found: Remembered = msgspec.convert(document, kind, strict=False)
    except msgspec.ValidationError:
        return None
    return _in_milliseconds(found)


def _in_milliseconds(model: Remembered) -> Remembered:
    """Truncate times to milliseconds, as stores do; the log keeps microseconds."""
    times = {
        name: value.replace(microsecond=value.microsecond // 1000 * 1000)
        for name in type(model).__struct_fields__
        if isinstance(value := getattr(model, name), datetime) and value.microsecond % 1000
    }
    return msgspec.structs.replace(model, **times) if times else model


class Trails:
    """Read the log of single targets, for one check of a store.

    Args:
        store: The store.
        has_forgotten: Whether the store has forgettings, which empty entries of the log.

    Attributes:
        unreadable: IDs of unreadable entries, which are ignored.
    """

    def __init__(self, store: Store, *, has_forgotten: bool) -> None:
        self._store = store
        self._has_forgotten = has_forgotten
        self.unreadable = set[str]()
        self._marks: dict[Scope, dict[str, tuple[datetime, _Marks]]] = {}

    def entries(self, target_type: str, target_id: str) -> list[AuditEntry]:
        """Return the entries of a target, oldest first."""
        found = [
            entry
            for entry in self._store.log.audit(target_id=target_id, unreadable=self.unreadable)
            if entry.target_type == target_type and entry.action not in _OF_BUFFERS
        ]
        return found[::-1]

    def is_emptied(self, entry: AuditEntry) -> bool:
        """Check whether a forgetting emptied an entry."""
        return self._has_forgotten and entry.before is None and entry.after is None

    def has_emptied(self, entries: Sequence[AuditEntry]) -> bool:
        """Check whether a forgetting emptied one of these entries."""
        return any(map(self.is_emptied, entries))

    def with_marks(self, reflection: Reflection, at: datetime) -> Reflection:
        """Return a reflection as later consolidations and reverts since ``at`` left it."""
        absorbed, absorbed_at, into = self._marks_of(reflection, at)
        return msgspec.structs.replace(
            reflection, absorbed=absorbed, absorbed_at=absorbed_at, consolidated_into=into
        )

    def leads(
        self,
        entries: Sequence[AuditEntry],
        first: AuditEntry,
        found: Remembered | None,
        without: frozenset[str] = frozenset(),
    ) -> bool:
        """Check that entries lead from ``first`` to the current document without a gap.

        Args:
            entries: All entries of the target, oldest first.
            first: The first entry.
            found: The current document, or None.
            without: Fields to ignore.
        """
        is_reflection = first.target_type == "reflection"
        without |= MARKS if is_reflection else frozenset()
        last = self._follow(entries, first, without)
        if last is None:
            return False
        if self.is_emptied(last):
            return True
        state = read_after(last)
        if state is None or found is None:
            return last.after is None and found is None
        if differing(state, found, without):
            return False
        if isinstance(state, Reflection) and isinstance(found, Reflection):
            return _marks(found) == self._marks_of(state, last.at)
        return True

    def _marks_of(self, reflection: Reflection, at: datetime) -> _Marks:
        """Return the marks of a reflection after the last consolidation or revert since ``at``."""
        later = self._marked_in(reflection.home).get(reflection.id)
        return later[1] if later is not None and later[0] >= at else _marks(reflection)

    def _marked_in(self, scope: Scope) -> dict[str, tuple[datetime, _Marks]]:
        """Map reflection IDs to the time of their last absorption or release, and their marks."""
        if scope not in self._marks:
            found: dict[str, tuple[datetime, _Marks]] = {}
            actions = ("write_consolidation", "revert_consolidation")
            log = self._store.log
            for entry in log.audit(scope=scope, actions=actions, unreadable=self.unreadable):
                text = read_after(entry)
                if not isinstance(text, Consolidation):
                    continue
                marks: _Marks = (False, None, None)
                moved = entry.released_ids
                if entry.action == "write_consolidation":
                    marks, moved = (True, text.updated_at, text.id), text.absorbed_ids
                for each in moved:
                    found.setdefault(each, (entry.at, marks))
            self._marks = {scope: found}  # callers go scope by scope
        return self._marks[scope]

    def _follow(
        self, entries: Sequence[AuditEntry], first: AuditEntry, without: frozenset[str]
    ) -> AuditEntry | None:
        """Return the last entry, or None if the documents of two entries do not match.

        Entries of the same time are tried in any order, since the log may not keep the order of a
        set.
        """
        last = first
        later = (entry for entry in entries if entry.at >= first.at and entry.id != first.id)
        for at, group in groupby(later, key=lambda entry: entry.at):
            pending = deque(group)
            turned = 0
            while pending and turned < len(pending):
                if self._fits(last, pending[0], without):
                    last, turned = pending.popleft(), 0
                else:
                    pending.rotate(-1)
                    turned += 1
            if pending and at > first.at:  # entries of the first one's time may be older
                return None
        return last

    def _fits(self, last: AuditEntry, entry: AuditEntry, without: frozenset[str]) -> bool:
        if self.is_emptied(last) or self.is_emptied(entry):
            return True
        if last.after is None or entry.before is None:
            return last.after is None and entry.before is None
        left, begun = read_after(last), _read(entry, entry.before)
        return left is not None and begun is not None and not differing(left, begun, without)


def _marks(reflection: Reflection) -> _Marks:
    return reflection.absorbed, reflection.absorbed_at, reflection.consolidated_into
