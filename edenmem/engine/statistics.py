"""Compute statistics of memory over time from the counts of the store."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta

import msgspec

from edenmem.models.ids import as_utc
from edenmem.models.memory import HeldCount
from edenmem.models.statistics import FactUse, FormedOnDay, KindCount, UsageOnDay, sum_usage
from edenmem.store.protocol.store import Store


class WeekCount(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of the week that begins on the Monday ``week`` (ISO 8601 date, UTC)."""

    week: str
    facts: int = 0
    reflections: int = 0


class MemoryStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics; counts are those at the time ``at``, ``weeks`` and ``days`` begin at ``since``.

    ``weeks`` has every week of the period, ``days`` only those with model calls.
    """

    at: datetime
    since: datetime
    agent_id: str | None
    weeks: tuple[WeekCount, ...]
    kinds: tuple[KindCount, ...]
    use: FactUse
    days: tuple[UsageOnDay, ...]
    rejected: dict[str, int] = {}
    held: HeldCount = HeldCount()


def gather(
    store: Store,
    *,
    since: datetime,
    now: datetime,
    agent_id: str | None = None,
) -> MemoryStatistics:
    """Compute the statistics.

    Args:
        store: The store.
        since: The beginning of growth (from the Monday of that week) and cost.
        now: The end of the period.
        agent_id: Only this agent's memory.
    """
    first = _monday(as_utc(since).date())
    begin = as_utc(datetime(first.year, first.month, first.day, tzinfo=as_utc(now).tzinfo))
    counts = store.statistics.counts(agent_id=agent_id, since=begin)
    return MemoryStatistics(
        at=now,
        since=since,
        agent_id=agent_id,
        weeks=weekly(counts.days, first, now.date()),
        kinds=counts.kinds,
        use=counts.use,
        days=tuple(store.usage.usage_by_day(agent_id=agent_id, since=since)),
        rejected=_by_rule(store.statistics.count_rejections(agent_id=agent_id, since=since)),
        held=store.memory.count_held(agent_id=agent_id),
    )


def _by_rule(rejected: Mapping[str, int]) -> dict[str, int]:
    """Count rejections by single rule, most frequent first."""
    counts: Counter[str] = Counter()
    for rules, count in rejected.items():
        for rule in rules.split(","):
            counts[rule.strip()] += count
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def weekly(days: Iterable[FormedOnDay], first: date, last: date) -> tuple[WeekCount, ...]:
    """Sum days by week, from the one that begins on ``first`` to that of ``last``.

    Days after ``last``, due to a wrong clock, count in the last week.
    """
    facts, reflections = Counter[date](), Counter[date]()
    final = _monday(last)
    for day in days:
        week = min(_monday(date.fromisoformat(day.day)), final)
        facts[week] += day.facts
        reflections[week] += day.reflections
    count = max((final - first).days // 7 + 1, 0)
    mondays = [first + timedelta(weeks=number) for number in range(count)]
    return tuple(
        WeekCount(
            week=monday.isoformat(),
            facts=facts[monday],
            reflections=reflections[monday],
        )
        for monday in mondays
    )


def daily(days: Sequence[UsageOnDay]) -> list[UsageOnDay]:
    """Sum the usage of all models by day, oldest first; ``model`` lists their names."""
    found = defaultdict[str, list[UsageOnDay]](list)
    for one in days:
        found[one.day].append(one)
    return [
        UsageOnDay(day=day, model=", ".join(each.model for each in calls), **sum_usage(calls))
        for day, calls in sorted(found.items())
    ]


def _monday(day: date) -> date:
    return day - timedelta(days=day.weekday())
