"""Candidates for search: semantic and text lists, within the filter."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from edenmem.errors import EmbeddingModelMismatch, StoreError
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import Candidate, FactFilter, Question
from edenmem.search.text_ranking import Corpus
from edenmem.store.protocol.store import Store
from tests.support.builders import ago, make_fact, removal, revision
from tests.support.memory import add_fact, add_facts, applied
from tests.support.stores import ATLAS_TOO, SECANTUS_TOO
from tests.support.vectors import numbers, random_unit, unit

AGENT = new_id()
SCOPE = Scope.user(AGENT, new_id())
OTHER = Scope.user(AGENT, new_id())
MINE = FactFilter(scopes=(SCOPE,))
DIMENSIONS = 32


@pytest.fixture(params=["sqlite", SECANTUS_TOO, ATLAS_TOO])
def store(request: pytest.FixtureRequest, open_store: Callable[[str], Store]) -> Store:
    """Atlas has a separate implementation of search."""
    return open_store(request.param)


def make_embedded(scope: Scope, seed: int, content: str = "", **fields: object) -> Fact:
    defaults = {"embedding": random_unit(seed, DIMENSIONS), "embedding_model": "m"}
    return make_fact(scope, content or f"fact {seed}", **{**defaults, **fields})


def _padded(*numbers: float) -> bytes:
    return unit(*numbers, *[0] * (DIMENSIONS - len(numbers)))


def semantic(
    store: Store,
    vector: bytes,
    *,
    filter: FactFilter = MINE,
    model: str = "m",
    limit: int = 10,
    exact: bool = False,
) -> list[Candidate]:
    (found,) = store.search.semantic_candidates(
        filter, [vector], model=model, limit=limit, exact=exact
    )
    return found


def text(
    store: Store, query: str, *, filter: FactFilter = MINE, limit: int = 10
) -> list[Candidate]:
    (found,) = store.search.text_candidates(filter, [query], limit=limit)
    return found


def ids(candidates: list[Candidate]) -> list[str]:
    return [candidate.fact_id for candidate in candidates]


def assert_best_first(candidates: list[Candidate]) -> None:
    assert candidates == sorted(candidates, key=lambda one: (one.score, one.fact_id), reverse=True)
    assert len(set(ids(candidates))) == len(candidates)


def test_the_store_describes_its_search(store: Store) -> None:
    ability = store.search.search_ability()
    assert ability.kind in ("embedded", "atlas", "scan")
    if ability.kind == "scan":
        assert ability.notice  # Known failure 29: never a silent fallback
    assert ability.text_floor == (ability.kind == "atlas")


# -- semantic ------------------------------------------------------------------------------------


def test_scores_match_the_definition(store: Store) -> None:
    """Known failure 26: a cosine was compared with (1 + cosine) / 2."""
    directions = {"same": (1, 0, 0, 0), "near": (3, 4, 0, 0), "right": (0, 1, 0, 0)}
    directions |= {"away": (-3, 0, 4, 0), "against": (-1, 0, 0, 0)}
    facts = {
        name: make_embedded(SCOPE, n, name, embedding=_padded(*direction))
        for n, (name, direction) in enumerate(directions.items())
    }
    add_facts(store, *facts.values())
    for exact in (True, False):
        found = semantic(store, _padded(1, 0, 0, 0), exact=exact)
        assert ids(found) == [facts[name].id for name in directions]
        scores = [candidate.score for candidate in found]
        assert scores == pytest.approx([1.0, 0.8, 0.5, 0.2, 0.0], abs=1e-6)
        assert all(0 <= one <= 1 for one in scores)


def test_exact_candidates_match_brute_force(store: Store) -> None:
    facts = [make_embedded(SCOPE, seed) for seed in range(120)]
    add_facts(store, *facts)
    queries = [random_unit(seed, DIMENSIONS) for seed in (1000, 1001, 1002)]
    lists = store.search.semantic_candidates(MINE, queries, model="m", limit=25, exact=True)
    matrix = np.array([numbers(fact.embedding or b"") for fact in facts])
    for query, found in zip(queries, lists, strict=True):
        scores = (1 + matrix @ numbers(query)) / 2
        best = np.argsort(-scores)[:25]
        assert ids(found) == [facts[place].id for place in best]
        assert [one.score for one in found] == pytest.approx(scores[best].tolist(), abs=1e-5)
        assert_best_first(found)


def test_nothing_under_the_floor_is_a_candidate(store: Store) -> None:
    facts = [make_embedded(SCOPE, seed) for seed in range(60)]
    add_facts(store, *facts)
    queries = [facts[7].embedding or b"", random_unit(1000, DIMENSIONS)]
    plain = store.search.semantic_candidates(MINE, queries, model="m", limit=9)
    floor = plain[1][4].score
    above = store.search.semantic_candidates(MINE, queries, model="m", limit=9, floor=floor)
    assert above == [[one for one in found if one.score >= floor] for found in plain]
    assert len(above[1]) == 5


def test_of_equal_scores_the_newest_facts_come_first(store: Store) -> None:
    """Regardless of the number of queries and of the processor."""
    facts = [make_embedded(SCOPE, 1, f"fact {n}") for n in range(15)]
    add_facts(store, *facts)
    queries = [random_unit(seed, DIMENSIONS) for seed in range(9)]
    alone = [
        semantic(store, query, limit=7, exact=exact)
        for query in queries[:5]
        for exact in (True, False)
    ]
    together = store.search.semantic_candidates(MINE, queries, model="m", limit=7)
    for found in (*alone, *together):
        if store.search.search_ability().kind == "atlas":  # Atlas keeps any of the equal candidates
            assert len(found) == 7
            assert ids(found) == sorted(ids(found), reverse=True)
        else:
            assert ids(found) == [fact.id for fact in reversed(facts)][:7]


def test_the_filter_applies_before_the_limit(store: Store) -> None:
    """Known failure 31: the tenant's filter was applied after the top k."""
    query = random_unit(7, DIMENSIONS)
    near = [make_embedded(OTHER, 7, f"theirs {n}") for n in range(60)]
    far = [make_embedded(SCOPE, seed, f"mine {seed}") for seed in (100, 101, 102)]
    session = new_id()
    odd = make_embedded(SCOPE, 103, session_id=session, formed_at=ago(days=40))
    add_facts(store, *near, *far, odd)
    of_session = FactFilter(scopes=(SCOPE, OTHER), session_id=session)
    old = FactFilter(scopes=(SCOPE, OTHER), until=ago(days=30))
    recent = FactFilter(scopes=(SCOPE,), since=ago(days=30))
    for exact in (True, False):
        found = semantic(store, query, limit=4, exact=exact)
        assert set(ids(found)) == {fact.id for fact in (*far, odd)}
        assert ids(semantic(store, query, filter=of_session, limit=1, exact=exact)) == [odd.id]
        assert ids(semantic(store, query, filter=old, limit=1, exact=exact)) == [odd.id]
        found = semantic(store, query, filter=recent, limit=9, exact=exact)
        assert set(ids(found)) == {fact.id for fact in far}


