"""Compute statistics of memory over time from the counts of the store."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta

import msgspec

from edenmem.engine.scopes.overview import word_limit_of
from edenmem.models.backup import RecordKind, Selection
from edenmem.models.ids import as_utc
from edenmem.models.memory import HeldCount
from edenmem.models.scope import Scope
from edenmem.models.statistics import FactUse, FormedOnDay, KindCount, UsageOnDay
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store, batched
from edenmem.text import word_count

#: Texts whose policies are read together.
_BATCH = 500


class WeekCount(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of the week that begins on the Monday ``week`` (ISO 8601 date, UTC)."""

    week: str
    facts: int = 0
    reflections: int = 0


class TextSize(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a scope's text, and its limit, in words."""

    scope: Scope
    words: int
    word_limit: int
    version: int
    last_consolidated_at: datetime | None = None


class MemoryStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics; sizes are those at the time ``at``, ``weeks`` and ``days`` begin at ``since``.

    ``weeks`` has every week of the period, ``days`` only those with model calls. ``texts`` are the
    fullest ones relative to their word limit, of ``text_count``, of which ``over_limit`` exceed
    their limit.
    """

    at: datetime
    since: datetime
    agent_id: str | None
    weeks: tuple[WeekCount, ...]
    kinds: tuple[KindCount, ...]
    texts: tuple[TextSize, ...]
    text_count: int
    over_limit: int
    use: FactUse
    days: tuple[UsageOnDay, ...]
    rejected: dict[str, int] = {}
    held: HeldCount = HeldCount()


def gather(
    store: Store,
    settings: Settings,
    *,
    since: datetime,
    now: datetime,
    agent_id: str | None = None,
    top: int = 5,
) -> MemoryStatistics:
    """Compute the statistics.

    Args:
        store: The store.
        settings: The word limits.
        since: The beginning of growth (from the Monday of that week) and cost.
        now: The end of the period.
        agent_id: Only this agent's memory.
        top: Number of listed texts.
    """
    first = _monday(as_utc(since).date())
    begin = as_utc(datetime(first.year, first.month, first.day, tzinfo=as_utc(now).tzinfo))
    counts = store.statistics.counts(agent_id=agent_id, since=begin)
    texts = list(_text_sizes(store, settings, agent_id))
    return MemoryStatistics(
        at=now,
        since=since,
        agent_id=agent_id,
        weeks=weekly(counts.days, first, now.date()),
        kinds=counts.kinds,
        texts=tuple(heapq.nlargest(top, texts, key=_fill)),
        text_count=len(texts),
        over_limit=sum(text.words > text.word_limit for text in texts),
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
    facts: dict[date, int] = {}
    reflections: dict[date, int] = {}
    final = _monday(last)
    for day in days:
        week = min(_monday(date.fromisoformat(day.day)), final)
        facts[week] = facts.get(week, 0) + day.facts
        reflections[week] = reflections.get(week, 0) + day.reflections
    count = max((final - first).days // 7 + 1, 0)
    mondays = [first + timedelta(weeks=number) for number in range(count)]
    return tuple(
        WeekCount(
            week=monday.isoformat(),
            facts=facts.get(monday, 0),
            reflections=reflections.get(monday, 0),
        )
        for monday in mondays
    )


def daily(days: Sequence[UsageOnDay]) -> list[UsageOnDay]:
    """Sum the usage of all models by day, oldest first; ``model`` lists their names."""
    merged: dict[str, UsageOnDay] = {}
    for one in days:
        so_far = merged.get(one.day)
        if so_far is None:
            merged[one.day] = one
            continue
        merged[one.day] = UsageOnDay(
            day=one.day,
            model=f"{so_far.model}, {one.model}",
            calls=so_far.calls + one.calls,
            input_tokens=so_far.input_tokens + one.input_tokens,
            output_tokens=so_far.output_tokens + one.output_tokens,
            cost=so_far.cost + one.cost,
            unpriced=so_far.unpriced + one.unpriced,
            estimated=so_far.estimated + one.estimated,
        )
    return [merged[day] for day in sorted(merged)]


def _monday(day: date) -> date:
    return day - timedelta(days=day.weekday())


def _text_sizes(store: Store, settings: Settings, agent_id: str | None) -> Iterator[TextSize]:
    """Yield the sizes of all texts that have words."""
    wanted = Selection(agent_ids=() if agent_id is None else (agent_id,))
    found = store.walk.documents((RecordKind.CONSOLIDATION,), wanted)
    for batch in batched((each.record for each in found), _BATCH):
        texts = [text for text in batch if text is not None and text.version]
        policies = store.memory.policies([text.home for text in texts])
        for text in texts:
            if words := word_count(text.consolidated_content):
                scope = text.home
                yield TextSize(
                    scope=scope,
                    words=words,
                    word_limit=word_limit_of(store, settings, scope, policies.get(scope), text),
                    version=text.version,
                    last_consolidated_at=text.last_consolidated_at,
                )


def _fill(size: TextSize) -> tuple[float, str]:
    return size.words / max(size.word_limit, 1), f"{size.scope}"
