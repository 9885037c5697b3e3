"""Reading and changing facts."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from edenmem.models.changes import AddFact, ChangeStatus, RemoveFact, ReviseFact
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, ago, make_fact
from tests.support.memory import add_fact, add_facts, applied, apply, facts_of
from tests.support.vectors import count_models, random_unit

LATER = NOW + timedelta(hours=1)
AGENT = new_id()
USER = new_id()
SCOPE = Scope.user(AGENT, USER)
EVERY_SCOPE = (
    Scope.agent(AGENT),
    Scope.shard(AGENT, "garden: lore/2 🌱"),
    Scope.group(AGENT, new_id()),
    SCOPE,
)


def without_vector(fact: Fact) -> Fact:
    return msgspec.structs.replace(fact, embedding=None)


def revise(fact: Fact, content: str = "Anna lives in Porto.", **fields: object) -> ReviseFact:
    defaults = {"scope": fact.home, "expected_version": fact.version, "at": LATER}
    return ReviseFact(fact_id=fact.id, content=content, **{**defaults, **fields})


def remove(fact: Fact, **fields: object) -> RemoveFact:
    defaults = {"scope": fact.home, "expected_version": fact.version, "at": LATER}
    return RemoveFact(fact_id=fact.id, **{**defaults, **fields})


# -- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", EVERY_SCOPE, ids=lambda scope: scope.kind)
def test_a_fact_comes_back_as_it_was_added(store: Store, scope: Scope) -> None:
    fact = make_fact(
        scope,
        session_id=new_id(),
        source_message_ids=(new_id(), new_id()),
        version=3,
        previous_content="Anna lives in Porto.",
        formed_at=ago(days=2, milliseconds=7),
        updated_at=ago(days=1),
        access_count=4,
        last_accessed_at=ago(hours=1),
        private=True,
        formation_id=new_id(),
        embedding_model="model-a",
        embedding=random_unit(1, 384),
    )
    add_facts(store, fact)
    assert store.memory.fact(fact.id, with_vector=True) == fact
    assert store.memory.fact(fact.id) == without_vector(fact)
    assert facts_of(store, scope) == [without_vector(fact)]
    assert facts_of(store, scope, with_vectors=True) == [fact]
    assert store.memory.facts_by_ids([scope], [fact.id], with_vectors=True) == {fact.id: fact}
    assert store.memory.facts_by_hashes(scope, [fact.hash]).keys() == {fact.hash}
    assert store.memory.fact(new_id()) is None


def test_facts_are_ordered_by_last_change(store: Store) -> None:
    """Known failure 38: an old fact that was edited today was not among the recent ones."""
    old = add_fact(store, SCOPE, "old", formed_at=ago(days=30))
    middle = add_fact(store, SCOPE, "middle", formed_at=ago(days=3))
    new = add_fact(store, SCOPE, "new", formed_at=ago(days=1))
    ties = sorted(
        (add_fact(store, SCOPE, f"tie {n}", formed_at=ago(days=9)) for n in range(4)),
        key=lambda fact: fact.id,
    )
    listed = [fact.id for fact in facts_of(store, SCOPE)]
    assert listed == [new.id, middle.id, *(fact.id for fact in ties), old.id]

    applied(store, revise(old, "old, corrected", at=NOW))
    listed = [fact.id for fact in facts_of(store, SCOPE)]
    assert listed == [old.id, new.id, middle.id, *(fact.id for fact in ties)]
    some = store.memory.facts(FactFilter(scopes=(SCOPE,)), limit=2)
    assert [fact.id for fact in some] == listed[:2]

    recent = store.memory.recent_facts([SCOPE], since=ago(days=3), limit=10, live_at=NOW)
    assert [fact.id for fact in recent] == [old.id, new.id, middle.id]
    recent = store.memory.recent_facts([SCOPE], since=ago(days=3), limit=1, live_at=NOW)
    assert [fact.id for fact in recent] == [old.id]
    assert store.memory.recent_facts([SCOPE], since=ago(days=3), limit=0, live_at=NOW) == []


@pytest.mark.slow
def test_large_numbers_of_facts_are_all_read(store: Store) -> None:
    """Known failures 10 and 23: the first page was taken for the whole."""
    facts = [
        make_fact(SCOPE, f"fact {n}", formed_at=ago(seconds=n), embedding=random_unit(n, 4))
        for n in range(510)
    ]
    add_facts(store, *facts)
    assert [fact.id for fact in facts_of(store, SCOPE)] == [fact.id for fact in facts]
    assert len(store.memory.facts_by_ids([SCOPE], [fact.id for fact in facts])) == 510
    assert len(store.memory.facts_by_hashes(SCOPE, [fact.hash for fact in facts])) == 510
    applied(store, *(remove(fact) for fact in facts[100:120]))
    assert len(facts_of(store, SCOPE)) == 490


@pytest.mark.slow
def test_the_store_can_be_written_during_an_iteration(store: Store) -> None:
    facts = [make_fact(SCOPE, f"fact {n}", formed_at=ago(seconds=n)) for n in range(300)]
    add_facts(store, *facts)
    reading = store.memory.facts(FactFilter(scopes=(SCOPE,)))
    assert next(reading).id == facts[0].id
    add_fact(store, SCOPE, "one more", formed_at=LATER)
    applied(store, revise(facts[5], "changed"))
    rest = [fact.id for fact in reading]
    assert len(rest) == len(set(rest))
    assert set(rest) >= {fact.id for fact in facts[6:]}


# -- adding --------------------------------------------------------------------------------------


def test_two_users_can_share_a_sentence(store: Store) -> None:
    """Known failure 1: a unique index on hash and agent refused the second user's fact."""
    scopes = [
        *EVERY_SCOPE,
        Scope.user(AGENT, new_id()),
        Scope.shard(AGENT, "other"),
        Scope.user(new_id(), USER),
    ]
    results = apply(store, *(AddFact(fact=make_fact(scope)) for scope in scopes))
    assert [result.status for result in results] == [ChangeStatus.APPLIED] * len(scopes)
    for scope in scopes:
        assert len(facts_of(store, scope)) == 1


