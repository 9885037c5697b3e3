"""Statistics lose no count on the way to the screen or the page."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from edenmem.engine.stats.page import page, ticks_of
from edenmem.engine.stats.statistics import MemoryStatistics, daily, gather, weekly
from edenmem.models.changes import WriteConsolidation
from edenmem.models.formation import CallUsage, UsageEntry
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.models.statistics import FormedOnDay, UsageOnDay
from edenmem.settings.schema import Settings
from tests.engine.conftest import Cast
from tests.support.memory import add_fact, add_reflection, applied

NOW = datetime(2026, 3, 18, 12, tzinfo=UTC)
HOSTILE = "</td><script>alert(1)</script> {{ 7 * 7 }} \x1b[2J <img src=x onerror=alert(1)>"

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


class _Page(HTMLParser):
    """Collect a page's scripts, fetched URLs and words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name.startswith("on") or name in ("src", "href", "xlink:href", "action"):
                self.addresses.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        self.words += data


def _statistics(cast: Cast, agent_id: str | None = None) -> MemoryStatistics:
    return gather(
        cast.store,
        Settings(),
        since=NOW - timedelta(weeks=4),
        now=NOW,
        agent_id=agent_id,
        top=2,
    )


def test_an_empty_memory_has_statistics_and_a_page(cast: Cast) -> None:
    statistics = _statistics(cast)
    assert len(statistics.weeks) == 5
    assert (statistics.text_count, statistics.texts, statistics.days) == (0, (), ())
    words = _Page(page(statistics, cast.store, place="here")).words
    assert "No texts yet." in words
    assert "There is no memory from this time." in words


def test_the_fullest_texts_come_first_and_long_ones_are_counted(cast: Cast) -> None:
    shard = cast.add_shard("route", word_limit=3)
    for scope, text in (
        (cast.agent_scope, "Some words."),
        (cast.anna_scope, "Three words here."),
        (shard, "One too many words."),
    ):
        applied(
            cast.store,
            WriteConsolidation(scope=scope, expected_version=0, content=text, word_limit=3, at=NOW),
        )
    statistics = _statistics(cast, cast.eve.id)
    assert [text.scope for text in statistics.texts] == [shard, cast.anna_scope]
    assert (statistics.text_count, statistics.over_limit) == (3, 1)


def test_an_empty_text_is_not_listed(cast: Cast) -> None:
    add_fact(cast.store, cast.agent_scope, "The scope has a fact.")
    for version, content in enumerate(("Some words.", "")):
        applied(
            cast.store,
            WriteConsolidation(
                scope=cast.agent_scope,
                expected_version=version,
                content=content,
                word_limit=3,
                at=NOW,
            ),
        )
    statistics = _statistics(cast)
    assert (statistics.text_count, statistics.texts) == (0, ())


def test_the_page_runs_and_fetches_nothing(cast: Cast) -> None:
    """Known failure 33: stored text closed a tag and became part of the page."""
    cast.add_shard(HOSTILE)
    shard = Scope.shard(cast.eve.id, HOSTILE)
    fact = add_fact(cast.store, shard, HOSTILE, formed_at=NOW)
    add_reflection(cast.store, shard, content=HOSTILE, formed_at=NOW)
    applied(
        cast.store,
        WriteConsolidation(scope=shard, expected_version=0, content=HOSTILE, word_limit=9, at=NOW),
    )
    cast.store.changes.track_access([fact.id], NOW)
    call = CallUsage(task="t", model=HOSTILE, input_tokens=10, output_tokens=1, cost=0.5)
    cast.store.usage.add_usage(
        UsageEntry(id=new_id(), at=NOW, agent_id=cast.eve.id, work="w", calls=(call,))
    )
    text = page(_statistics(cast), cast.store, place=HOSTILE)
    read = _Page(text)
    assert not read.tags & {"script", "img", "link", "iframe", "object", "foreignobject"}
    assert read.addresses == []
    assert re.findall(r"https?://", text) == []
    assert "{{ 7 * 7 }}" in read.words
    assert "\x1b" not in text
    assert read.tags >= {"svg", "table"}
    assert "prefers-color-scheme: dark" in text


@given(st.floats(1e-3, 1e9))
def test_a_scale_has_a_few_round_numbers(highest: float) -> None:
    ticks = ticks_of(highest)
    assert ticks[0] == 0
    assert 2 <= len(ticks) <= 6
    assert ticks[-1] <= highest
    assert f"{ticks[1]:.3e}"[:5] in ("1.000", "2.000", "5.000")


def test_the_same_memory_gives_the_same_page(cast: Cast) -> None:
    add_fact(cast.store, cast.anna_scope, formed_at=NOW)
    statistics = _statistics(cast)
    assert page(statistics, cast.store, place="x") == page(statistics, cast.store, place="x")
