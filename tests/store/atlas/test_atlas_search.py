"""Search with Atlas indexes: queries, caches, and errors instead of empty results.

Covers known failures 24, 29, 31 and 32.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pymongo.errors import ExecutionTimeout

from edenmem.errors import StoreError
from edenmem.models.embeddings import VectorSwitch
from edenmem.models.ids import new_id
from edenmem.models.indexes import IndexWish
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import Candidate, FactFilter, Question
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core.collection import Collection
from edenmem.store.mongo.core.collections import (
    OPTIONAL_FILTERS,
    TEXT_FILTERS,
    TEXT_INDEX,
    VECTOR_FILTERS,
    VECTOR_INDEX,
    text_index,
    vector_index,
)
from edenmem.store.mongo.core.filters import object_id
from edenmem.store.mongo.search.atlas_search import AtlasSearch
from tests.store.atlas.conftest import DIMENSIONS, WISH, again, build
from tests.support.atlas_server import AtlasServer
from tests.support.builders import NOW, ago, make_fact, some
from tests.support.memory import add_fact, add_facts
from tests.support.vectors import begin, enter, random_unit

pytestmark = pytest.mark.slow

AGENT = new_id()
ANNA, BEN = Scope.user(AGENT, new_id()), Scope.user(AGENT, new_id())
MINE = FactFilter(scopes=(ANNA,))
QUERY = random_unit(1, DIMENSIONS)


def embedded(scope: Scope = ANNA, content: str = "Anna keeps bees.", **fields: Any) -> Fact:
    defaults = {"embedding": random_unit(2, DIMENSIONS), "embedding_model": "m"}
    return make_fact(scope, content, **{**defaults, **fields})


def near(store: MongoStore, filter: FactFilter = MINE, **options: Any) -> list[Candidate]:
    (found,) = store.search.semantic_candidates(
        filter, [QUERY], model="m", **{"limit": 5, **options}
    )
    return found


def words(store: MongoStore, query: str = "bees", filter: FactFilter = MINE) -> list[Candidate]:
    (found,) = store.search.text_candidates(filter, [query], limit=5)
    return found


def ids(found: list[Candidate]) -> list[str]:
    return [one.fact_id for one in found]


# -- an index is checked before it is used -------------------------------------------------------


@pytest.mark.parametrize(("search", "name"), [(near, VECTOR_INDEX), (words, TEXT_INDEX)])
def test_a_missing_index_is_an_error_that_names_the_command(
    bare: MongoStore, search: Any, name: str
) -> None:
    """Known failures 24 and 29: a missing index answered with nothing, so nothing was a
    duplicate."""
    add_facts(bare, embedded())
    with pytest.raises(StoreError, match=f"does not exist: {name}") as caught:
        search(bare)
    assert "edenmem index create" in (caught.value.hint or "")


@pytest.mark.parametrize(("search", "name"), [(near, VECTOR_INDEX), (words, TEXT_INDEX)])
def test_a_building_index_is_an_error(
    bare: MongoStore, atlas: AtlasServer, search: Any, name: str
) -> None:
    """Known failure 32: search ran against an index that was still building."""
    atlas.build_steps = 1000
    fact = embedded()
    add_facts(bare, fact)
    bare.indexes.create_index(name, WISH)
    with pytest.raises(StoreError, match="cannot be queried yet") as caught:
        search(bare)
    assert "edenmem index list --check" in (caught.value.hint or "")
    atlas.build_steps = 0
    assert ids(search(bare)) == [fact.id]  # errors are not cached


def test_a_failed_index_reports_its_reason(bare: MongoStore, atlas: AtlasServer) -> None:
    bare.indexes.create_index(TEXT_INDEX, WISH)
    atlas.failure = "the disk of the search node is full"
    with pytest.raises(StoreError, match="disk of the search node"):
        words(bare)


def test_an_index_of_other_dimensions_is_an_error(bare: MongoStore) -> None:
    bare.indexes.create_index(VECTOR_INDEX, IndexWish(dimensions=3, analyzer="lucene.english"))
    while not next(s for s in bare.indexes.list_indexes(WISH) if s.name == VECTOR_INDEX).queryable:
        pass
    with pytest.raises(StoreError, match=f"has 3 dimensions, the query {DIMENSIONS}") as caught:
        near(bare)
    assert "edenmem index create --update" in (caught.value.hint or "")


@pytest.mark.slow
@pytest.mark.parametrize("lost", [each for each in VECTOR_FILTERS if each not in OPTIONAL_FILTERS])
def test_a_vector_index_that_cannot_filter_is_an_error(bare: MongoStore, lost: str) -> None:
    """Known failure 31: a filter outside the query is not a filter."""
    definition = vector_index(dimensions=DIMENSIONS).definition
    fields = [field for field in definition["fields"] if field["path"] != lost]
    bare.connection.facts.create_search_index(VECTOR_INDEX, "vectorSearch", {"fields": fields})
    with pytest.raises(StoreError, match=f"{lost}: missing filter field"):
        near(bare)


@pytest.mark.slow
@pytest.mark.parametrize(
    "lost", ["content", *(each for each in TEXT_FILTERS if each not in OPTIONAL_FILTERS)]
)
def test_a_text_index_that_lacks_a_field_is_an_error(bare: MongoStore, lost: str) -> None:
    mappings = text_index().definition["mappings"]
    fields = {path: types for path, types in mappings["fields"].items() if path != lost}
    bare.connection.facts.create_search_index(
        TEXT_INDEX, "search", {"mappings": {"dynamic": False, "fields": fields}}
    )
    with pytest.raises(StoreError, match=f"{lost}: not indexed as") as caught:
        words(bare)
    assert "edenmem index create --update" in (caught.value.hint or "")


@pytest.mark.slow
def test_an_index_without_the_fields_of_facts_is_named(bare: MongoStore) -> None:
    """It finds more, and the rest is left out; matches beyond its best may be missing."""
    definition = vector_index(dimensions=DIMENSIONS).definition
    fields = [each for each in definition["fields"] if each["path"] not in ("tags", "expires_at")]
    bare.connection.facts.create_search_index(VECTOR_INDEX, "vectorSearch", {"fields": fields})
    bare.indexes.create_index(TEXT_INDEX, WISH)
    kept = embedded(tags=("home",), expires_at=ago(days=-1))
    gone = embedded(content="Gone.", expires_at=NOW, tags=("home",))
    add_facts(bare, kept, gone, embedded(content="Without a tag."))
    build(bare)
    filter = FactFilter(scopes=(ANNA,), live_at=NOW, tags=("home",))
    question = Question("bees", kept.embedding or b"")
    found = bare.search.candidates(filter, [question], ["semantic"], model="m", limit=9)
    assert [*found.lists[0]["semantic"].found] == [kept.id]
    assert ["cannot filter by tags" in each for each in found.notices] == [True]
    assert VECTOR_INDEX in found.notices[0]
    everything = FactFilter(scopes=(ANNA,))
    found = bare.search.candidates(everything, [question], ["semantic"], model="m", limit=9)
    assert len(found.lists[0]["semantic"].found) == 3
    assert found.notices == ()


def test_a_text_index_with_another_analyzer_is_searched(bare: MongoStore) -> None:
    """The platform's index uses `lucene.standard`; ranks differ, but nothing is missing."""
    fact = add_fact(bare, ANNA, "Anna keeps bees.")
    bare.indexes.create_index(TEXT_INDEX, IndexWish(analyzer="lucene.standard"))
    build(bare, TEXT_INDEX)
    assert ids(words(bare)) == [fact.id]


