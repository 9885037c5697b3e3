"""Search on a server without search commands: exact, limited, and reported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymongo.errors import AutoReconnect, OperationFailure

from edenmem.errors import EmbeddingModelMismatch, StoreError
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.search.text_ranking import Corpus
from edenmem.search.words import index_words, query_words, within_one_edit
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core import collections
from edenmem.store.mongo.core.collection import Collection
from edenmem.store.mongo.search.scan import Scan
from tests.support.builders import NOW, ago, make_fact
from tests.support.memory import add_facts
from tests.support.vectors import random_unit

SCOPE = Scope.user(new_id(), new_id())
ALL = FactFilter(scopes=(SCOPE,))


@pytest.fixture
def small(mongo: MongoStore) -> Iterator[MongoStore]:
    """A store that reads at most ten facts in a search."""
    store = MongoStore(mongo.connection.uri, mongo.connection.settings, scan_limit=10)
    with closing(store.database):
        yield store


def _fill(store: MongoStore, count: int) -> None:
    add_facts(
        store,
        *(
            make_fact(
                SCOPE,
                f"Anna keeps {n} bees.",
                formed_at=ago(days=n),
                embedding=random_unit(n, 8),
                embedding_model="m",
            )
            for n in range(count)
        ),
    )


@pytest.mark.slow
def test_the_scan_describes_itself(small: MongoStore) -> None:
    """Known failure 29: a silent fallback."""
    ability = small.search.search_ability()
    assert ability.kind == "scan"
    assert "10" in ability.notice
    assert not ability.text_floor


@pytest.mark.slow
def test_exceeding_the_limit_is_an_error(small: MongoStore) -> None:
    """Known failure 31: facts beyond a limit were silently left out."""
    _fill(small, 11)
    for search in (
        lambda f: small.search.semantic_candidates(f, [random_unit(1, 8)], model="m", limit=3),
        lambda f: small.search.text_candidates(f, ["bees"], limit=3),
    ):
        with pytest.raises(StoreError, match="limit of 10 facts") as caught:
            search(ALL)
        assert caught.value.hint
        narrowed = FactFilter(scopes=(SCOPE,), since=NOW.replace(day=10))
        (found,) = search(narrowed)
        assert len(found) == 3


@pytest.mark.slow
def test_vectors_of_another_length_are_an_error(small: MongoStore) -> None:
    """Known failure 28: vectors of two models under one name."""
    _fill(small, 3)
    with pytest.raises(EmbeddingModelMismatch, match="8 dimensions"):
        small.search.semantic_candidates(ALL, [random_unit(1, 4)], model="m", limit=3)
    with pytest.raises(EmbeddingModelMismatch, match="'other'"):
        small.search.semantic_candidates(ALL, [random_unit(1, 8)], model="other", limit=3)


class _Answering:
    """A driver's collection with this answer to search commands."""

    def __init__(self, answer: Exception | None) -> None:
        self.answer = answer

    def aggregate(self, pipeline: list[Any]) -> Any:
        if self.answer is not None:
            raise self.answer
        return self

    def close(self) -> None:
        """Close, like a cursor."""


def test_the_server_is_asked_for_its_abilities() -> None:
    """Known failures 29 and 32: an outage is neither "no search" nor an empty result."""
    not_enabled = OperationFailure("needs Atlas", 31082, {"codeName": "SearchNotEnabled"})
    assert not Collection(_Answering(not_enabled), "x").answers_search()
    assert Collection(_Answering(None), "x").answers_search()
    notice = Scan(*[Collection(_Answering(not_enabled), "x")] * 3, 7).ability().notice
    assert "no search commands" in notice
    for failure in (OperationFailure("not allowed", 13), AutoReconnect("gone")):
        with pytest.raises(StoreError):
            Collection(_Answering(failure), "x").answers_search()


