"""The stand-in for Atlas refuses everything that Atlas refuses, and more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bson import ObjectId
from pymongo import MongoClient
from pymongo.errors import OperationFailure
from pymongo.operations import SearchIndexModel

from edenmem.models.ids import new_id
from edenmem.store.mongo.core.collections import text_index, vector_index
from tests.support.atlas_server import AtlasServer
from tests.support.atlas_text import Texts, analyzed, one_edit
from tests.support.names import stable

VECTOR: dict[str, Any] = {
    "index": "v",
    "path": "embedding",
    "queryVector": [1.0, 0.0],
    "limit": 2,
    "numCandidates": 20,
}
TEXT = {"query": "bees", "path": "content", "fuzzy": {"maxEdits": 1}}
ID = ObjectId()


@pytest.fixture(scope="module")
def collection(_atlas_server: AtlasServer) -> Iterator[Any]:
    """A collection with one document and both indexes, ready."""
    _atlas_server.reset()
    client: MongoClient[Any]
    with MongoClient(_atlas_server.uri) as client:
        database: Any = client[f"test_{new_id()}"]
        facts = database["facts"]
        facts.insert_one({"embedding": [1.0, 0.0], "content": "Bees.", "agent_id": ID})
        for index, name in ((vector_index(dimensions=2), "v"), (text_index(), "t")):
            facts.create_search_index(SearchIndexModel(index.definition, name, index.type))
        while not all(index["queryable"] for index in facts.list_search_indexes()):
            pass
        yield facts
        client.drop_database(database.name)


def ask(collection: Any, stage: Any, *more: Any) -> list[Any]:
    return list(collection.aggregate([stage, *more, {"$project": {"_id": 1}}]))


def test_valid_queries_are_answered(collection: Any) -> None:
    assert len(ask(collection, {"$vectorSearch": VECTOR})) == 1
    assert len(ask(collection, {"$vectorSearch": {**VECTOR, "filter": {"agent_id": ID}}})) == 1
    assert (
        len(ask(collection, {"$search": {"index": "t", "compound": {"must": {"text": TEXT}}}})) == 1
    )


def test_an_unknown_index_answers_with_nothing(collection: Any) -> None:
    assert ask(collection, {"$vectorSearch": {**VECTOR, "index": "other"}}) == []
    found = {"$search": {"index": "other", "compound": {"must": {"text": TEXT}}}}
    assert ask(collection, found) == []


@pytest.mark.parametrize(
    "change",
    [
        {"k": 1},
        {"limit": 0},
        {"limit": 2.5},
        {"numCandidates": 1},
        {"numCandidates": 10_001},
        {"exact": True},
        {"exact": "yes"},
        {"queryVector": [1.0]},
        {"queryVector": [0.0, 0.0]},
        {"queryVector": "ab"},
        {"path": "content"},
        {"filter": {"content": "Bees."}},
        {"filter": {"agent_id": {"$ne": ID}}},
        {"filter": {"agent_id": {"$exists": True}}},
        {"filter": {"agent_id": None}},
        {"filter": {"agent_id": {"$in": []}}},
        {"filter": {"$or": []}},
        {"filter": {"$where": "1"}},
    ],
    ids=stable,
)
def test_a_wrong_vector_search_is_refused(collection: Any, change: dict[str, Any]) -> None:
    with pytest.raises(OperationFailure):
        ask(collection, {"$vectorSearch": {**VECTOR, **change}})


@pytest.mark.parametrize(
    "compound",
    [
        {},
        {"must": []},
        {"must": {"text": {**TEXT, "query": ""}}},
        {"must": {"text": {**TEXT, "path": "agent_id"}}},
        {"must": {"text": {**TEXT, "fuzzy": {"maxEdits": 3}}}},
        {"must": {"text": {**TEXT, "wild": True}}},
        {"must": {"phrase": TEXT}},
        {"filter": {"equals": {"path": "agent_id", "value": 5}}},
        {"filter": {"equals": {"path": "agent_id", "value": None}}},
        {"filter": {"equals": {"path": "scope", "value": ID}}},
        {"filter": {"equals": {"path": "content", "value": "Bees."}}},
        {"filter": {"equals": {"path": "other", "value": ID}}},
        {"filter": {"in": {"path": "agent_id", "value": []}}},
        {"filter": {"range": {"path": "formed_at", "gte": "2026"}}},
        {"filter": {"range": {"path": "formed_at"}}},
        {"should": {"text": TEXT}, "minimumShouldMatch": 2},
    ],
    ids=stable,
)
def test_a_wrong_text_search_is_refused(collection: Any, compound: dict[str, Any]) -> None:
    with pytest.raises(OperationFailure):
        ask(collection, {"$search": {"index": "t", "compound": compound}})


def test_stages_must_come_first(collection: Any) -> None:
    with pytest.raises(OperationFailure, match="first stage"):
        list(collection.aggregate([{"$match": {}}, {"$vectorSearch": VECTOR}]))
    with pytest.raises(OperationFailure, match="vectors and all"):
        list(collection.aggregate([{"$vectorSearch": VECTOR}]))
    with pytest.raises(OperationFailure):
        ask(collection, {"$listSearchIndexes": {"id": "a", "name": "b"}})


@pytest.mark.parametrize(
    ("type", "definition"),
    [
        ("search", {"mappings": {"dynamic": True}}),
        ("search", {"mappings": {"dynamic": False, "fields": {"a": {"type": "words"}}}}),
        (
            "search",
            {"mappings": {"dynamic": False, "fields": {"a": {"type": "string", "analyzer": "x"}}}},
        ),
        ("vectorSearch", {"fields": [{"type": "filter", "path": "a"}]}),
        ("vectorSearch", {"fields": [{"type": "vector", "path": "a", "numDimensions": 4}]}),
        (
            "vectorSearch",
            {
                "fields": [
                    {"type": "vector", "path": "a", "numDimensions": 9000, "similarity": "cosine"}
                ]
            },
        ),
        ("other", {}),
    ],
)
def test_wrong_definitions_are_refused(collection: Any, type: str, definition: Any) -> None:
    with pytest.raises(OperationFailure):
        collection.create_search_index(SearchIndexModel(definition, "new", type))


def test_indexes_are_created_and_dropped(collection: Any) -> None:
    definition = vector_index(dimensions=3).definition
    with pytest.raises(OperationFailure, match="Duplicate"):
        collection.create_search_index(SearchIndexModel(definition, "v", "vectorSearch"))
    collection.create_search_index(SearchIndexModel(definition, "w", "vectorSearch"))

    def look() -> tuple[str, bool]:
        (found,) = collection.list_search_indexes("w")
        return found["status"], found["queryable"]

    assert [look() for _ in range(3)] == [
        ("PENDING", False),
        ("BUILDING", False),
        ("READY", True),
    ]
    collection.update_search_index("w", vector_index(dimensions=4).definition)
    assert look() == ("PENDING", True)
    old = {**VECTOR, "index": "w", "queryVector": [1.0, 0.0, 0.0]}
    assert ask(collection, {"$vectorSearch": old}) == []  # still of three dimensions
    look(), look()
    with pytest.raises(OperationFailure, match="4 dimensions"):
        ask(collection, {"$vectorSearch": old})
    collection.drop_search_index("w")
    with pytest.raises(OperationFailure, match="not found"):
        collection.drop_search_index("w")
    with pytest.raises(OperationFailure, match="does not exist"):
        collection.database["nowhere"].create_search_index(
            SearchIndexModel(definition, "w", "vectorSearch")
        )


def test_other_servers_have_no_search_commands(secantus_uri: str, collection: Any) -> None:
    client: MongoClient[Any]
    with MongoClient(secantus_uri) as client, pytest.raises(OperationFailure, match="Atlas"):
        list(client.test.facts.list_search_indexes())


def test_words_are_english() -> None:
    assert analyzed("The bees' honey, and Anna's bee", "lucene.english") == [
        "bee",
        "hone",
        "anna",
        "bee",
    ]
    assert analyzed("The Bees", "lucene.standard") == ["the", "bees"]
    assert one_edit("safron", "saffron")
    assert one_edit("ab", "ba")
    assert not one_edit("abc", "cab")


def test_scores_are_of_the_whole_index() -> None:
    texts = Texts({"a": ["bee"], "b": ["bee", "bee", "x", "y"], "c": ["rare"], "d": []})
    scores = texts.scores(["bee", "rare"], max_edits=0)
    assert scores["c"] > scores["a"] > 0
    assert "d" not in scores
    assert texts.scores(["rari"], max_edits=1).keys() == {"c"}
    assert texts.scores(["rari"], max_edits=0) == {}
