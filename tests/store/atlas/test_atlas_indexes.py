"""Indexes on request, on MongoDB with and without search commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edenmem.errors import ConflictError, NotFoundError, StoreError
from edenmem.models.indexes import IndexWish
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core.collections import (
    FACT_KEY,
    MEMORY_INDEXES,
    TEXT_INDEX,
    VECTOR_INDEX,
    host_indexes,
    text_index,
    vector_index,
)
from edenmem.store.mongo.search.search_definitions import differences_of, state_of
from edenmem.store.protocol.store import Store
from tests.store.atlas.conftest import WISH, build, state
from tests.support.atlas_indexes import with_defaults
from tests.support.atlas_server import AtlasServer

pytestmark = pytest.mark.slow

STANDARD = IndexWish(dimensions=8, analyzer="lucene.standard")


def found(type: str, definition: Any, **fields: Any) -> dict[str, Any]:
    answer = {"name": "x", "type": type, "status": "READY", "queryable": True}
    return {**answer, "latestDefinition": definition, **fields}


# -- comparing -----------------------------------------------------------------------------------


def test_defaults_and_order_are_no_difference() -> None:
    for wanted in (vector_index(dimensions=8), text_index()):
        there = with_defaults(wanted.type, wanted.definition)
        assert there != wanted.definition
        assert differences_of(wanted, found(wanted.type, there)) == []


def test_extra_fields_are_no_difference() -> None:
    wanted = vector_index(dimensions=8)
    more = [*wanted.definition["fields"], {"type": "filter", "path": "language"}]
    assert differences_of(wanted, found("vectorSearch", {"fields": more})) == []


def test_each_difference_is_listed() -> None:
    wanted = vector_index(dimensions=8)
    vector, *filters = vector_index(dimensions=4).definition["fields"]
    fields = [{**vector, "similarity": "dotProduct"}, *(f for f in filters if f["path"] != "scope")]
    other = {"fields": fields}
    texts = [one.text for one in differences_of(wanted, found("vectorSearch", other))]
    assert texts == [
        "embedding.numDimensions: is 4, expected 8",
        "embedding.similarity: is dotProduct, expected cosine",
        "scope: missing filter field",
    ]
    (wrong_type,) = differences_of(wanted, found("search", {"mappings": {}}))
    assert wrong_type.fatal
    # An analyzer of the whole index applies to fields without one.
    mappings = text_index().definition["mappings"]
    fields = {**mappings["fields"], "content": {"type": "string"}}
    whole = {"analyzer": "lucene.english", "mappings": {"dynamic": False, "fields": fields}}
    assert differences_of(text_index(), found("search", whole)) == []
    del whole["analyzer"]
    texts = [one.text for one in differences_of(text_index(), found("search", whole))]
    assert texts[0] == "content.analyzer: is lucene.standard, expected lucene.english"
    assert not any(one.fatal for one in differences_of(text_index(), found("search", whole)))


@pytest.mark.parametrize(
    ("status", "queryable", "expected"),
    [
        ("READY", True, "ready"),
        ("READY", False, "building"),
        ("BUILDING", True, "building"),
        ("PENDING", False, "building"),
        ("STALE", True, "stale"),
        ("FAILED", False, "failed"),
        ("DELETING", True, "failed"),
    ],
)
def test_only_queryable_decides_whether_an_index_answers(
    status: str, queryable: bool, expected: str
) -> None:
    """Known failure 32: `status` was polled instead of `queryable`."""
    wanted = text_index()
    there = found("search", wanted.definition, status=status, queryable=queryable)
    seen = state_of(wanted, there)
    assert (seen.status, seen.queryable) == (expected, queryable)


# -- search indexes ------------------------------------------------------------------------------


def test_creating_reading_updating_and_dropping(bare: MongoStore, atlas: AtlasServer) -> None:
    atlas.build_steps = 9
    assert {state(bare, n).status for n in (VECTOR_INDEX, TEXT_INDEX)} == {"missing"}
    bare.indexes.create_index(VECTOR_INDEX, WISH)
    bare.indexes.create_index(TEXT_INDEX, WISH)
    bare.indexes.create_index(TEXT_INDEX, WISH)  # safe to repeat
    assert state(bare, TEXT_INDEX).status == "building"
    build(bare)
    assert state(bare, VECTOR_INDEX).status == state(bare, TEXT_INDEX).status == "ready"

    changed = state(bare, TEXT_INDEX, STANDARD)
    assert changed.status == "different"
    assert len(changed.differences) == 2
    assert changed.queryable
    bare.indexes.update_index(TEXT_INDEX, STANDARD)
    rebuilding = state(bare, TEXT_INDEX, STANDARD)
    assert (rebuilding.status, rebuilding.queryable) == ("building", True)
    while state(bare, TEXT_INDEX, STANDARD).status != "ready":
        pass
    bare.indexes.drop_index(TEXT_INDEX)
    assert state(bare, TEXT_INDEX).status == "missing"
    for work in (bare.indexes.drop_index, lambda name: bare.indexes.update_index(name, WISH)):
        with pytest.raises(NotFoundError):
            work(TEXT_INDEX)


def test_an_index_of_another_type_is_not_changed(bare: MongoStore) -> None:
    wanted = text_index()
    bare.connection.facts.create_search_index(VECTOR_INDEX, wanted.type, wanted.definition)
    with pytest.raises(ConflictError, match="another type"):
        bare.indexes.update_index(VECTOR_INDEX, WISH)


def test_without_an_embedding_model_the_vector_index_is_left_alone(bare: MongoStore) -> None:
    nothing = IndexWish(analyzer="lucene.english")
    assert state(bare, VECTOR_INDEX, nothing).status == "unwanted"
    with pytest.raises(StoreError, match="embedding model"):
        bare.indexes.create_index(VECTOR_INDEX, nothing)


# -- ordinary ones -------------------------------------------------------------------------------


def test_a_unique_index_is_never_dropped(bare: MongoStore) -> None:
    """Known failure 47: the unique index was dropped, and its re-creation could fail."""
    every = (*MEMORY_INDEXES, *host_indexes(bare.connection.settings))
    unique = [index.name for index in every if index.unique]
    assert FACT_KEY.name in unique
    for name in unique:
        with pytest.raises(ConflictError, match="prevents duplicates"):
            bare.indexes.drop_index(name)
        with pytest.raises(ConflictError):
            bare.indexes.update_index(name, WISH)
        assert state(bare, name).status == "ready"


def test_an_ordinary_index_is_created_updated_and_dropped(bare: MongoStore) -> None:
    name = "edenmem_fact_dated"
    bare.indexes.drop_index(name)
    assert state(bare, name).status == "missing"
    bare.connection.facts.create_index([("formed_at", 1)], name=name)
    seen = state(bare, name)
    assert seen.status == "different"
    assert seen.differences[0].startswith("keys: is {'formed_at': 1}, expected {'agent_id': 1")
    bare.indexes.update_index(name, WISH)
    assert state(bare, name).status == "ready"


def test_without_search_commands_ordinary_indexes_work(open_store: Callable[[str], Store]) -> None:
    store = open_store("secantus")
    states = {one.name: one for one in store.indexes.list_indexes(WISH)}
    assert states[FACT_KEY.name].status == "ready"
    for name in (VECTOR_INDEX, TEXT_INDEX):
        assert states[name].status == "unavailable"
        assert "no search commands" in states[name].note
        for work in (
            lambda name: store.indexes.create_index(name, WISH),
            lambda name: store.indexes.update_index(name, WISH),
            store.indexes.drop_index,
        ):
            with pytest.raises(StoreError, match="no search commands"):
                work(name)
    with pytest.raises(StoreError, match="no search commands"):
        store.indexes.try_search("lucene.english", lambda done: done(), print)
    store.indexes.drop_index("edenmem_usage_time")
    assert {one.name: one.status for one in store.indexes.list_indexes(WISH)}[
        "edenmem_usage_time"
    ] == "missing"
    store.indexes.create_index("edenmem_usage_time", WISH)
    assert {one.name: one.status for one in store.indexes.list_indexes(WISH)}[
        "edenmem_usage_time"
    ] == "ready"
    for work in (store.indexes.drop_index, lambda name: store.indexes.create_index(name, WISH)):
        with pytest.raises(NotFoundError):
            work("nonsense")


def test_creating_an_index_takes_few_commands(atlas: AtlasServer, store: MongoStore) -> None:
    """Listing indexes takes one command, for any number of indexes."""
    store.indexes.list_indexes(WISH)
    assert len([c for c in atlas.commands if "pipeline" in c]) == 2  # detect and list
