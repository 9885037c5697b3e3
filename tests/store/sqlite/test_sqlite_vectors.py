"""The semantic list on SQLite: the first pass loses next to nothing, and nothing bad is stored."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edenmem.errors import EmbeddingModelMismatch, InputError
from edenmem.models.changes import AddFact, RemoveFact, ReviseFact
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import SCORE_DECIMALS, FactFilter
from edenmem.store.sqlite import SqliteStore
from edenmem.store.sqlite.core.scopes import states_of
from edenmem.store.sqlite.memory.vectors import check_vector, code_of
from edenmem.store.sqlite.search.nearest import Block, CodeCache, ExactScores
from tests.support.builders import NOW, ago, make_fact
from tests.support.exhaustive import spared
from tests.support.memory import add_fact, add_facts, applied
from tests.support.vectors import count_models, random_unit

SCOPE = Scope.agent(new_id())
OTHER = Scope.agent(new_id())
MINE = FactFilter(scopes=(SCOPE,))

#: Scores that are no further apart are of equals, in whatever order their products were added.
TIE = 2 * 10**-SCORE_DECIMALS


def packed(*numbers: float) -> bytes:
    return np.array(numbers, dtype="<f4").tobytes()


# -- codes ---------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=200))
def test_a_code_is_the_signs(numbers: list[float]) -> None:
    signs = ~np.signbit(np.array(numbers, dtype="<f4"))
    assert code_of(packed(*numbers)) == np.packbits(signs).tobytes()


@pytest.mark.parametrize(
    ("vector", "said"),
    [
        (b"", "not a list of float32"),
        (b"abc", "not a list of float32"),
        (packed(0, 0, 0), "all zeros"),
        (packed(0, -0.0), "all zeros"),
        (packed(1, math.nan), "not finite"),
        (packed(1, math.inf), "not finite"),
    ],
)
def test_an_invalid_vector_is_refused(opened: SqliteStore, vector: bytes, said: str) -> None:
    """Known failure 27: a failed embedding was stored as zeros."""
    with pytest.raises(InputError, match=said):
        check_vector(vector)
    fact = add_fact(opened, SCOPE)
    bad = make_fact(SCOPE, "bad", embedding=vector, embedding_model="m")
    revision = ReviseFact(
        scope=SCOPE,
        fact_id=fact.id,
        expected_version=1,
        content="bad",
        at=NOW,
        embedding=vector,
        embedding_model="m",
    )
    for change in (AddFact(fact=bad), revision):
        with pytest.raises(InputError, match=said):
            applied(opened, AddFact(fact=make_fact(SCOPE, "good")), change)
    with pytest.raises(InputError, match=said):
        opened.vectors.set_vectors({fact.id: (fact.hash, vector)}, model="m")
    with pytest.raises(InputError, match=said):
        opened.search.semantic_candidates(MINE, [vector], model="m", limit=1)
    assert list(opened.memory.facts(MINE, with_vectors=True)) == [fact]
    assert count_models(opened) == {"": 1}


def test_vectors_of_one_name_and_two_lengths_are_of_two_models(opened: SqliteStore) -> None:
    """Known failure 28: a changed model gave a dimension error, or nonsense."""
    short = add_fact(opened, SCOPE, "one", embedding=random_unit(1, 8), embedding_model="m")
    with pytest.raises(EmbeddingModelMismatch, match=r"'m \(8 dimensions\)'.*'m \(16 dim"):
        opened.search.semantic_candidates(MINE, [random_unit(1, 16)], model="m", limit=1)
    long = add_fact(opened, SCOPE, "two", embedding=random_unit(1, 16), embedding_model="m")
    for size, fact in ((8, short), (16, long)):
        (found,) = opened.search.semantic_candidates(
            MINE, [random_unit(1, size)], model="m", limit=5
        )
        assert [one.fact_id for one in found] == [fact.id]
        assert found[0].score == pytest.approx(1.0)
    assert [fact.id for fact in opened.vectors.stale_facts("m", dimensions=16)] == [short.id]
    opened.vectors.set_vectors({short.id: (short.hash, random_unit(2, 16))}, model="m")
    assert not list(opened.vectors.stale_facts("m", dimensions=16))
    assert count_models(opened) == {"m": 2}


def test_a_vector_without_a_model_is_kept_and_never_compared(opened: SqliteStore) -> None:
    for dimensions in (8, 16):
        fact = add_fact(opened, SCOPE, f"{dimensions}", embedding=random_unit(1, dimensions))
        stored = opened.memory.fact(fact.id, with_vector=True)
        assert stored == fact
    assert count_models(opened) == {"": 2}
    assert opened.search.semantic_candidates(MINE, [random_unit(1)], model="m", limit=1) == [[]]
    assert opened.search.semantic_candidates(MINE, [random_unit(1)], model="", limit=1) == [[]]


# -- the first pass ------------------------------------------------------------------------------


def clustered(count: int, dimensions: int, seed: int) -> list[bytes]:
    """Vectors around common topics, as sentences are."""
    generator = np.random.default_rng(seed)
    topics = np.random.default_rng(0).standard_normal((40, dimensions))
    points = topics[generator.integers(0, 40, count)]
    points += 0.8 * generator.standard_normal((count, dimensions))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return [point.astype("<f4").tobytes() for point in points]


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [100, spared(384)])
def test_the_first_pass_keeps_what_is_nearest(opened: SqliteStore, dimensions: int) -> None:
    stored = clustered(4000, dimensions, seed=1)
    add_facts(
        opened,
        *(
            make_fact(SCOPE, f"fact {n}", embedding=vector, embedding_model="m")
            for n, vector in enumerate(stored)
        ),
    )
    queries = clustered(60, dimensions, seed=2)
    fast = opened.search.semantic_candidates(MINE, queries, model="m", limit=10)
    exact = opened.search.semantic_candidates(MINE, queries, model="m", limit=10, exact=True)
    kept = 0
    for got, best in zip(fast, exact, strict=True):
        assert len(got) == len(best) == 10
        # Who is as near as the tenth may stand in its place.
        kept += sum(one.score >= best[-1].score - TIE for one in got)
        scores = {one.fact_id: one.score for one in best}
        assert all(abs(one.score - scores.get(one.fact_id, one.score)) <= TIE for one in got)
    assert kept >= 0.995 * 10 * len(queries)
    for query, got in zip(queries, fast, strict=True):
        ((alone,),) = opened.search.semantic_candidates(MINE, [query], model="m", limit=1)
        assert alone.score == pytest.approx(got[0].score, abs=TIE)
        assert alone.fact_id in {one.fact_id for one in got if one.score >= alone.score - TIE}


@pytest.mark.slow
def test_filters_hold_in_both_passes_and_without_numpy(
    opened: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known failure 31: a filter was applied after the top k were taken."""
    session = new_id()
    vectors = clustered(1500, 64, seed=3)
    facts = [
        make_fact(
            SCOPE if n % 3 else OTHER,
            f"fact {n}",
            embedding=vector,
            embedding_model="m",
            formed_at=ago(hours=n),
            session_id=session if n % 2 else None,
        )
        for n, vector in enumerate(vectors)
    ]
    add_facts(opened, *facts)
    query = clustered(1, 64, seed=4)[0]
    for filter in (
        MINE,
        FactFilter(scopes=(SCOPE, OTHER), session_id=session),
        FactFilter(scopes=(SCOPE,), since=ago(hours=900)),
        FactFilter(scopes=(OTHER,), until=ago(hours=1200), session_id=session),
    ):
        (fast,) = opened.search.semantic_candidates(filter, [query], model="m", limit=40)
        (exact,) = opened.search.semantic_candidates(
            filter, [query], model="m", limit=40, exact=True
        )
        with monkeypatch.context() as unloaded:
            unloaded.delitem(sys.modules, "numpy")
            (plain,) = opened.search.semantic_candidates(filter, [query], model="m", limit=40)
        assert plain == exact
        allowed = {fact.id for fact in opened.memory.facts(filter)}
        assert {one.fact_id for one in exact} <= allowed
        assert len(exact) == min(40, len(allowed))
        assert all(one.score >= exact[9].score - TIE for one in fast[:10])


