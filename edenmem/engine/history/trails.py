"""Verify by the log that the entries of a target lead from a run's result to the current document.

Documents are compared by their remembered fields, without access counters and vectors. The
consolidation marks of a reflection follow from the entries of the text that absorbed it.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from hashlib import blake2b
from itertools import groupby
from operator import attrgetter
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

#: Fields that the store sets when it writes documents of a run.
_GIVEN: dict[type, frozenset[str]] = {
    Fact: frozenset({"version"}),
    Reflection: frozenset({"version", "place"}),  # earlier versions wrote no place
    Consolidation: frozenset(
        {"id", "consolidated_content", "version", "absorbed_ids", "last_consolidated_at"}
    ),
    Policy: frozenset({"id", "version", "updated_at"}),
    Agent: frozenset({"agent_memory_enabled"}),
    User: frozenset(),
}

#: Log actions of a run.
_ACTIONS: dict[type, str] = {
    Fact: "add_fact",
    Reflection: "add_reflection",
    Consolidation: "write_consolidation",
    Policy: "write_policy",
    Agent: "set_agent_toggles",
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


@cache
def _values_of(kind: type, without: frozenset[str]) -> Any:
    return attrgetter(*fields_of(kind, without))


def fingerprint(model: Remembered, without: frozenset[str] = frozenset()) -> int:
    """Return an 8-byte hash of the compared fields."""
    return digest(msgspec.json.encode(_values_of(type(model), without)(model)))


def digest(raw: bytes) -> int:
    """Return an 8-byte hash."""
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "big")


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


def is_written(entry: AuditEntry, expected: Remembered) -> bool:
    """Check that an entry wrote the expected document, except for fields set by the store."""
    found = read_after(entry)
    if type(found) is not type(expected) or found is None or found.id != entry.target_id:
        return False
    if not isinstance(expected, Agent | User) and entry.scope != expected.home:
        return False
    owner = expected.id if isinstance(expected, Agent | User) else expected.agent_id
    if (entry.action, entry.agent_id, entry.undoes) != (_ACTIONS[type(expected)], owner, None):
        return False
    given = _GIVEN[type(expected)]
    return fingerprint(found, given) == fingerprint(expected, given)


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


class Logged:
    """Targets of one kind that the log has in a scope, with 8 bytes per target."""

    def __init__(self, store: Store, trails: Trails, kind: str, agents: Sequence[str]) -> None:
        import numpy as np

        here, gone = array("Q"), array("Q")
        for agent_id in agents:
            for entry in store.log.audit(agent_id=agent_id, unreadable=trails.unreadable):
                if entry.target_type != kind or entry.scope is None:
                    continue
                marks = here if entry.after is not None else gone
                marks.append(_mark_of_place(entry.target_id, entry.scope))
        self._here = np.unique(np.frombuffer(here, dtype=np.uint64))
        self._gone = np.unique(np.frombuffer(gone, dtype=np.uint64))
        self._trails = trails
        self._kind = kind

    def has(self, memory: Fact | Reflection | Consolidation | Policy) -> bool:
        """Check whether the log has the target in its scope."""
        wanted = _mark_of_place(memory.id, memory.home)
        if not is_among(self._here, wanted):
            return False
        if not is_among(self._gone, wanted):
            return True
        entries = self._trails.entries(self._kind, memory.id)  # added and removed
        return bool(entries) and entries[-1].after is not None


def is_among(sorted_marks: Any, wanted: int) -> bool:
    """Check whether a sorted array contains a number."""
    import numpy as np

    place = int(np.searchsorted(sorted_marks, np.uint64(wanted)))
    return place < len(sorted_marks) and int(sorted_marks[place]) == wanted


def _mark_of_place(target_id: str, scope: Scope) -> int:
    return digest(f"{target_id} {scope.key}".encode("utf-8", "surrogatepass"))
