"""A switch to another embedding model: two vectors per fact, and each search uses its own.

Known failures 37 and 66: vectors of two models shared a field, and changing the model broke search.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from edenmem.errors import ConflictError, EmbeddingModelMismatch, UnavailableError
from edenmem.models.changes import RemoveFact, ReviseFact
from edenmem.models.embeddings import VectorSwitch
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, some
from tests.support.memory import add_fact, applied
from tests.support.stores import ATLAS_TOO, SECANTUS_TOO
from tests.support.vectors import begin, count_models, end, enter, random_unit

OLD_SIZE, NEW_SIZE = 32, 12
SCOPE, OTHER = Scope.agent("1" * 24), Scope.agent("2" * 24)
MINE = FactFilter(scopes=(SCOPE,))
SWITCH = VectorSwitch(model="new", dimensions=NEW_SIZE, previous="old", begun_at=NOW)


@pytest.fixture(params=["sqlite", SECANTUS_TOO, ATLAS_TOO])
def store(request: pytest.FixtureRequest, open_store: Callable[[str], Store]) -> Store:
    """The new vectors have a separate search index on Atlas."""
    return open_store(request.param)


@pytest.fixture
def facts(store: Store) -> list[Fact]:
    """Three facts with vectors of the old model, of two agents."""
    return [
        add_fact(
            store, scope, f"fact {n}", embedding=random_unit(n, OLD_SIZE), embedding_model="old"
        )
        for n, scope in enumerate((SCOPE, SCOPE, OTHER))
    ]


def fill(store: Store, *facts: Fact) -> int:
    """Make the new vectors of facts."""
    made = {fact.id: (fact.hash, new_vector(fact)) for fact in facts}
    return store.vectors.set_vectors(made, model="new", staged=True)


def new_vector(fact: Fact) -> bytes:
    return random_unit(int(fact.hash[:6], 16), NEW_SIZE)


def stale(store: Store) -> list[str]:
    return sorted(fact.content for fact in store.vectors.stale_facts("new", dimensions=NEW_SIZE))


def built(store: Store) -> None:
    """Wait for the index of the new vectors, if there is one."""
    while (state := store.switches.switch_index()) is not None and not state.queryable:
        pass


def by(store: Store, model: str, fact: Fact) -> list[str]:
    """The IDs that a search by the fact's own vector finds, best first."""
    vector = new_vector(fact) if model == "new" else fact.embedding
    assert vector is not None
    (found,) = store.search.semantic_candidates(MINE, [vector], model=model, limit=9)
    if found:
        assert found[0].score == pytest.approx(1.0, abs=1e-4)
    return [one.fact_id for one in found]


def switched(store: Store, facts: list[Fact]) -> None:
    begin(store, SWITCH)
    fill(store, *facts)
    built(store)
    enter(store, "switched")


def exhaust(store: Store) -> None:
    """Settle and clear completely."""
    while sum(store.switches.settle_vectors()):
        pass
    enter(store, "clearing")
    while not store.switches.drop_switch_index():
        pass
    while sum(store.switches.clear_staged()):
        pass
    end(store)


def test_there_is_one_switch_at_a_time(store: Store) -> None:
    switches, replace = store.switches, msgspec.structs.replace
    assert switches.vector_switch() is None
    assert switches.move_switch(None, SWITCH)
    again = replace(SWITCH, previous="else")
    assert not switches.move_switch(None, again)
    assert switches.vector_switch() == SWITCH
    done = replace(SWITCH, phase="switched")
    for wrong in (replace(SWITCH, model="third"), done):
        assert not switches.move_switch(wrong, replace(wrong, phase="abandoning"))
        assert not switches.move_switch(wrong, None)
    assert switches.move_switch(SWITCH, done)
    assert switches.vector_switch() == done
    enter(store, "filling", "abandoning")
    end(store)
    assert switches.vector_switch() is None
    assert not switches.move_switch(SWITCH, None)


def test_the_old_model_finds_everything_during_the_backfill(
    store: Store, facts: list[Fact]
) -> None:
    before = by(store, "old", facts[0])
    begin(store, SWITCH)
    assert stale(store) == ["fact 0", "fact 1", "fact 2"]
    assert fill(store, facts[0]) == 1
    assert by(store, "old", facts[0]) == before
    assert stale(store) == ["fact 1", "fact 2"]
    counts = {
        (c.agent_id, c.model): c.facts for c in store.vectors.vector_counts("new", dimensions=None)
    }
    assert counts == {
        (SCOPE.agent_id, "new"): 1,
        (SCOPE.agent_id, "old"): 1,
        (OTHER.agent_id, "old"): 1,
    }
    assert not list(store.vectors.stale_facts("old", dimensions=OLD_SIZE))
    stored = some(store.memory.fact(facts[0].id, with_vector=True))
    assert stored.embedding_model == "old"
    ids = [fact.id for fact in facts]
    assert store.switches.vectors_of(ids, model="new") == {facts[0].id: new_vector(facts[0])}
    assert set(store.switches.vectors_of(ids, model="old")) == set(ids)


