"""The indexes of a SQLite file: looked at, and made anew where the file was damaged."""

from __future__ import annotations

import pytest

from edenmem.errors import ConflictError, NotFoundError
from edenmem.models.ids import new_id
from edenmem.models.indexes import IndexState, IndexWish
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.sqlite import SqliteStore
from tests.support.builders import make_fact
from tests.support.memory import add_facts
from tests.support.vectors import random_unit

WISH = IndexWish(dimensions=8, analyzer="lucene.english")
SCOPE = Scope.agent(new_id())
MINE = FactFilter(scopes=(SCOPE,))


@pytest.fixture
def store(sqlite_store: SqliteStore) -> SqliteStore:
    """Five facts, four of them with vectors."""
    add_facts(
        sqlite_store,
        make_fact(SCOPE, "Anna has no vector and keeps bees."),
        *(
            make_fact(SCOPE, f"Bees {n}.", embedding=random_unit(n, 8), embedding_model="m")
            for n in range(4)
        ),
    )
    return sqlite_store


def state(store: SqliteStore, name: str) -> IndexState:
    (found,) = (one for one in store.indexes.list_indexes(WISH) if one.name == name)
    return found


def counts(store: SqliteStore) -> tuple[int, int]:
    (near,) = store.search.semantic_candidates(MINE, [random_unit(1, 8)], model="m", limit=9)
    (words,) = store.search.text_candidates(MINE, ["bees"], limit=9)
    return len(near), len(words)


def test_all_is_ready_from_the_beginning(store: SqliteStore) -> None:
    states = store.indexes.list_indexes(WISH)
    assert {one.name for one in states if one.status != "ready"} == {"facts_source"}
    assert state(store, "facts_source").status == "unwanted"
    assert {one.kind for one in states} == {"ordinary", "vector", "text"}
    assert state(store, "formations_unfinished").unique
    assert "4 facts" in state(store, "vector_codes").note
    assert "5 facts" in state(store, "facts_text").note


@pytest.mark.parametrize(
    ("name", "damage", "left", "difference"),
    [
        ("vector_codes", "DELETE FROM vector_codes", (0, 5), "4 facts missing"),
        (
            "facts_text",
            "INSERT INTO facts_text (facts_text) VALUES ('delete-all')",
            (4, 0),
            "5 facts missing",
        ),
    ],
)
def test_a_damaged_index_is_reported_and_rebuilt(
    store: SqliteStore, name: str, damage: str, left: tuple[int, int], difference: str
) -> None:
    assert counts(store) == (4, 5)
    with store.connections.writing() as connection:
        connection.execute(damage)
        connection.execute("UPDATE scopes SET revision = revision + 1")
    assert counts(store) == left
    seen = state(store, name)
    assert (seen.status, seen.differences) == ("different", (difference,))
    store.indexes.update_index(name, WISH)
    assert state(store, name).status == "ready"
    assert counts(store) == (4, 5)


@pytest.mark.parametrize("name", ["vector_codes", "facts_text", "facts_recent"])
def test_rebuilding_an_intact_index_changes_nothing(store: SqliteStore, name: str) -> None:
    before = counts(store)
    store.indexes.create_index(name, WISH)
    store.indexes.update_index(name, WISH)
    assert state(store, name).status == "ready"
    assert counts(store) == before


def test_nothing_is_dropped(store: SqliteStore) -> None:
    for name in ("facts_text", "vector_codes", "facts_recent", "formations_unfinished"):
        with pytest.raises(ConflictError, match="part of the file"):
            store.indexes.drop_index(name)
    for name in ("nonsense", "facts", 'x"; DROP TABLE facts; --'):
        with pytest.raises(NotFoundError):
            store.indexes.update_index(name, WISH)
    assert counts(store) == (4, 5)


def test_what_is_written_is_searchable_at_once(store: SqliteStore) -> None:
    fact = make_fact(SCOPE, "Something new.")
    assert not store.search.is_searchable(fact.id)
    add_facts(store, fact)
    assert store.search.is_searchable(fact.id)