@pytest.mark.slow
def test_an_index_is_checked_periodically(store: MongoStore, atlas: AtlasServer) -> None:
    add_facts(store, embedded())

    def looks() -> int:
        return sum("$listSearchIndexes" in c["pipeline"][0] for c in atlas.commands)

    near(store)
    before = looks()
    for _ in range(5):
        assert near(store)
    assert looks() == before
    words(store)
    for _ in range(5):
        assert words(store)
    assert looks() == before + 1


@pytest.mark.slow
def test_a_checked_index_is_cached_for_a_minute(store: MongoStore) -> None:
    now = 0.0
    search = AtlasSearch(
        store.connection.facts,
        store.connection.run_all,
        storage="array",
        max_seconds=1,
        clock=lambda: now,
    )
    add_facts(store, embedded())
    assert search.text(MINE, ["bees"], limit=1)[0]
    store.indexes.drop_index(TEXT_INDEX)
    now = 61.0
    with pytest.raises(StoreError, match="does not exist"):
        search.text(MINE, ["bees"], limit=1)


@pytest.mark.slow
@pytest.mark.parametrize(("search", "name"), [(near, VECTOR_INDEX), (words, TEXT_INDEX)])
def test_an_empty_result_of_a_deleted_index_is_an_error(
    store: MongoStore, search: Any, name: str
) -> None:
    """Known failures 24 and 29: Atlas answers for an unknown index with nothing."""
    add_facts(store, embedded())
    assert search(store)
    store.indexes.drop_index(name)
    with pytest.raises(StoreError, match="does not exist"):
        search(store)