def test_a_filter_may_leave_no_vector(store: Store) -> None:
    add_facts(store, make_embedded(SCOPE, 1, "old", formed_at=ago(days=40)))
    add_fact(store, SCOPE, "bare", formed_at=ago(days=1))
    recent = FactFilter(scopes=(SCOPE,), since=ago(days=30))
    asked = [
        Question("bare", random_unit(1, DIMENSIONS)),
        Question("old", random_unit(2, DIMENSIONS)),
    ]
    for exact in (True, False):
        found = store.search.candidates(
            recent, asked, ["semantic", "text"], model="m", limit=9, exact=exact
        )
        assert [len(lists["semantic"].found) for lists in found.lists] == [0, 0]
        assert [len(lists["text"].found) for lists in found.lists] == [1, 0]
        assert semantic(store, random_unit(1, DIMENSIONS), filter=recent, exact=exact) == []


def test_facts_without_a_vector_are_left_out(store: Store) -> None:
    """Known failure 27: a missing vector was stored as zeros and compared."""
    bare = add_fact(store, SCOPE, "bare")
    assert semantic(store, random_unit(1, DIMENSIONS)) == []
    embedded = make_embedded(SCOPE, 1)
    add_facts(store, embedded)
    assert ids(semantic(store, random_unit(1, DIMENSIONS))) == [embedded.id]
    store.vectors.set_vectors({bare.id: (bare.hash, random_unit(1, DIMENSIONS))}, model="m")
    assert set(ids(semantic(store, random_unit(1, DIMENSIONS)))) == {embedded.id, bare.id}