def test_the_new_model_is_refused_before_the_switch_and_both_are_served_after_it(
    store: Store, facts: list[Fact]
) -> None:
    begin(store, SWITCH)
    fill(store, *facts)
    built(store)
    with pytest.raises(EmbeddingModelMismatch, match=r"'old'.*'new'") as caught:
        by(store, "new", facts[0])
    assert "edenmem embed use" in (caught.value.hint or "")
    assert store.switches.finds_vectors("new")
    enter(store, "switched")
    prepared = by(store, "new", facts[0])
    assert sorted(prepared) == sorted(fact.id for fact in facts[:2])
    assert sorted(by(store, "old", facts[0])) == sorted(prepared)
    enter(store, "filling")
    with pytest.raises(EmbeddingModelMismatch):
        by(store, "new", facts[0])
    assert sorted(by(store, "old", facts[0])) == sorted(prepared)


def test_a_changed_text_keeps_no_old_vector(store: Store, facts: list[Fact]) -> None:
    switched(store, facts)
    applied(
        store,
        ReviseFact(
            scope=SCOPE,
            fact_id=facts[0].id,
            expected_version=1,
            content="changed text",
            at=NOW,
            embedding=random_unit(9, OLD_SIZE),
            embedding_model="old",
        ),
        RemoveFact(scope=SCOPE, fact_id=facts[1].id, expected_version=1, at=NOW),
    )
    with pytest.raises(EmbeddingModelMismatch):  # no fact of this reader has one any longer
        by(store, "new", facts[1])
    assert stale(store) == ["changed text"]
    assert list(store.switches.vectors_of([fact.id for fact in facts[:2]], model="new")) == []
    assert fill(store, facts[0]) == 0  # it was embedded before the change
    assert stale(store) == ["changed text"]


def test_facts_learned_after_the_switch_are_found_by_the_new_model(
    store: Store, facts: list[Fact]
) -> None:
    switched(store, facts)
    late = add_fact(
        store, SCOPE, "late", embedding=random_unit(77, NEW_SIZE), embedding_model="new"
    )
    assert stale(store) == []
    assert store.switches.vectors_of([late.id], model="new") == {late.id: random_unit(77, NEW_SIZE)}
    assert [fact.id for fact in store.vectors.stale_facts("old", dimensions=OLD_SIZE)] == [late.id]
    applied(
        store,
        ReviseFact(
            scope=SCOPE,
            fact_id=facts[0].id,
            expected_version=1,
            content="changed text",
            at=NOW,
            embedding=random_unit(78, NEW_SIZE),
            embedding_model="new",
        ),
    )
    assert stale(store) == []
    assert store.switches.vectors_of([facts[0].id], model="old") == {}
    (found,) = store.search.semantic_candidates(
        MINE, [random_unit(78, NEW_SIZE)], model="new", limit=1
    )
    assert [one.fact_id for one in found] == [facts[0].id]


def test_settling_leaves_only_the_new_vectors(store: Store, facts: list[Fact]) -> None:
    switched(store, facts)
    late = add_fact(store, OTHER, "of old", embedding=random_unit(5, 32), embedding_model="old")
    enter(store, "settling")
    with pytest.raises(EmbeddingModelMismatch, match=r"'new'.*'old'"):
        by(store, "old", facts[0])
    pages = store.switches.settle_vectors()
    next(pages)  # killed here
    assert len(store.switches.vectors_of([fact.id for fact in facts], model="new")) == 3
    assert fill(store, late) == 1
    assert sum(store.switches.clear_staged()) == 0
    exhaust(store)
    assert store.switches.vector_switch() is None
    for fact in (*facts, late):
        stored = some(store.memory.fact(fact.id, with_vector=True))
        assert (stored.embedding_model, stored.embedding) == ("new", new_vector(fact))
    assert count_models(store) == {"new": 4}
    assert stale(store) == []
    assert store.switches.vectors_of([fact.id for fact in facts], model="old") == {}


def test_abandoning_restores_the_previous_state(store: Store, facts: list[Fact]) -> None:
    begin(store, SWITCH)
    fill(store, *facts[:2])
    enter(store, "abandoning")
    with pytest.raises(ConflictError, match="has ended"):
        fill(store, facts[2])
    assert sum(store.switches.settle_vectors()) == 0
    while not store.switches.drop_switch_index():
        pass
    assert sum(store.switches.clear_staged()) == 2
    assert sum(store.switches.clear_staged()) == 0
    end(store)
    with pytest.raises(ConflictError, match="has ended"):
        fill(store, facts[2])
    with pytest.raises(UnavailableError):
        by(store, "new", facts[0])
    assert sorted(by(store, "old", facts[0])) == sorted(fact.id for fact in facts[:2])
    for fact in facts:
        assert store.memory.fact(fact.id, with_vector=True) == fact


def test_a_reader_finds_only_its_own_scopes(store: Store, facts: list[Fact]) -> None:
    switched(store, facts)
    elsewhere = FactFilter(scopes=(Scope.agent(new_id()),))
    vector = new_vector(facts[0])
    assert store.search.semantic_candidates(elsewhere, [vector], model="new", limit=9) == [[]]
    (found,) = store.search.semantic_candidates(
        FactFilter(scopes=(OTHER,)), [vector], model="new", limit=9
    )
    assert [one.fact_id for one in found] == [facts[2].id]