def test_an_unreachable_server_is_not_an_empty_list(store: MongoStore) -> None:
    """Known failure 29: an outage looked like "no memories"."""

    class Slow:
        def aggregate(self, pipeline: list[Any], **options: Any) -> Any:
            raise ExecutionTimeout("operation exceeded time limit", 50)

    search = AtlasSearch(
        Collection(Slow(), "x"), store.connection.run_all, storage="array", max_seconds=1
    )
    with pytest.raises(StoreError, match="in time"):
        search.text(MINE, ["bees"], limit=1)
    with pytest.raises(StoreError, match="in time"):
        search.semantic(MINE, [QUERY], model="m", limit=1)


# -- queries -------------------------------------------------------------------------------------


def test_the_filter_is_part_of_each_query_and_one_for_all_scopes(
    store: MongoStore, atlas: AtlasServer
) -> None:
    """Known failure 31: the tenant's filter was applied after the top k."""
    scopes = (ANNA, BEN, Scope.agent(AGENT), Scope.shard(AGENT, "route"), Scope.group(AGENT, "g"))
    add_facts(store, *(embedded(BEN, f"Bees {n}.") for n in range(30)))
    mine = embedded(Scope.group(AGENT, "g"), "Once someone spoke of bees.")
    add_facts(store, mine)
    wide = FactFilter(scopes=scopes, since=ago(days=1), until=NOW + timedelta(days=1))
    assert len(near(store, wide, limit=100)) == 31
    assert ids(near(store, FactFilter(scopes=scopes[2:]), limit=1)) == [mine.id]
    atlas.commands.clear()
    near(store, wide)
    words(store, "bees", wide)
    vector, text = atlas.searches()
    agents = [part["agent_id"] for part in vector["$vectorSearch"]["filter"]["$and"][1]["$or"]]
    assert agents == [object_id(AGENT)] * 8  # both users share one; with and without said_at
    assert len(text["$search"]["compound"]["filter"]) == 1
    assert None not in str(vector).split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "candidates"), [(1, 20), (5, 100), (100, 2000), (600, 10_000), (20_000, 10_000)]
)
def test_the_number_of_neighbors_is_bounded(
    store: MongoStore, atlas: AtlasServer, limit: int, candidates: int
) -> None:
    near(store, limit=limit)
    (stage,) = (found["$vectorSearch"] for found in atlas.searches())
    assert stage["numCandidates"] == candidates
    assert stage["limit"] == min(limit, 10_000)
    assert "exact" not in stage


def test_exact_search_is_requested(store: MongoStore, atlas: AtlasServer) -> None:
    fact = embedded()
    add_facts(store, fact)
    assert ids(near(store, exact=True)) == [fact.id]
    stage = atlas.searches()[-1]["$vectorSearch"]
    assert stage["exact"] is True
    assert "numCandidates" not in stage


@pytest.mark.slow
def test_no_vector_is_returned_and_queries_have_a_time_limit(
    store: MongoStore, atlas: AtlasServer
) -> None:
    add_facts(store, embedded())
    near(store)
    words(store)
    asked = [c for c in atlas.commands if "$listSearchIndexes" not in c["pipeline"][0]]
    assert len(asked) == 2
    for command in asked:
        (projection,) = (s["$project"] for s in command["pipeline"] if "$project" in s)
        assert projection.keys() == {"_id", "score"}
        assert command["maxTimeMS"] == 10_000


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["array", "bindata"])
def test_both_forms_of_vectors_are_found_and_sent(
    store: MongoStore, atlas: AtlasServer, storage: str
) -> None:
    other = again(store, atlas.uri, embedding_storage=storage)
    try:
        fact = embedded()
        add_facts(other, fact)
        stored = some(other.connection.facts.find_one({}))
        assert isinstance(stored["embedding"], list) is (storage == "array")
        (one,) = near(other)
        assert one.fact_id == fact.id
        assert near(store) == [one]
    finally:
        other.database.close()


