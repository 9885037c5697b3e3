"""Facts without a vector of the configured model are found and counted until they have one."""

from __future__ import annotations

import pytest

from edenmem.models.ids import new_id
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter, Question
from edenmem.store.mongo.search import vectors as mongo
from edenmem.store.protocol.search import VectorCount
from edenmem.store.protocol.store import Store
from edenmem.store.sqlite.search import vectors as sqlite
from tests.support.builders import make_fact, revision
from tests.support.memory import add_fact, add_facts, applied
from tests.support.vectors import random_unit, unit

AGENT, OTHER_AGENT = "1" * 24, "2" * 24
SCOPE = Scope.user(AGENT, new_id())
SHARED = Scope.agent(AGENT)
ELSEWHERE = Scope.agent(OTHER_AGENT)


@pytest.fixture
def mixed(store: Store) -> dict[str, Fact]:
    """One fact of each kind, of two agents."""
    vector = {"embedding": random_unit(1), "embedding_model": "new"}
    old = {"embedding": random_unit(2, 4), "embedding_model": "old"}
    return {
        "current": add_fact(store, SCOPE, "current", **vector),
        "bare": add_fact(store, SCOPE, "bare"),
        "old": add_fact(store, SHARED, "old", **old),
        "elsewhere": add_fact(store, ELSEWHERE, "elsewhere"),
        "current elsewhere": add_fact(store, ELSEWHERE, "current", **vector),
    }


def stale(store: Store, **wanted: object) -> list[str]:
    wanted = {"dimensions": len(random_unit(1)) // 4, **wanted}
    return [fact.content for fact in store.vectors.stale_facts("new", **wanted)]  # type: ignore[arg-type]


def test_facts_without_a_vector_or_of_another_model_are_stale(
    store: Store, mixed: dict[str, Fact]
) -> None:
    assert sorted(stale(store)) == ["bare", "elsewhere", "old"]
    assert sorted(stale(store, dimensions=None)) == ["bare", "elsewhere", "old"]
    assert sorted(stale(store, agent_id=AGENT)) == ["bare", "old"]
    assert stale(store, agent_id=OTHER_AGENT) == ["elsewhere"]
    assert stale(store, agent_id=new_id()) == []
    found = {fact.content: fact for fact in store.vectors.stale_facts("new", dimensions=None)}
    assert found["old"] == store.memory.fact(mixed["old"].id)
    assert found["old"].embedding is None


def test_counts_are_by_agent_and_model(store: Store, mixed: dict[str, Fact]) -> None:
    length = len(random_unit(1)) // 4
    of_first = [
        VectorCount(agent_id=AGENT, model="", facts=1),
        VectorCount(agent_id=AGENT, model="new", facts=1),
        VectorCount(agent_id=AGENT, model="old", facts=1),
    ]
    of_second = [
        VectorCount(agent_id=OTHER_AGENT, model="", facts=1),
        VectorCount(agent_id=OTHER_AGENT, model="new", facts=1),
    ]
    assert store.vectors.vector_counts("new", dimensions=length) == of_first + of_second
    assert store.vectors.vector_counts("new", dimensions=None) == of_first + of_second
    assert store.vectors.vector_counts("new", dimensions=length, agent_id=OTHER_AGENT) == of_second
    assert store.vectors.vector_counts("new", dimensions=length, agent_id=new_id()) == []


def test_vectors_of_a_wrong_length_are_stale_and_counted(
    store: Store, mixed: dict[str, Fact]
) -> None:
    assert sorted(stale(store, dimensions=3)) == sorted(f.content for f in mixed.values())
    counts = store.vectors.vector_counts("new", dimensions=3)
    assert [count.wrong_length for count in counts if count.model == "new"] == [1, 1]
    assert {count.wrong_length for count in counts if count.model != "new"} == {0}


def test_a_fact_with_a_new_vector_is_not_stale(store: Store, mixed: dict[str, Fact]) -> None:
    """A killed backfill resumes without any stored progress."""
    walk = store.vectors.stale_facts("new", dimensions=len(random_unit(1)) // 4)
    done = [next(walk), next(walk)]
    store.vectors.set_vectors({f.id: (f.hash, random_unit(3)) for f in done}, model="new")
    left = {"bare", "elsewhere", "old"} - {fact.content for fact in done}
    assert [fact.content for fact in walk] == list(left)
    assert stale(store) == list(left)


def test_a_changed_fact_is_stale_again(store: Store, mixed: dict[str, Fact]) -> None:
    old = mixed["current"]
    change = revision(old, "changed text", scope=SCOPE)
    applied(store, change)
    assert "changed text" in stale(store)


def test_each_stale_fact_is_listed_once_during_a_backfill(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than two pages, in two scopes; the first are written while the last are read."""
    monkeypatch.setattr(mongo, "BATCH", 5)
    monkeypatch.setattr(sqlite, "BATCH", 5)
    for scope in (SCOPE, SHARED):
        add_facts(store, *(make_fact(scope, f"fact {n}") for n in range(12)))
    seen: list[str] = []
    for fact in store.vectors.stale_facts("new", dimensions=None, agent_id=AGENT):
        seen.append(fact.id)
        if len(seen) % 4 == 0:
            given = store.memory.facts_by_ids([SCOPE, SHARED], seen[-3:]).values()
            store.vectors.set_vectors({f.id: (f.hash, random_unit(1)) for f in given}, model="new")
    assert len(seen) == len(set(seen)) == 24
    assert len(stale(store)) == 24 - 18


@pytest.mark.parametrize(("scopes", "count"), [([SCOPE], 1), ([SCOPE, SHARED], 2), ([], 0)])
def test_facts_without_a_vector_of_the_model_are_counted(
    store: Store, mixed: dict[str, Fact], scopes: list[Scope], count: int
) -> None:
    filter = FactFilter(scopes=tuple(scopes))
    question = Question("", random_unit(1))
    found = store.search.candidates(filter, [question], ["semantic"], model="new", limit=1)
    assert found.without_vector == count


def test_the_models_of_vectors_are_listed(store: Store, mixed: dict[str, Fact]) -> None:
    assert store.vectors.vector_model_names([SCOPE]) == ("new",)
    assert store.vectors.vector_model_names([SHARED, SCOPE]) == ("new", "old")
    assert store.vectors.vector_model_names([SCOPE, ELSEWHERE]) == ("new",)
    assert store.vectors.vector_model_names([Scope.agent(new_id())]) == ()
    assert store.vectors.vector_model_names([]) == ()


def test_the_model_of_the_oldest_vector(store: Store) -> None:
    assert store.vectors.first_vector_model() == ""
    bare = add_fact(store, SCOPE, "bare")
    assert store.vectors.first_vector_model() == ""
    add_fact(store, SHARED, "zulu", embedding=random_unit(1), embedding_model="zulu")
    add_fact(store, ELSEWHERE, "alpha", embedding=random_unit(2), embedding_model="alpha")
    assert store.vectors.first_vector_model() == "zulu"
    store.vectors.set_vectors({bare.id: (bare.hash, random_unit(3))}, model="alpha")
    assert store.vectors.first_vector_model() == "alpha"


def test_a_vector_that_begins_with_zero_is_valid(store: Store) -> None:
    add_fact(store, SCOPE, "zero", embedding=unit(0.0, 1.0), embedding_model="flat")
    add_fact(store, SCOPE, "nameless")
    assert store.vectors.vector_model_names([SCOPE]) == ("flat",)