def test_vectors_of_another_model_are_an_error_and_never_compared(store: Store) -> None:
    """Known failure 28: vectors of two models shared a field."""
    old = make_embedded(SCOPE, 1, "old", embedding_model="old", embedding=random_unit(1, 8))
    add_facts(store, old)
    with pytest.raises(EmbeddingModelMismatch) as caught:
        semantic(store, random_unit(1, DIMENSIONS), model="new")
    assert (caught.value.stored, caught.value.current) == ("old", "new")
    assert semantic(store, random_unit(1, DIMENSIONS), model="new", filter=_filter(OTHER)) == []

    new = make_embedded(SCOPE, 2, "new", embedding_model="new")
    add_facts(store, new)
    for exact in (True, False):
        found = semantic(store, random_unit(1, DIMENSIONS), model="new", exact=exact)
        assert ids(found) == [new.id]
        if store.search.search_ability().kind == "atlas":  # an index has one length
            with pytest.raises(StoreError, match="32 dimensions, the query 8"):
                semantic(store, random_unit(1, 8), model="old", exact=exact)
            continue
        found = semantic(store, random_unit(1, 8), model="old", exact=exact)
        assert ids(found) == [old.id]


def _filter(*scopes: Scope) -> FactFilter:
    return FactFilter(scopes=scopes)


def test_several_queries_at_once_and_none(store: Store) -> None:
    words = ("anchor", "basket", "candle")
    facts = [make_embedded(SCOPE, seed, word) for seed, word in enumerate(words)]
    add_facts(store, *facts)
    vectors = [random_unit(seed, DIMENSIONS) for seed in (2, 0, 1, 0)]
    lists = store.search.semantic_candidates(MINE, vectors, model="m", limit=1)
    assert [ids(found) for found in lists] == [[facts[n].id] for n in (2, 0, 1, 0)]
    matching = store.search.text_candidates(MINE, ["basket", "nothing", "anchor"], limit=9)
    assert [ids(found) for found in matching] == [[facts[1].id], [], [facts[0].id]]
    assert store.search.semantic_candidates(MINE, [], model="m", limit=1) == []
    assert store.search.text_candidates(MINE, [], limit=1) == []


def test_candidates_follow_changes_immediately(store: Store) -> None:
    """Known failure 32: a new document was not yet searchable, and nothing reported it."""
    fact = make_embedded(SCOPE, 1, "Anna keeps bees.")
    add_facts(store, fact)
    change = revision(
        fact, "Anna paints.", scope=SCOPE, embedding=random_unit(2, DIMENSIONS), embedding_model="m"
    )
    applied(store, change)
    assert text(store, "bees") == []
    assert ids(text(store, "paints")) == [fact.id]
    (found,) = semantic(store, random_unit(2, DIMENSIONS))
    assert found.score == pytest.approx(1)
    applied(store, removal(fact, scope=SCOPE, expected_version=2))
    assert semantic(store, random_unit(2, DIMENSIONS)) == []
    assert text(store, "Anna paints") == []


# -- text ----------------------------------------------------------------------------------------


def test_any_word_matches_and_more_words_score_higher(store: Store) -> None:
    both = add_fact(store, SCOPE, "Anna keeps bees in Lisbon.")
    bees = add_fact(store, SCOPE, "Ben sells honey from bees.")
    city = add_fact(store, SCOPE, "The river of LISBON floods.")
    add_fact(store, SCOPE, "Carla plays chess.")
    add_fact(store, OTHER, "Dora keeps bees in Lisbon.")
    found = text(store, "bees lisbon")
    assert ids(found)[0] == both.id
    assert set(ids(found)) == {both.id, bees.id, city.id}
    assert_best_first(found)
    assert ids(text(store, "bees lisbon", limit=1)) == [both.id]
    assert text(store, "astronomy") == []


