"""The cost of models, of formations and other work, summed by model."""

from __future__ import annotations

import pytest

from edenmem.models.formation import CallUsage, UsageEntry, UsageTotal
from edenmem.models.ids import new_id
from edenmem.models.statistics import sum_by_model
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, ago, make_formation, make_messages, make_session
from tests.support.formations import Steps

AGENT = new_id()


def call(model: str = "small", tokens: int = 10, cost: float | None = None) -> CallUsage:
    return CallUsage(task="t", model=model, input_tokens=tokens, output_tokens=1, cost=cost)


def entry(*calls: CallUsage, **fields: object) -> UsageEntry:
    own = {"id": new_id(), "at": NOW, "agent_id": AGENT, "work": "consolidation", **fields}
    return UsageEntry(calls=calls, **own)


def test_nothing_was_spent_in_a_new_store(store: Store) -> None:
    assert sum_by_model(store.usage.usage_by_day()) == ()
    store.usage.add_usage(entry())
    assert sum_by_model(store.usage.usage_by_day()) == ()


def test_calls_are_summed_by_model(store: Store) -> None:
    store.usage.add_usage(entry(call("small", 10, 0.25), call("large", 7), call("small", 5)))
    store.usage.add_usage(entry(call("small", 1, 0.5)))
    large, small = sum_by_model(store.usage.usage_by_day())
    assert large == UsageTotal(model="large", calls=1, input_tokens=7, output_tokens=1, unpriced=1)
    assert small == UsageTotal(
        model="small", calls=3, input_tokens=16, output_tokens=3, cost=0.75, unpriced=1
    )


def test_an_entry_counts_once(store: Store) -> None:
    once = entry(call())
    store.usage.add_usage(once)
    store.usage.add_usage(once)
    assert [total.calls for total in sum_by_model(store.usage.usage_by_day())] == [1]


@pytest.mark.parametrize("end", ["applied", "released", "failed"])
def test_formations_count_with_their_failed_attempts(store: Store, end: str) -> None:
    session = make_session([AGENT])
    store.host.put_session(session)
    messages = make_messages(session, 2)
    store.host.add_messages(session.id, messages)
    formation = make_formation(session, messages)
    assert store.formations.claim(formation)
    Steps(store).release(
        formation.id, worker="worker-1", now=NOW, usage=(call("small", 3),), error="no answer"
    )
    Steps(store).claim(formation.id, worker="worker-1", now=NOW, lease_until=NOW)
    match end:
        case "failed":
            Steps(store).fail(
                formation.id, worker="worker-1", now=NOW, error="x", usage=(call("small", 4),)
            )
        case "released":
            Steps(store).release(
                formation.id, worker="worker-1", now=NOW, usage=(call("small", 4),)
            )
        case _:
            assert Steps(store).record(formation.id, usage=(call("small", 4),))
            Steps(store).apply(formation.id, now=NOW)
    store.usage.add_usage(entry(call("small", 100)))
    assert [
        (t.model, t.calls, t.input_tokens) for t in sum_by_model(store.usage.usage_by_day())
    ] == [("small", 3, 107)]


def test_usage_is_filtered_by_time_and_agent(store: Store) -> None:
    other = new_id()
    store.usage.add_usage(entry(call("small", 1), at=ago(days=8)))
    store.usage.add_usage(entry(call("small", 2), at=ago(hours=3)))
    store.usage.add_usage(entry(call("small", 4), agent_id=other))
    session = make_session([AGENT])
    store.host.put_session(session)
    messages = make_messages(session, 1)
    store.host.add_messages(session.id, messages)
    assert store.formations.claim(
        make_formation(session, messages, now=ago(days=2), usage=(call("x", 8),))
    )

    def tokens(**narrow: object) -> int:
        return sum(total.input_tokens for total in sum_by_model(store.usage.usage_by_day(**narrow)))

    assert tokens() == 15
    assert tokens(agent_id=AGENT) == 11
    assert tokens(since=ago(days=7)) == 14
    assert tokens(since=ago(hours=3)) == 6
    assert tokens(since=ago(hours=3), agent_id=AGENT) == 2
    assert tokens(agent_id=new_id()) == 0
