"""Counts of a store for ``stats``. Days are UTC dates in ISO 8601."""

from __future__ import annotations

from collections.abc import Iterable

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


def sum_by_model(totals: Iterable[UsageTotal]) -> tuple[UsageTotal, ...]:
    """Sum totals, such as those of several days, by model, ordered by its name."""
    sums: dict[str, UsageTotal] = {}
    for each in totals:
        so_far = sums.get(each.model, UsageTotal(model=each.model))
        sums[each.model] = UsageTotal(
            model=each.model,
            **{name: getattr(so_far, name) + getattr(each, name) for name in _SUMS},
        )
    return tuple(sums[model] for model in sorted(sums))


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
