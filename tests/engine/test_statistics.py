"""Statistics lose no count on the way to the screen."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from edenmem.engine.statistics import MemoryStatistics, daily, gather, weekly
from edenmem.models.statistics import FormedOnDay, UsageOnDay
from tests.engine.conftest import Cast

NOW = datetime(2026, 3, 18, 12, tzinfo=UTC)

_days = st.dates(date(2025, 12, 1), date(2026, 4, 1)).map(date.isoformat)
_count = st.integers(0, 50)


@given(
    st.lists(st.builds(FormedOnDay, day=_days, facts=_count, reflections=_count), max_size=30),
    st.dates(date(2025, 11, 1), date(2025, 12, 1)),
)
def test_weeks_are_complete(days: list[FormedOnDay], begin: date) -> None:
    first = begin - timedelta(days=begin.weekday())
    weeks = weekly(days, first, NOW.date())
    assert sum(week.facts for week in weeks) == sum(day.facts for day in days)
    assert sum(week.reflections for week in weeks) == sum(day.reflections for day in days)
    mondays = [date.fromisoformat(week.week) for week in weeks]
    assert mondays[0] == first
    assert mondays[-1] <= NOW.date() < mondays[-1] + timedelta(weeks=1)
    assert {later - one for one, later in pairwise(mondays)} == {timedelta(weeks=1)}


@given(
    st.lists(
        st.builds(UsageOnDay, day=_days, model=st.sampled_from("abc"), calls=_count),
        max_size=20,
        unique_by=lambda usage: (usage.day, usage.model),
    )
)
def test_days_sum_their_models(days: list[UsageOnDay]) -> None:
    merged = daily(days)
    assert [day.day for day in merged] == sorted({day.day for day in days})
    assert sum(day.calls for day in merged) == sum(day.calls for day in days)


def _statistics(cast: Cast, agent_id: str | None = None) -> MemoryStatistics:
    return gather(cast.store, since=NOW - timedelta(weeks=4), now=NOW, agent_id=agent_id)


def test_an_empty_memory_has_statistics(cast: Cast) -> None:
    statistics = _statistics(cast)
    assert len(statistics.weeks) == 5
    assert statistics.days == ()