def test_rare_words_weigh_more_than_common_ones(store: Store) -> None:
    for number in range(12):
        add_fact(store, SCOPE, f"Garden note {number} by Anna.")
    rare = add_fact(store, SCOPE, "Saffron note eleven by Ben.")
    found = text(store, "garden saffron", limit=20)
    assert ids(found)[0] == rare.id
    assert len(found) == 13


def test_the_text_filter_applies_before_the_limit(store: Store) -> None:
    """Known failure 31: the tenant's filter was applied after the top k."""
    add_facts(store, *(make_fact(OTHER, f"bees bees bees {n}") for n in range(60)))
    session = new_id()
    mine = add_fact(store, SCOPE, "Someone once spoke at length about bees, among other things.")
    heard = add_fact(store, SCOPE, "Bees again.", session_id=session, formed_at=ago(days=40))
    assert set(ids(text(store, "bees", limit=2))) == {mine.id, heard.id}
    of_session = FactFilter(scopes=(SCOPE, OTHER), session_id=session)
    assert ids(text(store, "bees", filter=of_session, limit=1)) == [heard.id]
    old = FactFilter(scopes=(SCOPE, OTHER), until=ago(days=30))
    assert ids(text(store, "bees", filter=old, limit=1)) == [heard.id]
    recent = FactFilter(scopes=(SCOPE,), since=ago(days=30))
    assert ids(text(store, "bees", filter=recent, limit=9)) == [mine.id]


SYNTAX = (
    '"',
    '"unbalanced',
    "AND",
    "a OR",
    "NEAR(",
    "NEAR(a b, 2)",
    "*",
    "x*",
    "^x",
    "-x",
    "+",
    "content:x",
    "rowid:1",
    "{a b}:",
    "(",
    ")",
    "()",
    "'; DROP TABLE facts; --",
    "$where",
    "{'$ne': 1}",
    "\\",
    "%",
    "_",
    "\x00",
    "\ud800",
    "",
    " \n\t",
    "。，！",
    "🙂",
    "‏",
    "~",
    "/regex/",
    "[/red]",
)


def test_a_query_is_words_and_never_syntax(store: Store) -> None:
    fact = add_fact(store, SCOPE, "Anna keeps bees.")
    for syntax in SYNTAX:
        assert text(store, syntax) == [], syntax
        assert ids(text(store, f"{syntax} bees {syntax}")) == [fact.id], syntax
    assert ids(text(store, "bees " * 20_000)) == [fact.id]


def test_operators_are_words_like_others(store: Store) -> None:
    fact = add_fact(store, SCOPE, "Logic gates: xnor, nand, near-miss.")
    add_fact(store, SCOPE, "Something else.")
    for query in ("xnor NEAR zzz", "zzz NAND yyy", "nand -xnor"):
        assert ids(text(store, query)) == [fact.id], query


def test_text_in_many_scripts_is_found(store: Store) -> None:
    contents = {
        "القهوة": "أنا تحب القهوة في الصباح",
        "чай": "Анна любит чай",
        "Zürich": "Anna wohnt in Zürich",
        "커피": "안나는 커피 좋아해요",
        "1984": "Anna read 1984 twice",
    }
    facts = {word: add_fact(store, SCOPE, content) for word, content in contents.items()}
    for word, fact in facts.items():
        assert ids(text(store, word)) == [fact.id], word


def test_every_match_is_found_up_to_the_limit(store: Store) -> None:
    facts = [make_fact(SCOPE, f"bees number{n}") for n in range(120)]
    add_facts(store, *facts)
    found = text(store, "bees", limit=150)
    assert len(found) == 120
    assert_best_first(found)
    if store.search.search_ability().kind == "atlas":  # Atlas keeps any of the equal candidates
        assert len(text(store, "bees", limit=100)) == 100
        assert ids(text(store, "number77"))[0] == facts[77].id  # Atlas finds others too
    else:
        assert ids(text(store, "bees", limit=100)) == ids(found)[:100]
        assert ids(text(store, "number77")) == [facts[77].id]


def test_identical_texts_of_several_scopes_tie(store: Store) -> None:
    scopes = [Scope.user(AGENT, new_id()) for _ in range(5)]
    facts = [add_fact(store, scope, "Anna keeps bees.") for scope in scopes]
    found = text(store, "bees", filter=_filter(*scopes))
    assert ids(found) == [fact.id for fact in reversed(facts)]
    assert len({candidate.score for candidate in found}) == 1
    assert msgspec.structs.asdict(found[0]).keys() == {"fact_id", "score"}