# -- the codes that are kept in memory -----------------------------------------------------------


def test_kept_codes_follow_every_change(opened: SqliteStore) -> None:
    old, new = random_unit(1, 16), random_unit(2, 16)
    fact = add_fact(opened, SCOPE, "one", embedding=old, embedding_model="m")

    def score(vector: bytes) -> float:
        ((found,),) = opened.search.semantic_candidates(MINE, [vector], model="m", limit=1)
        assert found.fact_id == fact.id
        return found.score

    assert score(old) == pytest.approx(1)
    assert opened.vectors.set_vectors({fact.id: (fact.hash, new)}, model="m") == 1
    assert score(new) == pytest.approx(1)
    applied(
        opened,
        ReviseFact(
            scope=SCOPE,
            fact_id=fact.id,
            expected_version=1,
            content="two",
            at=NOW,
            embedding=old,
            embedding_model="m",
        ),
    )
    assert score(old) == pytest.approx(1)


def test_kept_codes_are_bounded(opened: SqliteStore) -> None:
    scopes = [Scope.agent(new_id()) for _ in range(5)]
    for scope in scopes:
        add_fact(opened, scope, embedding=random_unit(1, 64), embedding_model="m")
    with opened.connections.reading() as connection:
        scorer = ExactScores(connection, (1, 64))
        first, second, third, fourth, _ = states_of(connection, scopes).values()
        size = CodeCache().block(scorer, first).size
        cache = CodeCache(limit=3 * size)
        blocks: list[Block] = [
            cache.block(scorer, n) for n in (first, second, third, first, fourth)
        ]
        assert cache.block(scorer, first) is blocks[0]
        assert cache.block(scorer, fourth) is blocks[4]
        assert cache.block(scorer, second) is not blocks[1]
        tiny = CodeCache(limit=1)
        assert len(tiny.block(scorer, first).facts) == 1


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [100, spared(384)])
def test_a_floor_costs_nothing_that_is_above_it(opened: SqliteStore, dimensions: int) -> None:
    stored = clustered(3000, dimensions, seed=5)
    add_facts(
        opened,
        *(
            make_fact(SCOPE, f"fact {n}", embedding=vector, embedding_model="m")
            for n, vector in enumerate(stored)
        ),
    )
    queries = [*clustered(30, dimensions, seed=6), *(random_unit(s, dimensions) for s in range(9))]
    for floor in (0.55, 0.7, 0.9, 1.0):
        above = opened.search.semantic_candidates(MINE, queries, model="m", limit=5, floor=floor)
        plain = opened.search.semantic_candidates(MINE, queries, model="m", limit=5)
        assert above == [[one for one in found if one.score >= floor] for found in plain]