@pytest.mark.slow
def test_documents_of_the_platform_without_our_fields_are_found(store: MongoStore) -> None:
    fact = embedded()
    add_facts(store, fact)
    store.connection.facts.update_one(
        {"_id": object_id(fact.id)}, {"$unset": {"group_id": 1, "shard": 1}}
    )
    assert ids(near(store)) == ids(words(store)) == [fact.id]


@pytest.mark.slow
def test_a_long_query_is_sent_as_distinct_words(store: MongoStore, atlas: AtlasServer) -> None:
    add_facts(store, embedded())
    many = " ".join(f"word{n}" for n in range(5000))
    assert words(store, f"bees bees {many}")
    query = atlas.searches()[-1]["$search"]["compound"]["must"][0]["text"]["query"]
    assert query.split()[0] == "bees"
    assert len(query.split()) == len(set(query.split())) == 64


def test_no_scope_sends_no_query(store: MongoStore, atlas: AtlasServer) -> None:
    """Known failure 45: an empty list became no filter."""
    add_facts(store, embedded())
    nobody = FactFilter(scopes=())
    assert near(store, nobody) == words(store, "bees", nobody) == []
    assert atlas.searches() == []


# -- consistency ---------------------------------------------------------------------------------


def test_a_new_document_is_searchable_late(store: MongoStore, atlas: AtlasServer) -> None:
    """Known failure 32: a new document was not yet searchable, and nothing reported it."""
    old = embedded(content="Anna swims.")
    add_facts(store, old)
    assert near(store)
    atlas.lag = 6
    fact = embedded()
    add_facts(store, fact)
    assert fact.id not in ids(near(store))
    assert not store.search.is_searchable(fact.id)
    looks = 0
    while not store.search.is_searchable(fact.id):
        looks += 1
        assert looks < 20
    assert fact.id in ids(near(store))
    assert fact.id in ids(words(store))


@pytest.mark.slow
def test_a_new_document_is_awaited_by_the_new_model(store: MongoStore, atlas: AtlasServer) -> None:
    add_facts(store, embedded(content="Anna swims."))
    switch = VectorSwitch(model="new", dimensions=DIMENSIONS, previous="m", begun_at=NOW)
    begin(store, switch)
    while not (index := store.switches.switch_index()) or not index.queryable:
        pass
    enter(store, "switched")
    atlas.lag = 6
    fact = embedded(embedding_model="new")
    add_facts(store, fact)
    while not store.search.is_searchable(fact.id):
        pass
    vector = fact.embedding or b""
    [found] = store.search.semantic_candidates(MINE, [vector], model="new", limit=5)
    assert ids(found) == [fact.id]


@pytest.mark.slow
def test_a_vector_of_the_previous_text_does_not_count(
    store: MongoStore, atlas: AtlasServer
) -> None:
    fact = embedded(content="Anna keeps bees.")
    add_facts(store, fact)
    assert store.search.is_searchable(fact.id)
    atlas.lag = 6
    vector = random_unit(3, DIMENSIONS)
    assert store.vectors.set_vectors({fact.id: (fact.hash, vector)}, model="m") == 1
    assert not store.search.is_searchable(fact.id)
    while not store.search.is_searchable(fact.id):
        pass


@pytest.mark.slow
def test_a_lagging_index_is_not_another_model(store: MongoStore, atlas: AtlasServer) -> None:
    atlas.lag = 1000
    add_facts(
        store, embedded(embedding_model="other"), embedded(content="New.", embedding_model="m")
    )
    assert near(store) == []


def test_waiting_without_an_index_is_an_error(bare: MongoStore) -> None:
    fact = embedded()
    add_facts(bare, fact)
    with pytest.raises(StoreError, match="does not exist"):
        bare.search.is_searchable(fact.id)
    assert not bare.search.is_searchable(new_id())


@pytest.mark.slow
def test_a_fact_without_a_vector_is_searchable_by_its_words(store: MongoStore) -> None:
    fact = add_fact(store, ANNA, "Anna keeps bees.")
    assert store.search.is_searchable(fact.id)