# -- lists together ------------------------------------------------------------------------------


def test_each_list_has_the_scores_of_what_the_others_found(store: Store) -> None:
    """By meaning each question finds one fact, by words all that have its word."""
    words = [f"Anna {'rows' if n % 2 else 'sails'}{' out' * n}." for n in range(40)]
    facts = [make_embedded(SCOPE, n, content=text) for n, text in enumerate(words)]
    without = make_fact(SCOPE, "Anna rows without a vector.")
    other = make_embedded(SCOPE, 77, content="Anna rows with another.", embedding_model="n")
    elsewhere = make_embedded(OTHER, 78, content="Anna rows elsewhere.")
    add_facts(store, *facts, without, other, elsewhere)
    asked = [
        Question("rows", random_unit(1000, DIMENSIONS)),
        Question("sails", random_unit(7, DIMENSIONS)),
    ]
    for number, question in enumerate(asked):
        alone = {
            name: store.search.candidates(MINE, [question], [name], model="m", limit=99, exact=True)
            for name in ("semantic", "text")
        }
        both = store.search.candidates(
            MINE, asked, ["semantic", "text"], model="m", limit=9, exact=True
        )
        for name, found in alone.items():
            every, lists = found.lists[0][name], both.lists[number]
            assert dict(list(every.found.items())[:9]) == lists[name].found
            union = {id for each in lists.values() for id in each.found}
            assert elsewhere.id not in union
            if name == "text" and not lists[name].whole:
                continue  # Atlas
            expected = {id: score for id, score in every.found.items() if id in union}
            assert {**lists[name].completed, **lists[name].found} == pytest.approx(
                expected, abs=1e-6
            )
    assert both.without_vector == 2


def test_candidates_say_which_are_unconfirmed(store: Store) -> None:
    """A store may read the candidates; it then returns all of them, without vectors."""
    doubted = add_fact(store, SCOPE, "Anna may row.", unconfirmed="has no quote")
    add_fact(store, OTHER, "Anna may row.", unconfirmed="has no quote")
    sure = add_fact(store, SCOPE, "Anna rows.")
    found = store.search.candidates(MINE, [Question("rows")], ["text"], model="", limit=9)
    assert found.unconfirmed == {doubted.id}
    assert found.without_vector == 0
    if found.facts:
        assert found.facts.keys() == {doubted.id, sure.id}


@pytest.mark.slow
def test_stores_rank_equally(open_store: Callable[[str], Store]) -> None:
    """The same facts must get the scores of a reference without an index.

    Includes completed scores, inflected and misspelled words, other scripts, duplicates and other
    users.
    """
    contents = [
        "Anna keeps bees, and bees keep Anna.",
        "Anna paints the harbour in the evening.",
        "Anna painted a harbour, a boat and the harbour wall.",
        "Anna lives in Zürich with a beagle.",
        "Ben is Anna's cousin and studies the universe.",
        "安娜住在上海的一个小房子里",
        "Anna.",
    ]
    facts = [make_fact(SCOPE, content) for content in contents]
    others = [make_fact(OTHER, f"Anna and the bees of the harbour, {n}") for n in range(20)]
    queries = ["anna bees", "painting harbours", "zurich", "univerze beagel", "上海", "cousin anna"]
    for kind in ("sqlite", SECANTUS_TOO.values[0]):
        store = open_store(kind)
        add_facts(store, *facts, *others)
        corpus = Corpus((fact.id, fact.content) for fact in facts)
        asked = [Question(query) for query in queries]
        found = store.search.candidates(MINE, asked, ["text"], model="", limit=9)
        for query, lists in zip(queries, found.lists, strict=True):
            weighed = corpus.weigh(query)
            expected = dict(corpus.best(weighed, 9))
            assert expected, query
            assert lists["text"].found == pytest.approx(expected, abs=1e-9)
            assert list(lists["text"].found) == list(expected)
            assert lists["text"].whole == pytest.approx(weighed.whole, abs=1e-9)
