"""A switch of the embedding model with a platform and processes that are unaware of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from edenmem.models.changes import ReviseFact
from edenmem.models.embeddings import VectorSwitch
from edenmem.models.memory import content_hash
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core.filters import object_id
from edenmem.store.mongo.search import slots
from tests.store.mongo.conftest import OpenMongo
from tests.support.builders import NOW, some
from tests.support.memory import add_fact, applied
from tests.support.vectors import begin, end, enter, random_unit

pytestmark = pytest.mark.slow

SCOPE = Scope.agent("1" * 24)
MINE = FactFilter(scopes=(SCOPE,))
SWITCH = VectorSwitch(model="new", dimensions=6, previous="old", begun_at=NOW)
OLD: dict[str, Any] = {"embedding": random_unit(1, 4), "embedding_model": "old"}


@pytest.fixture
def store(open_mongo: OpenMongo) -> MongoStore:
    store = open_mongo()
    store.database.initialize()
    return store


def stale(store: MongoStore) -> list[str]:
    return [fact.content for fact in store.vectors.stale_facts("new", dimensions=6)]


def test_facts_changed_by_the_platform_are_embedded_again(store: MongoStore) -> None:
    """Known failures 19 and 37: changed text kept the old vector, under any model's name."""
    fact = add_fact(store, SCOPE, "as it was", **OLD)
    begin(store, SWITCH)
    store.vectors.set_vectors({fact.id: (fact.hash, random_unit(2, 6))}, model="new", staged=True)
    assert stale(store) == []
    changed = {"content": "by the platform", "hash": content_hash("by the platform")}
    store.connection.facts.update_one({"_id": object_id(fact.id)}, {"$set": changed})
    assert stale(store) == ["by the platform"]
    assert store.switches.vectors_of([fact.id], model="new") == {}
    enter(store, "switched", "settling")
    assert sum(store.switches.settle_vectors()) == 0  # it replaces none
    stored = some(store.memory.fact(fact.id, with_vector=True))
    assert stored.embedding_model == "old"


def test_a_process_with_an_outdated_switch_is_corrected(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(slots, "_CACHE_SECONDS", math.inf)  # rather than for a few seconds
    late = MongoStore(store.connection.uri, store.connection.settings)
    request.addfinalizer(late.database.close)
    assert late.switches.vector_switch() is None
    fact = add_fact(store, SCOPE, "first", **OLD)
    begin(store, SWITCH)
    store.vectors.set_vectors({fact.id: (fact.hash, random_unit(2, 6))}, model="new", staged=True)
    enter(store, "switched")
    new: dict[str, Any] = {"embedding": random_unit(3, 6), "embedding_model": "new"}
    add_fact(late, SCOPE, "put where nobody looks", **new)
    assert stale(store) == ["put where nobody looks"]
    (found,) = late.search.semantic_candidates(MINE, [random_unit(2, 6)], model="new", limit=9)
    assert [one.fact_id for one in found] == [fact.id]

    assert late.switches.vector_switch() is not None
    missing = list(store.vectors.stale_facts("new", dimensions=6))
    store.vectors.set_vectors({f.id: (f.hash, random_unit(3, 6)) for f in missing}, model="new")
    enter(store, "settling")
    assert sum(store.switches.settle_vectors()) == 1
    enter(store, "clearing")
    assert sum(store.switches.clear_staged()) == 2
    end(store)
    revision = ReviseFact(
        scope=SCOPE, fact_id=fact.id, expected_version=1, content="changed", at=NOW, **new
    )
    applied(late, revision)
    assert stale(store) == ["changed"]
    (found,) = late.search.semantic_candidates(MINE, [random_unit(3, 6)], model="new", limit=9)
    assert [one.fact_id for one in found] == [missing[0].id]


def test_no_staged_vector_remains_after_the_switch(store: MongoStore) -> None:
    fact = add_fact(store, SCOPE, "first", **OLD)
    before = store.connection.facts.find_one({"_id": object_id(fact.id)})
    begin(store, SWITCH)
    store.vectors.set_vectors({fact.id: (fact.hash, random_unit(2, 6))}, model="new", staged=True)
    enter(store, "abandoning")
    assert sum(store.switches.clear_staged()) == 1
    end(store)
    assert store.connection.facts.find_one({"_id": object_id(fact.id)}) == before
