"""What the log proves of a target: whether its entries lead from what a run wrote to what is there.

Two documents are compared by all fields that say what is remembered. Counters of accesses and
vectors are no part of them, and a reflection's marks of its consolidation follow from the entries
of the text that absorbed it.
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

#: Whether a reflection is absorbed, when, and by which text.
_Marks = tuple[bool, datetime | None, str | None]
Remembered = Fact | Reflection | Consolidation | Policy | Agent | User

#: What changes without an entry of its own.
_LOOSE: dict[type, frozenset[str]] = {
    Fact: frozenset({"access_count", "last_accessed_at", "embedding", "embedding_model"}),
    Reflection: frozenset(),
    Consolidation: frozenset({"unabsorbed_ids", "unpropagated_versions"}),
    Policy: frozenset(),
    Agent: frozenset({"created_at"}),
    User: frozenset({"created_at", "subscription_tier", "feature_flags"}),
}

#: What the store decides when it writes what a run hands to it.
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

#: How the log calls what a run writes.
_ACTIONS: dict[type, str] = {
    Fact: "add_fact",
    Reflection: "add_reflection",
    Consolidation: "write_consolidation",
    Policy: "write_policy",
    Agent: "set_agent_toggles",
}

#: A reflection's marks of its consolidation.
MARKS = frozenset({"absorbed", "absorbed_at", "consolidated_into"})

_TARGETS: dict[str, type] = {
    "fact": Fact,
    "reflection": Reflection,
    "consolidation": Consolidation,
    "policy": Policy,
    "agent": Agent,
    "user": User,
}

#: Entries about a text that say nothing of what it says.
_OF_BUFFERS = ("repair_buffer",)


@cache
def fields_of(kind: type, without: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the fields by which two documents of a kind are compared."""
    names: Sequence[str] = kind.__struct_fields__  # type: ignore[attr-defined]
    return tuple(name for name in names if name not in _LOOSE[kind] | without)


@cache
def _values_of(kind: type, without: frozenset[str]) -> Any:
    return attrgetter(*fields_of(kind, without))


def fingerprint(model: Remembered, without: frozenset[str] = frozenset()) -> int:
    """Return 8 bytes that stand for all that is compared."""
    return digest(msgspec.json.encode(_values_of(type(model), without)(model)))


def digest(raw: bytes) -> int:
    """Return 8 bytes that stand for these."""
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "big")


def differing(
    expected: Remembered, found: Remembered, without: frozenset[str] = frozenset()
) -> list[tuple[str, Any, Any]]:
    """List the fields that differ: name, as expected, as found."""
    names = fields_of(type(expected), without)
    pairs = ((name, getattr(expected, name), getattr(found, name)) for name in names)
    return [(name, want, have) for name, want, have in pairs if want != have]


def read_after(entry: AuditEntry) -> Remembered | None:
    """Return what an entry says it left behind; None if nothing, or what nobody can read."""
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
    """Stores keep milliseconds, the log what it was given."""
    times = {
        name: value.replace(microsecond=value.microsecond // 1000 * 1000)
        for name in type(model).__struct_fields__
        if isinstance(value := getattr(model, name), datetime) and value.microsecond % 1000
    }
    return msgspec.structs.replace(model, **times) if times else model


def is_written(entry: AuditEntry, expected: Remembered) -> bool:
    """Whether an entry of a run left what the run was to write, but for what the store decides."""
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
    """Reads the log of single targets, for one look at a store.

    Args:
        store: Where.
        has_forgotten: Whether something was forgotten here, which empties entries of the log.

    Attributes:
        unreadable: The ids of entries that could not be read. Nothing follows from them.
    """

    def __init__(self, store: Store, *, has_forgotten: bool) -> None:
        self._store = store
        self._has_forgotten = has_forgotten
        self.unreadable = set[str]()
        self._marks: dict[Scope, dict[str, tuple[datetime, _Marks]]] = {}

    def entries(self, target_type: str, target_id: str) -> list[AuditEntry]:
        """Return a target's entries, oldest first."""
        found = [
            entry
            for entry in self._store.log.audit(target_id=target_id, unreadable=self.unreadable)
            if entry.target_type == target_type and entry.action not in _OF_BUFFERS
        ]
        return found[::-1]

    def is_emptied(self, entry: AuditEntry) -> bool:
        """Whether a forgetting took what an entry held."""
        return self._has_forgotten and entry.before is None and entry.after is None

    def leads(
        self,
        entries: Sequence[AuditEntry],
        first: AuditEntry,
        found: Remembered | None,
        without: frozenset[str] = frozenset(),
    ) -> bool:
        """Whether a target's entries lead from ``first`` to what is there, without a gap.

        Args:
            entries: All entries of the target, oldest first.
            first: Where to begin.
            found: What is there; None: nothing.
            without: Fields that are left aside.
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
        """A reflection's marks, by the last consolidation or revert since its last own entry."""
        later = self._marked_in(reflection.home).get(reflection.id)
        return later[1] if later is not None and later[0] >= at else _marks(reflection)

    def _marked_in(self, scope: Scope) -> dict[str, tuple[datetime, _Marks]]:
        """Id → when a text of the scope last absorbed or released it, and its marks since."""
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
            self._marks = {scope: found}  # scopes come one after another
        return self._marks[scope]

    def _follow(
        self, entries: Sequence[AuditEntry], first: AuditEntry, without: frozenset[str]
    ) -> AuditEntry | None:
        """Follow the entries after ``first`` to the last one.

        None where one does not begin with what the one before it left. Entries of one time are
        taken as they fit together: a log need not say in which order the changes of a set were
        made.
        """
        last = first
        later = (entry for entry in entries if entry.at >= first.at and entry.id != first.id)
        for at, group in groupby(later, key=lambda entry: entry.at):
            waiting = deque(group)
            turned = 0
            while waiting and turned < len(waiting):
                if self._fits(last, waiting[0], without):
                    last, turned = waiting.popleft(), 0
                else:
                    waiting.rotate(-1)
                    turned += 1
            if (
                waiting and at > first.at
            ):  # those of the first one's own time may have come before it
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
    """The targets of one kind that came to a scope and did not go again, by the log; 8 bytes for
    each."""

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
        """Whether the log has it come to its scope, and not go again."""
        wanted = _mark_of_place(memory.id, memory.home)
        if not is_among(self._here, wanted):
            return False
        if not is_among(self._gone, wanted):
            return True
        entries = self._trails.entries(self._kind, memory.id)  # it came and went
        return bool(entries) and entries[-1].after is not None


def is_among(sorted_marks: Any, wanted: int) -> bool:
    """Whether a number is in a sorted array."""
    import numpy as np

    place = int(np.searchsorted(sorted_marks, np.uint64(wanted)))
    return place < len(sorted_marks) and int(sorted_marks[place]) == wanted


def _mark_of_place(target_id: str, scope: Scope) -> int:
    return digest(f"{target_id} {scope.key}".encode("utf-8", "surrogatepass"))