class CodesInMemory(RuleBasedStateMachine):
    """Whatever is added, changed and removed in whatever order, also by another process: what a
    store finds with codes that it has kept is what one finds that has kept none."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        path = Path(self.folder.name) / "memory.db"
        self.keeps, self.other = SqliteStore(path), SqliteStore(path)
        self.keeps.database.initialize()
        self.path = path
        self.seed = 0
        self.facts: list[Fact] = []

    def teardown(self) -> None:
        self.keeps.database.close()
        self.other.database.close()
        self.folder.cleanup()

    def vector(self) -> bytes:
        self.seed += 1
        return random_unit(self.seed, 16)

    @rule(embedded=st.booleans())
    def add(self, embedded: bool) -> None:
        vector = {"embedding": self.vector(), "embedding_model": "m"} if embedded else {}
        fact = make_fact(SCOPE, f"fact {self.seed} {len(self.facts)} {new_id()}", **vector)
        add_facts(self.other, fact)
        self.facts.append(fact)

    @precondition(lambda self: self.facts)
    @rule(place=st.integers(0, 99))
    def embed(self, place: int) -> None:
        fact = self.facts[place % len(self.facts)]
        self.other.vectors.set_vectors({fact.id: (fact.hash, self.vector())}, model="m")

    @precondition(lambda self: self.facts)
    @rule(place=st.integers(0, 99))
    def remove(self, place: int) -> None:
        fact = self.facts.pop(place % len(self.facts))
        removal = RemoveFact(scope=SCOPE, fact_id=fact.id, expected_version=1, at=NOW)
        applied(self.other, removal)

    @invariant()
    def the_same_is_found(self) -> None:
        fresh = SqliteStore(self.path)
        found, expected = (
            store.search.semantic_candidates(MINE, [random_unit(0, 16)], model="m", limit=99)
            for store in (self.keeps, fresh)
        )
        fresh.database.close()
        assert found == expected


CodesInMemory.TestCase.settings = settings(max_examples=8, stateful_step_count=12, deadline=None)
TestCodesInMemory = pytest.mark.slow(CodesInMemory.TestCase)
