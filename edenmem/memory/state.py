"""The known state of memory while changes are planned."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import msgspec

from edenmem.memory.requirements import Needs
from edenmem.models.host import Agent, User
from edenmem.models.memory import Consolidation, Fact, Held, Policy, Reflection
from edenmem.models.scope import Scope


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The last history entry of a target.

    ``life`` counts how often a fact was restored; a store that does not need it to order versions
    may leave it at 0.
    """

    version: int
    action: str
    life: int = 0

    @property
    def is_tombstone(self) -> bool:
        """Return whether the entry records a removal."""
        return self.action == "delete"


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a version. ``at`` is None if the document has the time."""

    action: str
    actor: str = ""
    change_id: str | None = None
    at: datetime | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a change applied before. ``void``: it met the duplicate ``target_id``."""

    target_id: str
    void: bool = False


class Disorder(msgspec.Struct, frozen=True, kw_only=True):
    """A defect of a buffer as the store keeps it: found and expected, for the audit entry."""

    before: dict[str, Any]
    after: dict[str, Any]


#: What an agent or account may have, in words, by the names in `State.used` and `State.grown`.
_USES = {
    "facts": "has facts",
    "reflections": "has reflections",
    "held": "has items that wait for review",
    "texts": "has a text",
    "policies": "has a policy",
    "sessions": "has sessions",
    "agents": "has agents",
}


class State(msgspec.Struct, kw_only=True):
    """What a store loaded for some `Needs`, updated by `fold`.

    A present key is known; its value None means that the object does not exist. A working copy for
    one batch or dry run: `fold` modifies it. ``buffers`` has the IDs of pending reflections with
    the times that order them. ``origins`` complements ``heads`` for targets whose version history
    lacks; keys of both are a target type and an ID. ``used`` counts the data of agents and
    accounts by kind; other references are named in words. The numbers need not be exact above the
    number of changes of a batch.

    A dry run may load more later (`missing`, `take`). Folded data takes precedence over data loaded
    later, since the store has none of it.
    """

    facts: dict[str, Fact | None] = msgspec.field(default_factory=dict)
    reflections: dict[str, Reflection | None] = msgspec.field(default_factory=dict)
    held: dict[str, Held | None] = msgspec.field(default_factory=dict)
    owners: dict[tuple[Scope, str], str | None] = msgspec.field(default_factory=dict)
    keys: dict[tuple[Scope, str], str | None] = msgspec.field(default_factory=dict)
    heads: dict[tuple[str, str], Head | None] = msgspec.field(default_factory=dict)
    origins: dict[tuple[str, str], Origin] = msgspec.field(default_factory=dict)
    texts: dict[Scope, Consolidation | None] = msgspec.field(default_factory=dict)
    buffers: dict[Scope, dict[str, datetime]] = msgspec.field(default_factory=dict)
    policies: dict[Scope, Policy | None] = msgspec.field(default_factory=dict)
    agents: dict[str, Agent | None] = msgspec.field(default_factory=dict)
    users: dict[str, User | None] = msgspec.field(default_factory=dict)
    ids: dict[str, bool] = msgspec.field(default_factory=dict)
    names: dict[tuple[str, str], bool] = msgspec.field(default_factory=dict)
    used: dict[tuple[str, str], dict[str, int]] = msgspec.field(default_factory=dict)
    repairs: dict[Scope, Disorder | None] = msgspec.field(default_factory=dict)
    answers: dict[str, Answer | None] = msgspec.field(default_factory=dict)
    blocks: dict[str, bool] = msgspec.field(default_factory=dict)
    #: Folded changes of buffers and uses, known or not: time or None by ID, numbers by name.
    moved: dict[Scope, dict[str, datetime | None]] = msgspec.field(default_factory=dict)
    grown: dict[tuple[str, str], dict[str, int]] = msgspec.field(default_factory=dict)

    def missing(self, needs: Needs) -> Needs:
        """Return the part of ``needs`` that is unknown."""
        left = Needs()
        for name in left.__struct_fields__:
            known = getattr(self, name)
            setattr(left, name, {key for key in getattr(needs, name) if key not in known})
        return left

    def take(self, loaded: State) -> None:
        """Add what was loaded for `missing` needs."""
        for name in self.__struct_fields__:
            mine = getattr(self, name)
            for key, value in getattr(loaded, name).items():
                mine.setdefault(key, value)

    def buffer(self, scope: Scope) -> tuple[str, ...]:
        """Return the IDs of the pending reflections in a known buffer, in order."""
        times: dict[str, datetime | None] = dict(self.buffers.get(scope, {}))
        times.update(self.moved.get(scope, {}))
        ordered = sorted((at, each) for each, at in times.items() if at is not None)
        return tuple(each for _, each in ordered)

    def use(self, kind: str, account_id: str) -> str:
        """Return what an agent ("agent") or account ("user") has, in words; "" if nothing."""
        used = Counter(self.used.get((kind, account_id), {}))
        used.update(self.grown.get((kind, account_id), {}))
        names = (name for name in (*_USES, *used) if used[name] > 0)
        return next((_USES.get(name, name) for name in names), "")
