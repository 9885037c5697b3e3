"""Search indexes not defined by edenmem, such as the platform's, named in the settings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from edenmem.errors import ConflictError, SearchIndexUnusable
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.models.search import Candidate, FactFilter
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core.collections import TEXT_INDEX, VECTOR_INDEX
from tests.store.atlas.conftest import DIMENSIONS, WISH, again, build, state
from tests.support.atlas_server import AtlasServer
from tests.support.builders import NOW, make_fact
from tests.support.memory import add_facts
from tests.support.vectors import random_unit

pytestmark = pytest.mark.slow


AGENT = new_id()
ANNA, EVERYBODY = Scope.user(AGENT, new_id()), Scope.agent(AGENT)
VECTOR, TEXT = "fact_vector_index_prod", "fact_text_index_prod"
#: The platform's filters, and nothing else.
FILTERS = ("agent_id", "user_id", "scope")


def vector_definition(**options: Any) -> dict[str, Any]:
    vector = {
        "type": "vector",
        "path": "embedding",
        "numDimensions": DIMENSIONS,
        "similarity": "cosine",
        **options,
    }
    return {"fields": [vector, *({"type": "filter", "path": path} for path in FILTERS)]}


def text_definition() -> dict[str, Any]:
    fields = {
        "content": {"type": "string", "analyzer": "lucene.standard"},
        "agent_id": {"type": "objectId"},
        "user_id": {"type": "objectId"},
        "scope": {"type": "token"},
    }
    return {"mappings": {"dynamic": False, "fields": fields}}


@pytest.fixture
def guest(bare: MongoStore, atlas: AtlasServer) -> Iterator[MongoStore]:
    """A store whose settings name the platform's indexes, with three facts of Anna and all."""
    bare.connection.facts.create_search_index(VECTOR, "vectorSearch", vector_definition())
    bare.connection.facts.create_search_index(TEXT, "search", text_definition())
    store = again(bare, atlas.uri, vector_index=VECTOR, text_index=TEXT)
    vectors = {"embedding": random_unit(2, DIMENSIONS), "embedding_model": "m"}
    add_facts(
        store,
        make_fact(ANNA, "Anna keeps bees.", **vectors),
        make_fact(EVERYBODY, "There are bees.", **vectors),
        make_fact(Scope.user(AGENT, new_id()), "Bea keeps bees.", **vectors),
    )
    build(store, VECTOR, TEXT)
    atlas.commands.clear()
    yield store
    store.database.close()


def near(store: MongoStore, filter: FactFilter) -> list[Candidate]:
    query = random_unit(1, DIMENSIONS)
    (found,) = store.search.semantic_candidates(filter, [query], model="m", limit=5)
    return found


def words(store: MongoStore, filter: FactFilter) -> list[Candidate]:
    (found,) = store.search.text_candidates(filter, ["bees"], limit=5)
    return found


def indexes_in(atlas: AtlasServer, stage: str) -> list[str]:
    """The indexes that were searched."""
    stages = (c["pipeline"][0] for c in atlas.commands if "pipeline" in c)
    return [first[stage]["index"] for first in stages if stage in first]


SEARCHES = [
    pytest.param(near, "$vectorSearch", VECTOR, VECTOR_INDEX, id="vector"),
    pytest.param(words, "$search", TEXT, TEXT_INDEX, id="text"),
]


@pytest.mark.parametrize(("search", "stage", "theirs", "ours"), SEARCHES)
def test_a_configured_index_is_used_where_it_suffices(
    guest: MongoStore, atlas: AtlasServer, search: Any, stage: str, theirs: str, ours: str
) -> None:
    """Known failure 31: results are never filtered after the query."""
    both = FactFilter(scopes=(ANNA, EVERYBODY))
    assert len(search(guest, FactFilter(scopes=(ANNA,)))) == 1
    assert len(search(guest, both)) == 2
    assert indexes_in(atlas, stage) == [theirs, theirs]
    narrower = {
        "group_id": FactFilter(scopes=(Scope.group(AGENT, "g"),)),
        "shard": FactFilter(scopes=(Scope.shard(AGENT, "s"), ANNA)),
        "formed_at": FactFilter(scopes=(ANNA,), since=NOW - timedelta(days=1)),
        "session_id": FactFilter(scopes=(ANNA,), session_id=new_id()),
    }
    for field, filter in narrower.items():
        match = f"does not cover this query: {theirs}.*{field}"
        with pytest.raises(SearchIndexUnusable, match=match) as one:
            search(guest, filter)
        assert f"edenmem index create {ours}" in (one.value.hint or "")
    assert indexes_in(atlas, stage) == [theirs, theirs]
    guest.indexes.create_index(ours, WISH)
    build(guest, ours)
    assert len(search(guest, narrower["formed_at"])) == 1
    assert len(search(guest, both)) == 2
    assert indexes_in(atlas, stage)[2:] == [ours, theirs]


def test_vectors_of_another_model_are_not_compared(guest: MongoStore) -> None:
    """Known failure 28: the platform's index cannot filter by model."""
    other = {"embedding": random_unit(3, DIMENSIONS), "embedding_model": "another"}
    add_facts(guest, make_fact(ANNA, "Anna paints.", **other))
    with pytest.raises(SearchIndexUnusable, match="embedding_model: missing filter field"):
        near(guest, FactFilter(scopes=(ANNA,)))
    guest.indexes.create_index(VECTOR_INDEX, WISH)
    build(guest, VECTOR_INDEX)
    assert len(near(guest, FactFilter(scopes=(ANNA,)))) == 1


@pytest.mark.parametrize(
    ("options", "lacking"),
    [
        ({"numDimensions": 3}, "numDimensions: is 3, expected 8"),
        ({"similarity": "euclidean"}, "similarity: is euclidean, expected cosine"),
    ],
)
def test_dimensions_and_similarity_count(
    guest: MongoStore, options: dict[str, Any], lacking: str
) -> None:
    guest.connection.facts.update_search_index(VECTOR, vector_definition(**options))
    build(guest, VECTOR)
    with pytest.raises(SearchIndexUnusable, match=lacking):
        guest.search.require_formable([ANNA], model="m", dimensions=DIMENSIONS)
    assert state(guest, VECTOR).status == "different"


def test_a_configured_index_is_described_and_kept(guest: MongoStore, bare: MongoStore) -> None:
    seen = state(guest, VECTOR)
    assert (seen.status, seen.differences) == ("ready", ())
    for word in ("agents", "of users", "one model", "not of groups", "by time"):
        assert word in seen.note
    assert state(guest, TEXT).status == "ready"
    assert state(guest, VECTOR_INDEX).status == "unwanted"
    # Other indexes for a store whose settings do not name them.
    assert {state(bare, name).status for name in (VECTOR, TEXT)} == {"foreign"}
    for store in (guest, bare):
        for name in (VECTOR, TEXT):
            with pytest.raises(ConflictError, match="not edenmem's own"):
                store.indexes.update_index(name, WISH)
            with pytest.raises(ConflictError, match="not edenmem's own"):
                store.indexes.drop_index(name)


def test_fuzzy_search_is_bounded(store: MongoStore, atlas: AtlasServer) -> None:
    words(store, FactFilter(scopes=(ANNA,)))
    (stage,) = (c["pipeline"][0]["$search"] for c in atlas.commands if "$search" in str(c))
    fuzzy = stage["compound"]["must"][0]["text"]["fuzzy"]
    assert fuzzy == {"maxEdits": 1, "maxExpansions": 15}