# -- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("bee", "bees"),
        ("city", "cities"),
        ("paint", "painted", "painting", "paints"),
        ("run", "running", "runs"),
        ("box", "boxes"),
        ("Café", "cafe"),
    ],
)
def test_forms_of_a_word_are_one(words: tuple[str, ...]) -> None:
    assert len({tuple(each) for each in index_words(words)}) == 1


def test_stop_words_count_only_where_there_is_nothing_else() -> None:
    assert query_words("What is the name of her dog?") == ["name", "dog"]
    assert query_words("to be or to do") == ["to", "be", "or", "do"]
    assert query_words("") == []


def test_words_of_scripts_without_spaces_are_their_characters() -> None:
    assert index_words(["安娜 paints 🐝", ""]) == [["安", "娜", "paint"], []]


@given(st.text("abcd", min_size=1, max_size=6), st.text("abcd", min_size=1, max_size=6))
def test_one_edit(one: str, other: str) -> None:
    edits = {one}
    for place in range(len(one) + 1):
        edits.update(one[:place] + letter + one[place:] for letter in "abcd")
        edits.update(one[:place] + letter + one[place + 1 :] for letter in "abcd")
        edits.add(one[:place] + one[place + 1 :])
        edits.add(one[:place] + one[place : place + 2][::-1] + one[place + 2 :])
    assert within_one_edit(one, other) == (other in edits)
    assert within_one_edit(one, other) == within_one_edit(other, one)


def test_ranking() -> None:
    corpus = Corpus(
        [
            ("a", "Anna keeps bees in Lisbon"),
            ("b", "bees bees bees and more words that make this longer than it was"),
            ("c", "Ben sings"),
            ("d", "Anna sings"),
        ]
    )

    def best(query: str, limit: int = 9) -> list[tuple[str, float]]:
        return corpus.best(corpus.weigh(query), limit)

    assert [key for key, _ in best("Anna bees")][:1] == ["a"]
    assert [key for key, _ in best("lisbn")] == ["a"]
    assert [key for key, _ in best("sings")] == ["d", "c"]  # of equal scores the newest
    assert best("sings", 1) == best("sings")[:1]
    assert best("nothing of it") == []
    assert all(score > 0 for _, score in best("Anna keeps bees in Lisbon"))
    for texts in ([], [("a", "")]):
        empty = Corpus(texts)
        assert empty.best(empty.weigh("anna"), 9) == []


@pytest.mark.slow
def test_recent_facts_of_one_time_are_cut_by_id(small: MongoStore) -> None:
    facts = [
        make_fact(SCOPE, f"fact {n}", formed_at=ago(days=9 - n), updated_at=NOW) for n in range(8)
    ]
    facts += [make_fact(SCOPE, f"new {n}", formed_at=NOW) for n in range(3)]
    add_facts(small, *reversed(facts))
    ids = sorted(fact.id for fact in facts)
    for limit in (1, 4, 8, 11, 20):
        found = small.memory.recent_facts([SCOPE], since=ago(days=1), limit=limit, live_at=NOW)
        assert [fact.id for fact in found] == ids[:limit]


# -- search indexes as data ----------------------------------------------------------------------


def test_definitions_of_search_indexes() -> None:
    """Known failure 24: names and definitions were in two places."""
    vector = collections.vector_index(dimensions=384)
    text = collections.text_index(analyzer="lucene.standard")
    fields = vector.definition["fields"]
    assert fields[0] == {
        "type": "vector",
        "path": "embedding",
        "numDimensions": 384,
        "similarity": "cosine",
    }
    filtered = {field["path"] for field in fields[1:]}
    assert filtered >= {
        "agent_id",
        "user_id",
        "group_id",
        "shard",
        "scope",
        "session_id",
        "formed_at",
    }
    content = text.definition["mappings"]["fields"]["content"]
    assert content["analyzer"] == "lucene.standard"
    assert {vector.type, text.type} == {"vectorSearch", "search"}