# -- access and vectors --------------------------------------------------------------------------


def test_access_is_counted_for_the_given_facts(store: Store) -> None:
    one, two = add_fact(store, SCOPE, "one"), add_fact(store, SCOPE, "two")
    store.search.track_access([one.id, new_id()], LATER)
    store.search.track_access([one.id], LATER + timedelta(hours=1))
    store.search.track_access([], LATER)
    counted = store.memory.fact(one.id)
    assert counted is not None
    assert (counted.access_count, counted.last_accessed_at) == (2, LATER + timedelta(hours=1))
    assert counted.recent_at == one.recent_at
    assert counted.version == 1
    assert store.memory.fact(two.id) == two


def test_vectors_are_set_only_for_the_text_that_was_embedded(store: Store) -> None:
    facts = [add_fact(store, SCOPE, f"fact {n}") for n in range(3)]
    applied(store, revise(facts[1], "changed meanwhile"))
    vectors = {fact.id: (fact.hash, random_unit(n)) for n, fact in enumerate(facts)}
    vectors[new_id()] = (facts[0].hash, random_unit(9))
    assert store.vectors.set_vectors(vectors, model="m") == 2
    stored = store.memory.facts_by_ids([SCOPE], [fact.id for fact in facts], with_vectors=True)
    assert stored[facts[0].id].embedding == random_unit(0)
    assert stored[facts[0].id].embedding_model == "m"
    assert (stored[facts[1].id].embedding, stored[facts[1].id].embedding_model) == (None, None)
    assert stored[facts[2].id].embedding == random_unit(2)
    assert stored[facts[2].id].version == 1
    assert store.vectors.set_vectors({}, model="m") == 0
    replaced = {facts[0].id: (facts[0].hash, random_unit(7, 16))}
    assert store.vectors.set_vectors(replaced, model="n") == 1
    assert count_models(store) == {"m": 1, "n": 1, "": 1}


def test_models_are_counted_in_scopes_or_everywhere(store: Store) -> None:
    other = Scope.user(AGENT, new_id())
    add_fact(store, SCOPE, "1", embedding=random_unit(1), embedding_model="a")
    add_fact(store, SCOPE, "2")
    add_fact(store, other, "3", embedding=random_unit(3), embedding_model="b")
    assert store.vectors.vector_model_names([SCOPE]) == ("a",)
    assert store.vectors.vector_model_names([]) == ()
    assert count_models(store) == {"a": 1, "b": 1, "": 1}


def test_facts_in_doubt_are_listed(store: Store) -> None:
    fact = add_fact(store, SCOPE, unconfirmed="why", quote="I row")
    add_fact(store, SCOPE, "Anna rows on Mondays.")
    assert list(store.memory.facts(FactFilter(scopes=(SCOPE,), unconfirmed=True))) == [fact]
