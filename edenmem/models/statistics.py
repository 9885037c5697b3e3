"""What a store counts for ``stats``. Days are UTC dates as ISO 8601 writes them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from edenmem.models.formation import UsageTotal
from edenmem.models.scope import Scope, ScopeKind


class FormedOnDay(msgspec.Struct, frozen=True, kw_only=True):
    """What was formed on a day and is still there."""

    day: str
    facts: int = 0
    reflections: int = 0


class UsageOnDay(UsageTotal, frozen=True, kw_only=True):
    """The calls of one model on one day."""

    day: str


class KindCount(msgspec.Struct, frozen=True, kw_only=True):
    """How much the scopes of one kind hold; ``pending`` are those reflections that wait."""

    kind: ScopeKind
    facts: int = 0
    reflections: int = 0
    pending: int = 0


class BufferAge(msgspec.Struct, frozen=True, kw_only=True):
    """A scope's pending reflections, and since when the oldest of them waits."""

    scope: Scope
    pending: int
    oldest_at: datetime


class FactUse(msgspec.Struct, frozen=True, kw_only=True):
    """How facts are used: ``never`` were not returned by any search that counts accesses.

    ``repeated`` are those whose sentence stands in another scope of the same agent too.
    """

    facts: int = 0
    never: int = 0
    accesses: int = 0
    repeated: int = 0
