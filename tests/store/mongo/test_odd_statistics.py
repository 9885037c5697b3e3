"""Statistics over damaged documents."""

from __future__ import annotations

import math
from typing import Any

import pytest
from bson import ObjectId

from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.models.statistics import FactUse, sum_by_model
from edenmem.store.mongo import MongoStore
from tests.support.builders import NOW
from tests.support.memory import add_fact

pytestmark = pytest.mark.slow

AGENT = new_id()


def test_no_value_of_a_fact_stops_the_count(mongo: MongoStore, database: Any) -> None:
    facts = [add_fact(mongo, Scope.agent(AGENT), f"fact {n}") for n in range(6)]
    mongo.search.track_access([facts[0].id], NOW)
    for fact, odd in zip(facts[1:], ("many", math.nan, math.inf, -3, [1]), strict=True):
        database.memory2_facts.update_one(
            {"_id": ObjectId(fact.id)},
            {"$set": {"access_count": odd, "formed_at": "then", "hash": None, "user_id": fact.id}},
        )
    assert mongo.statistics.counts().use == FactUse(facts=6, never=5, accesses=1)
    assert sum(day.facts for day in mongo.statistics.counts().days) == 1


@pytest.mark.parametrize(
    "calls",
    [
        "calls",
        [5],
        [{"input_tokens": "5", "cost": "1"}],
        [{"model": {"name": "m"}, "input_tokens": math.nan, "cost": math.inf}],
    ],
    ids=repr,
)
def test_no_record_of_a_call_stops_the_sum(mongo: MongoStore, database: Any, calls: Any) -> None:
    record = {"agent_id": ObjectId(AGENT), "at": NOW, "calls": calls}
    database.memory2_usage.insert_one(record)
    (day,) = mongo.usage.usage_by_day(agent_id=AGENT)
    (total,) = sum_by_model(mongo.usage.usage_by_day(agent_id=AGENT))
    assert (day.calls, day.input_tokens, day.cost) == (1, 0, 0)
    assert (total.calls, total.input_tokens, total.cost) == (1, 0, 0)
