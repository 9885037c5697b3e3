"""What a switch of the embedding model means for a file: its schema, its queries, its codes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edenmem.models.changes import ReviseFact
from edenmem.models.embeddings import VectorSwitch
from edenmem.models.indexes import IndexWish
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.sqlite import SqliteStore
from tests.store.sqlite.test_sqlite_plans import full_scans
from tests.support.builders import NOW, make_fact, removal
from tests.support.embedder import FakeEmbedder
from tests.support.memory import add_facts, apply
from tests.support.vectors import begin, end, enter, random_unit

pytestmark = pytest.mark.slow


SCOPE = Scope.agent("1" * 24)
MINE = FactFilter(scopes=(SCOPE,))
OLD, NEW = FakeEmbedder(model="old", dimensions=16), FakeEmbedder(model="new", dimensions=24)
SWITCH = VectorSwitch(model="new", dimensions=24, previous="old", begun_at=NOW)
WISH = IndexWish(dimensions=16, analyzer="lucene.english")


def known(text: str, embedder: FakeEmbedder = OLD) -> dict[str, object]:
    return {"embedding": embedder.vector(text), "embedding_model": embedder.model}


def fill(store: SqliteStore) -> None:
    stale = list(store.vectors.stale_facts("new", dimensions=24))
    vectors = {fact.id: (fact.hash, NEW.vector(fact.content)) for fact in stale}
    store.vectors.set_vectors(vectors, model="new", staged=True)


def codes(store: SqliteStore) -> tuple[str, ...]:
    (state,) = (one for one in store.indexes.list_indexes(WISH) if one.name == "vector_codes")
    return state.differences


def test_its_queries_walk_no_table(opened: SqliteStore) -> None:
    add_facts(opened, *(make_fact(SCOPE, f"{n}", **known(f"{n}")) for n in range(5)))
    statements: set[str] = set()
    with opened.connections.reading() as connection:
        connection.set_trace_callback(statements.add)
    begin(opened, SWITCH)
    fill(opened)
    for since in (None, NOW):
        filter = FactFilter(scopes=(SCOPE,), since=since)
        opened.search.semantic_candidates(filter, [OLD.vector("1")], model="old", limit=2)
    opened.vectors.vector_counts("new", dimensions=24)
    opened.switches.vectors_of(["f" * 24], model="new")
    with opened.connections.reading() as connection:
        connection.set_trace_callback(None)
        scans = [found for one in sorted(statements) for found in full_scans(connection, one)]
    assert scans == []


@settings(max_examples=10)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "add new", "revise", "remove", "fill", "commit", "back"]),
            st.integers(0, 5),
        ),
        max_size=25,
    )
)
def test_every_fact_ends_with_one_vector_of_its_text(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """Additions, edits and removals by processes of either model, fills and switches, in any
    order: at each moment both models find all that they have, and the index agrees."""
    store = SqliteStore(tmp_path_factory.mktemp("switch") / "memory.db")
    store.database.initialize()
    add_facts(store, make_fact(SCOPE, "first", **known("first")))
    begin(store, SWITCH)
    for place, (step, which) in enumerate(steps):
        facts = sorted(store.memory.facts(MINE), key=lambda fact: fact.content)
        fact = facts[which % len(facts)] if facts else None
        match step:
            case "add" | "add new":
                text, model = f"text {place}", OLD if step == "add" else NEW
                add_facts(store, make_fact(SCOPE, text, **known(text, model)))
            case "revise" if fact is not None:
                change = ReviseFact(
                    scope=SCOPE,
                    fact_id=fact.id,
                    expected_version=fact.version,
                    content=f"anew {place}",
                    at=NOW,
                    **known(f"anew {place}", NEW if which % 2 else OLD),  # type: ignore[arg-type]
                )
                apply(store, change)
            case "remove" if fact is not None:
                version = fact.version
                apply(store, removal(fact, scope=SCOPE, expected_version=version))
            case "fill":
                fill(store)
            case "commit":
                enter(store, "switched")
            case "back":
                enter(store, "filling")
        all_found(store)
    fill(store)
    enter(store, "switched")
    enter(store, "settling")
    list(store.switches.settle_vectors())
    enter(store, "clearing")
    assert list(store.switches.clear_staged()) == []
    end(store)
    for fact in store.memory.facts(MINE, with_vectors=True):
        assert (fact.embedding_model, fact.embedding) == ("new", NEW.vector(fact.content))
    assert codes(store) == ()
    store.database.close()


def all_found(store: SqliteStore) -> None:
    facts = {fact.id: fact for fact in store.memory.facts(MINE)}
    switch = store.switches.vector_switch()
    for model in (OLD, NEW):
        having = store.switches.vectors_of(list(facts), model=model.model)
        assert all(model.vector(facts[id].content) == vector for id, vector in having.items())
        is_prepared = switch is not None and switch.phase == "filling" and model is NEW
        if having and not is_prepared:
            (found,) = store.search.semantic_candidates(
                MINE, [random_unit(1, model.dimensions)], model=model.model, limit=99
            )
            assert {one.fact_id for one in found} == set(having)
    assert codes(store) == ()


def test_the_codes_of_both_models_are_rebuilt(opened: SqliteStore) -> None:
    add_facts(opened, *(make_fact(SCOPE, f"{n}", **known(f"{n}")) for n in range(5)))
    begin(opened, SWITCH)
    fill(opened)
    with opened.connections.writing() as connection:
        connection.execute("DELETE FROM vector_codes")
    assert codes(opened) == ("10 facts missing",)
    opened.indexes.update_index("vector_codes", WISH)
    all_found(opened)
