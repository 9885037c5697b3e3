"""Counts of a store for ``stats``. Days are UTC dates in ISO 8601."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from edenmem.models.formation import UsageTotal
from edenmem.models.scope import ScopeKind

_SUMS = tuple(name for name in UsageTotal.__struct_fields__ if name != "model")


class FormedOnDay(msgspec.Struct, frozen=True, kw_only=True):
    """Existing memory said on a day, or formed if that is not known."""

    day: str
    facts: int = 0
    reflections: int = 0


class UsageOnDay(UsageTotal, frozen=True, kw_only=True):
    """The calls of one model on one day."""

    day: str


def sum_usage(totals: Sequence[UsageTotal]) -> dict[str, Any]:
    """Return the sums of totals by field."""
    return {name: sum(getattr(each, name) for each in totals) for name in _SUMS}


def sum_by_model(totals: Iterable[UsageTotal]) -> tuple[UsageTotal, ...]:
    """Sum totals, such as those of several days, by model, ordered by its name."""
    found = defaultdict[str, list[UsageTotal]](list)
    for each in totals:
        found[each.model].append(each)
    return tuple(UsageTotal(model=model, **sum_usage(found[model])) for model in sorted(found))


class KindCount(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over all scopes of one kind."""

    kind: ScopeKind
    facts: int = 0
    reflections: int = 0
    pending: int = 0


class FactUse(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of facts: ``never`` counts facts without a recorded access.

    ``unconfirmed`` counts those that their sources do not fully show.
    """

    facts: int = 0
    never: int = 0
    accesses: int = 0
    unconfirmed: int = 0


class MemoryCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of facts and reflections: by day, by kind of scope, and by use."""

    days: tuple[FormedOnDay, ...]
    kinds: tuple[KindCount, ...]
    use: FactUse
