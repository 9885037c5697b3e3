"""What is known of memory while changes are judged."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from edenmem.memory.requirements import Needs
from edenmem.models.host import Agent, User
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The last that history says of a target. ``life`` counts how often a fact was restored; a
    store that does not need it to order versions may leave it 0."""

    version: int
    action: str
    life: int = 0

    @property
    def is_tombstone(self) -> bool:
        """Whether it says that the target was removed."""
        return self.action == "delete"


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """How a version came to be. ``at`` None: as the document itself says."""

    action: str
    actor: str = ""
    change_id: str | None = None
    at: datetime | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a change that was applied before. ``void``: it met with a duplicate, which
    ``target_id`` names."""

    target_id: str
    void: bool = False


class Disorder(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a buffer in the form in which a store keeps it: what is, and what should
    be, as the audit entry of the repair says it."""

    before: dict[str, Any]
    after: dict[str, Any]


class Use(msgspec.Struct, kw_only=True):
    """How much there is of an agent or an account: numbers, which need not be exact above the
    number of changes of a batch, and in ``more`` what else stands in the way, in words."""

    facts: int = 0
    reflections: int = 0
    texts: int = 0
    policies: int = 0
    sessions: int = 0
    agents: int = 0
    more: str = ""

    @property
    def words(self) -> str:
        """What there is of it first; "" if there is nothing."""
        for name, told in _WORDS.items():
            if getattr(self, name) > 0:
                return told
        return self.more


_WORDS = {
    "facts": "has facts",
    "reflections": "has reflections",
    "texts": "has a text",
    "policies": "has a policy",
    "sessions": "has sessions",
    "agents": "has agents",
}


class State(msgspec.Struct, kw_only=True):
    """What a store loaded for some `Needs`, and `fold` then brought up to date.

    A key that is there is known; its value None says that there is no such thing. A working copy of
    one batch or one dry run: `fold` writes into it. ``buffers`` holds the ids of what waits with
    the times by which they are in order; ``origins`` goes with ``heads``, for those targets whose
    version history does not have; keys of both are a target type and an id.

    A dry run may load more as it goes on (`missing`, `take`). What was folded stands over what is
    loaded later, since nothing of it is in the store.
    """

    facts: dict[str, Fact | None] = msgspec.field(default_factory=dict)
    reflections: dict[str, Reflection | None] = msgspec.field(default_factory=dict)
    owners: dict[tuple[Scope, str], str | None] = msgspec.field(default_factory=dict)
    heads: dict[tuple[str, str], Head | None] = msgspec.field(default_factory=dict)
    origins: dict[tuple[str, str], Origin] = msgspec.field(default_factory=dict)
    texts: dict[Scope, Consolidation | None] = msgspec.field(default_factory=dict)
    buffers: dict[Scope, dict[str, datetime]] = msgspec.field(default_factory=dict)
    policies: dict[Scope, Policy | None] = msgspec.field(default_factory=dict)
    agents: dict[str, Agent | None] = msgspec.field(default_factory=dict)
    users: dict[str, User | None] = msgspec.field(default_factory=dict)
    ids: dict[str, bool] = msgspec.field(default_factory=dict)
    names: dict[tuple[str, str], bool] = msgspec.field(default_factory=dict)
    used: dict[tuple[str, str], Use] = msgspec.field(default_factory=dict)
    repairs: dict[Scope, Disorder | None] = msgspec.field(default_factory=dict)
    answers: dict[str, Answer | None] = msgspec.field(default_factory=dict)
    blocks: dict[str, bool] = msgspec.field(default_factory=dict)
    #: What was folded into buffers and uses, known or not: time or None by id, numbers by name.
    moved: dict[Scope, dict[str, datetime | None]] = msgspec.field(default_factory=dict)
    grown: dict[tuple[str, str], dict[str, int]] = msgspec.field(default_factory=dict)

    def missing(self, needs: Needs) -> Needs:
        """What of ``needs`` is not known yet."""
        left = Needs()
        for name in left.__struct_fields__:
            known = getattr(self, name)
            setattr(left, name, {key for key in getattr(needs, name) if key not in known})
        return left

    def take(self, loaded: State) -> None:
        """Learn what was loaded for something that was `missing`."""
        for name in self.__struct_fields__:
            mine = getattr(self, name)
            for key, value in getattr(loaded, name).items():
                mine.setdefault(key, value)

    def buffer(self, scope: Scope) -> tuple[str, ...]:
        """The ids of what waits in a scope whose buffer is known, in order."""
        times: dict[str, datetime | None] = dict(self.buffers.get(scope, {}))
        times.update(self.moved.get(scope, {}))
        ordered = sorted((at, each) for each, at in times.items() if at is not None)
        return tuple(each for _, each in ordered)

    def use(self, kind: str, account_id: str) -> Use:
        """How much there is of an agent ("agent") or an account ("user")."""
        known = self.used.get((kind, account_id), Use())
        grown = self.grown.get((kind, account_id), {})
        return msgspec.structs.replace(
            known, **{name: getattr(known, name) + more for name, more in grown.items()}
        )
