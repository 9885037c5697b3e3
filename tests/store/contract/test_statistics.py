"""Statistics about memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from edenmem.models.formation import CallUsage, Decision, UsageEntry
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.statistics import FactUse, FormedOnDay, KindCount, UsageOnDay
from edenmem.store.protocol.store import Store
from tests.support.builders import (
    make_agent,
    make_formation,
    make_message,
    make_session,
    make_user,
    writing,
)
from tests.support.formations import Steps
from tests.support.memory import add_fact, add_reflection, applied

EVE, ADAM, ANNA, BRUNO = (new_id() for _ in range(4))
EVES, ANNAS = Scope.agent(EVE), Scope.user(EVE, ANNA)
BRUNOS, ADAMS = Scope.user(EVE, BRUNO), Scope.agent(ADAM)
MONDAY = datetime(2026, 3, 2, 23, 59, 59, 999000, tzinfo=UTC)
TUESDAY = MONDAY + timedelta(milliseconds=1)


def test_a_new_store_has_nothing_to_count(store: Store) -> None:
    assert list(store.statistics.counts().days) == []
    assert list(store.usage.usage_by_day()) == []
    assert list(store.statistics.counts().kinds) == [KindCount(kind=kind) for kind in ScopeKind]
    assert store.statistics.counts().use == FactUse()


def test_formed_memory_is_counted_by_utc_day(store: Store) -> None:
    for scope, at in ((EVES, MONDAY), (ANNAS, TUESDAY), (BRUNOS, TUESDAY), (ADAMS, TUESDAY)):
        add_fact(store, scope, formed_at=at)
    add_reflection(store, ANNAS, formed_at=TUESDAY)
    monday = FormedOnDay(day="2026-03-02", facts=1)
    assert list(store.statistics.counts().days) == [
        monday,
        FormedOnDay(day="2026-03-03", facts=3, reflections=1),
    ]
    eves = FormedOnDay(day="2026-03-03", facts=2, reflections=1)
    assert list(store.statistics.counts(agent_id=EVE).days) == [monday, eves]
    assert list(store.statistics.counts(agent_id=EVE, since=TUESDAY).days) == [eves]
    assert list(store.statistics.counts(agent_id=new_id()).days) == []


def test_kinds_of_scopes_are_counted(store: Store) -> None:
    add_fact(store, ANNAS)
    add_fact(store, BRUNOS)
    add_fact(store, Scope.shard(EVE, "route"))
    absorbed, _ = (add_reflection(store, ANNAS, content=text) for text in ("One.", "Two."))
    add_reflection(store, Scope.session(EVE, new_id()))
    add_reflection(store, ADAMS)
    applied(store, writing(ANNAS, "One.", at=TUESDAY, absorbed_ids=(absorbed.id,)))
    counts = {count.kind: count for count in store.statistics.counts(agent_id=EVE).kinds}
    assert list(counts) == list(ScopeKind)
    assert counts[ScopeKind.USER] == KindCount(
        kind=ScopeKind.USER, facts=2, reflections=2, pending=1
    )
    assert counts[ScopeKind.SESSION].pending == 1
    assert counts[ScopeKind.SHARD].facts == 1
    assert counts[ScopeKind.AGENT].reflections == 0
    everybody = {count.kind: count for count in store.statistics.counts().kinds}
    assert everybody[ScopeKind.AGENT].reflections == 1


def test_how_facts_are_used(store: Store) -> None:
    often = add_fact(store, ANNAS, "Anna rows.", unconfirmed="has no quote")
    add_fact(store, BRUNOS, "Anna rows.")  # shared by both
    once = add_fact(store, EVES, "The walk is on Saturday.")
    add_fact(store, ADAMS, "Anna rows.")  # another agent's
    for _ in range(3):
        store.search.track_access([often.id], TUESDAY)
    store.search.track_access([once.id], TUESDAY)
    assert store.statistics.counts(agent_id=EVE).use == FactUse(
        facts=3, never=1, accesses=4, unconfirmed=1
    )
    assert store.statistics.counts().use == FactUse(facts=4, never=2, accesses=4, unconfirmed=1)


def test_model_costs_are_counted_by_day_and_model(store: Store) -> None:
    for at, agent, model, cost in (
        (MONDAY, EVE, "small", 0.5),
        (TUESDAY, EVE, "small", 0.25),
        (TUESDAY, EVE, "small", None),
        (TUESDAY, ADAM, "large", 1.0),
    ):
        call = CallUsage(task="t", model=model, input_tokens=10, output_tokens=1, cost=cost)
        entry = UsageEntry(id=new_id(), at=at, agent_id=agent, work="w", calls=(call,))
        store.usage.add_usage(entry)
    monday, large, small = store.usage.usage_by_day()
    assert (monday.day, monday.model, monday.cost) == ("2026-03-02", "small", pytest.approx(0.5))
    assert (large.day, large.model, large.unpriced) == ("2026-03-03", "large", 0)
    assert small == UsageOnDay(
        day="2026-03-03",
        model="small",
        calls=2,
        input_tokens=20,
        output_tokens=2,
        cost=0.25,
        unpriced=1,
    )
    assert [usage.model for usage in store.usage.usage_by_day(agent_id=EVE, since=TUESDAY)] == [
        "small"
    ]


def test_rejections_are_counted_by_rule(store: Store) -> None:
    session = make_session([make_agent("eve", id=EVE)], [make_user("anna")])
    assert store.host.put_session(session)
    for seq, (at, agent_id) in enumerate([(MONDAY, EVE), (TUESDAY, EVE), (TUESDAY, ADAM)], 1):
        message = make_message(session, f"Message {seq}.", created_at=at)
        assert store.host.add_messages(session.id, [message])
        formation = make_formation(session, [message], agent_id=agent_id, seq=seq, now=at)
        assert store.formations.claim(formation)
        assert Steps(store).record(
            formation.id,
            decisions=[
                Decision(content="Tea.", action="ADD"),
                Decision(content="Ü.", action="REJECTED", rule="names"),
                Decision(content="X.", action="REJECTED", rule="names, numbers"),
            ],
            now=at,
        )
        Steps(store).apply(formation.id, now=at, worker="worker-1")
    assert store.statistics.count_rejections() == {"names": 3, "names, numbers": 3}
    ours = store.statistics.count_rejections(agent_id=EVE, since=TUESDAY)
    assert ours == {"names": 1, "names, numbers": 1}
    assert store.statistics.count_rejections(agent_id=new_id()) == {}
