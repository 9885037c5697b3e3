"""FAILURES 108: memory is dated by when it was said, not by when it was formed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from edenmem.models.changes import ReviseFact
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact, FactTimes, join_times
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, ago, some
from tests.support.memory import add_fact, add_reflection, applied

LONG_AGO = datetime(2023, 5, 1, 12, tzinfo=UTC)
SCOPE = Scope.user(new_id(), new_id())


def contents(store: Store, **fields: datetime) -> list[str]:
    filter = FactFilter(scopes=(SCOPE,), **fields)
    return [fact.content for fact in store.memory.facts(filter)]


def recent(store: Store, since: datetime, limit: int = 9) -> list[str]:
    return [
        fact.content
        for fact in store.memory.recent_facts((SCOPE,), since=since, limit=limit, live_at=NOW)
    ]


def revise(fact: Fact, content: str, **fields: object) -> ReviseFact:
    change = {"scope": fact.home, "fact_id": fact.id, "expected_version": fact.version, "at": NOW}
    return ReviseFact(content=content, **{**change, **fields})


@pytest.fixture
def three(store: Store) -> tuple[Fact, Fact, Fact]:
    """Facts formed now from an old chat, formed earlier by the platform, and said a day ago."""
    return (
        add_fact(store, SCOPE, "Said in 2023.", said_at=LONG_AGO, formed_at=NOW),
        add_fact(store, SCOPE, "Formed, not dated.", formed_at=ago(days=3)),
        add_fact(store, SCOPE, "Said yesterday.", said_at=ago(days=1), formed_at=ago(hours=1)),
    )


def test_recent_facts_and_lists_go_by_what_was_said(store: Store, three: tuple[Fact, ...]) -> None:
    newest_first = ["Said yesterday.", "Formed, not dated.", "Said in 2023."]
    assert contents(store) == newest_first
    assert contents(store, recent_before=ago(days=1)) == newest_first[1:]
    assert recent(store, ago(days=2000)) == newest_first
    assert recent(store, ago(days=7)) == newest_first[:2]
    assert recent(store, ago(days=2000), limit=1) == newest_first[:1]
    stored = some(store.memory.fact(three[0].id))
    assert stored.times == FactTimes(LONG_AGO)


def test_filters_mean_what_was_said_and_find_facts_without_it(
    store: Store, three: tuple[Fact, ...]
) -> None:
    assert contents(store, until=ago(days=900)) == ["Said in 2023."]
    assert contents(store, since=ago(days=7)) == ["Said yesterday.", "Formed, not dated."]
    assert contents(store, since=LONG_AGO, until=LONG_AGO + timedelta(milliseconds=1)) == [
        "Said in 2023."
    ]
    found = store.search.text_candidates(
        FactFilter(scopes=(SCOPE,), until=ago(days=900)), ["said"], limit=9
    )
    assert [[one.fact_id for one in each] for each in found] == [[three[0].id]]


def test_an_edit_counts_for_recency_alone(store: Store, three: tuple[Fact, ...]) -> None:
    """A revision with times is not an edit; one without them is."""
    old, undated, _ = three
    applied(store, revise(old, "Corrected."), revise(undated, "Corrected, too."))
    edited = some(store.memory.fact(old.id))
    assert (edited.times, edited.recent_at) == (FactTimes(LONG_AGO, NOW), NOW)
    assert sorted(recent(store, NOW)) == ["Corrected, too.", "Corrected."]
    assert contents(store, until=ago(days=900)) == ["Corrected."]
    assert contents(store, recent_before=NOW) == ["Said yesterday."]

    said = join_times([edited.said_at, NOW - timedelta(days=5)], [LONG_AGO])
    applied(store, revise(edited, "Said again.", times=said))
    again = some(store.memory.fact(old.id))
    assert (again.times, again.recent_at) == (FactTimes(ago(days=5)), ago(days=5))
    assert again.updated_at == NOW
    assert "Said again." not in recent(store, ago(days=4))


def test_days_of_statistics_are_those_of_the_conversation(
    store: Store, three: tuple[Fact, ...]
) -> None:
    scope = Scope.user(SCOPE.agent_id, SCOPE.owner)
    add_reflection(store, scope, "Wrote in 2023.", said_at=LONG_AGO)
    days = store.statistics.counts(agent_id=SCOPE.agent_id).days
    assert (days[0].day, days[0].facts, days[0].reflections) == ("2023-05-01", 1, 1)
    assert sum(day.facts for day in days) == 3
    since = store.statistics.counts(agent_id=SCOPE.agent_id, since=ago(days=900)).days
    assert sum(day.facts for day in since) == 2


def test_reflections_are_found_by_when_they_were_said(store: Store) -> None:
    add_reflection(store, SCOPE, "Wrote in 2023.", said_at=LONG_AGO)
    add_reflection(store, SCOPE, "Wrote today.")
    for bounds, found in (
        ({"before": ago(days=900)}, ["Wrote in 2023."]),
        ({"since": ago(days=900)}, ["Wrote today."]),
    ):
        assert [each.content for each in store.memory.reflections((SCOPE,), **bounds)] == found


def test_memory_of_a_moment_has_what_was_known_then(store: Store, three: tuple[Fact, ...]) -> None:
    """A chat of 2023 that was imported now was not known a minute ago."""
    old, *_ = three
    before = store.history.facts_at((SCOPE,), NOW - timedelta(minutes=1), limit=9)
    assert [fact.content for fact in before] == ["Said yesterday.", "Formed, not dated."]
    later = NOW + timedelta(hours=1)
    applied(store, revise(old, "Corrected.", at=later), at=later)
    (then,) = (f for f in store.history.facts_at((SCOPE,), NOW, limit=9) if f.id == old.id)
    assert (then.content, then.times) == ("Said in 2023.", FactTimes(LONG_AGO))
