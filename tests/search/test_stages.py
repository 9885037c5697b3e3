"""What comes after fusion: rerank, recency, diversity, the cut to top_k, joining queries."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.search.ranking import Pool, ScoredFact, join, keep, rank_hits, top
from edenmem.search.stages import POOL_FACTOR, mmr, recency, rerank, shortlist
from tests.support.vectors import random_unit, unit

SCORES = st.floats(0.0, 1.0, allow_nan=False)
POOLS = st.dictionaries(
    st.integers(0, 40).map(lambda number: f"{number:024x}"), SCORES, max_size=20
).map(lambda scores: pool_of(**scores))


def pool_of(**scores: float) -> Pool:
    return rank_hits(
        "fusion", [ScoredFact(fact_id=id, score=score) for id, score in scores.items()]
    )


def order(pool: Pool) -> list[str]:
    return [hit.fact_id for hit in pool.hits]


def cuts_of(pool: Pool) -> list[tuple[str, str, str]]:
    return [(cut.fact_id, cut.stage, cut.why) for cut in pool.cuts]


#: Arguments of a rerank without a floor.
AS_IT_IS: dict[str, Any] = {"floor": None, "model": "m"}


class TestRerank:
    def test_by_hand(self) -> None:
        scores = {"a": 0.2, "b": 0.95, "c": 0.5}
        pool = rerank(pool_of(a=0.9, b=0.8, c=0.7), scores, floor=None, model="ms-marco")
        assert [(hit.fact_id, hit.score) for hit in pool.hits] == [
            ("b", 0.95),
            ("c", 0.5),
            ("a", 0.2),
        ]
        assert pool.hits[0].explain["rerank"] == {
            "rank": 1,
            "score": 0.95,
            "threshold": None,
            "model": "ms-marco",
            "rank_before": 2,
            "score_before": 0.8,
        }

    def test_what_is_below_the_floor_is_cut_and_says_so(self) -> None:
        pool = rerank(pool_of(a=0.9, b=0.8), {"a": 0.25, "b": 0.3}, floor=0.3, model="m")
        assert order(pool) == ["b"]
        assert cuts_of(pool) == [("a", "rerank", "relevance 0.250 is below 0.3")]
        assert pool.cuts[0].hit.explain["rerank"]["score_before"] == 0.9

    def test_only_the_best_are_read(self) -> None:
        pool = shortlist(pool_of(a=0.9, b=0.8, c=0.7), depth=2)
        assert order(pool) == ["a", "b"]
        assert cuts_of(pool) == [("c", "rerank", "rank 3 of 3, only the best 2 are reranked")]

    @given(POOLS, st.integers(1, 25), st.floats(0, 1), st.data())
    def test_no_fact_is_lost(
        self, pool: Pool, depth: int, floor: float, data: st.DataObject
    ) -> None:
        short = shortlist(pool, depth=depth)
        scores = {fact_id: data.draw(SCORES) for fact_id in order(short)}
        result = rerank(short, scores, floor=floor or None, model="m")
        everybody = sorted(order(result) + [cut.fact_id for cut in result.cuts])
        assert everybody == sorted(order(pool))
        assert [hit.score for hit in result.hits] == sorted(
            (score for score in scores.values() if score >= floor), reverse=True
        )


class TestRecency:
    def test_by_hand(self) -> None:
        pool = recency(pool_of(a=0.9, b=0.8), {"a": 60.0, "b": 0.0}, weight=0.2, days=30.0)
        old = 0.8 * 0.9 + 0.2 * math.exp(-2)
        assert [(hit.fact_id, hit.score) for hit in pool.hits] == [
            ("b", pytest.approx(0.8 * 0.8 + 0.2)),
            ("a", pytest.approx(old)),
        ]
        assert pool.hits[1].explain["recency"]["age_days"] == 60.0
        assert pool.hits[1].explain["recency"]["rank"] == 2
        assert pool.hits[1].explain["recency"]["rank_before"] == 1
        assert pool.hits[1].explain["recency"]["score_before"] == 0.9
        assert pool.hits[1].explain["fusion"]["rank"] == 1

    def test_a_time_in_the_future_counts_as_now(self) -> None:
        pool = recency(pool_of(a=0.5), {"a": -3.0}, weight=0.2, days=30.0)
        assert pool.hits[0].score == pytest.approx(0.8 * 0.5 + 0.2)

    @given(POOLS, st.floats(0, 1), st.floats(0.1, 1000), st.data())
    def test_scores_stay_in_the_unit_interval_and_the_newer_of_equals_is_first(
        self, pool: Pool, weight: float, days: float, data: st.DataObject
    ) -> None:
        ages = {hit.fact_id: data.draw(st.floats(0, 5000)) for hit in pool.hits}
        result = recency(pool, ages, weight=weight, days=days)
        before = {hit.fact_id: hit.score for hit in pool.hits}
        assert all(0.0 <= hit.score <= 1.0 for hit in result.hits)
        after = {hit.fact_id: hit.score for hit in result.hits}
        for one, other in itertools.permutations(after, 2):
            if before[one] >= before[other] and ages[one] <= ages[other]:
                assert after[one] >= after[other] - 1e-12


class TestMmr:
    def test_a_copy_gives_way_to_something_else(self) -> None:
        vectors = {"a": unit(1, 0), "b": unit(1, 0.01), "c": unit(0, 1)}
        pool = mmr(pool_of(a=0.9, b=0.89, c=0.6), vectors, top_k=2, trade_off=0.7)
        assert order(pool) == ["a", "c"]
        assert [(cut.fact_id, cut.stage) for cut in pool.cuts] == [("b", "mmr")]

    def test_relevance_alone_keeps_the_order(self) -> None:
        vectors = {"a": unit(1, 0), "b": unit(1, 0), "c": unit(0, 1)}
        pool = mmr(pool_of(a=0.9, b=0.8, c=0.7), vectors, top_k=3, trade_off=1.0)
        assert order(pool) == ["a", "b", "c"]

    def test_opposite_vectors_count_as_unrelated(self) -> None:
        vectors = {"a": unit(1, 0), "b": unit(-1, 0), "c": unit(0, 1)}
        pool = mmr(pool_of(a=0.9, b=0.5, c=0.6), vectors, top_k=3, trade_off=0.5)
        assert order(pool) == ["a", "c", "b"]
        assert pool.hits[2].explain["mmr"]["redundancy"] == 0.0

    def test_unrelated_facts_of_a_model_with_high_cosines_are_not_redundant(self) -> None:
        vectors = {"a": unit(1, 0), "b": unit(0.7, 0.714), "c": unit(0.9, 0.436)}
        given = pool_of(a=0.9, b=0.5, c=0.6)
        pool = mmr(given, vectors, top_k=3, trade_off=0.7, zero=0.7)
        assert order(pool) == ["a", "b", "c"]
        assert pool.hits[1].explain["mmr"]["redundancy"] == pytest.approx(0.0, abs=0.01)
        assert order(mmr(given, vectors, top_k=3, trade_off=0.7)) == ["a", "c", "b"]

    def test_a_fact_without_a_vector_is_like_no_other(self) -> None:
        pool = mmr(pool_of(a=0.9, b=0.8), {"a": unit(1, 0)}, top_k=2, trade_off=0.7)
        assert pool.hits[1].explain["mmr"]["redundancy"] == 0.0

    def test_what_ranks_far_below_is_not_considered(self) -> None:
        hits = {f"{number:02d}": 0.9 - number / 100 for number in range(10)}
        pool = mmr(pool_of(**hits), {}, top_k=2, trade_off=0.0)
        late = [cut.fact_id for cut in pool.cuts if "not among" in cut.why]
        assert late == [f"{number:02d}" for number in range(POOL_FACTOR * 2, 10)]

    def test_no_hits(self) -> None:
        assert mmr(Pool(), {}, top_k=5, trade_off=0.7) == Pool()

    @given(POOLS, st.floats(0, 1), st.integers(1, 20), st.integers(0, 5))
    def test_scores_never_rise_and_no_fact_is_lost(
        self, pool: Pool, trade_off: float, top_k: int, alike: int
    ) -> None:
        vectors = {
            hit.fact_id: random_unit(place % (alike + 1)) for place, hit in enumerate(pool.hits)
        }
        result = mmr(pool, vectors, top_k=top_k, trade_off=trade_off)
        scores = [hit.score for hit in result.hits]
        assert scores == sorted(scores, reverse=True)
        assert all(0.0 <= score <= 1.0 for score in scores)
        assert len(result.hits) == min(top_k, len(pool.hits))
        everybody = sorted(order(result) + [cut.fact_id for cut in result.cuts])
        assert everybody == sorted(order(pool))


class TestTop:
    def test_cuts_have_their_rank(self) -> None:
        pool = top(pool_of(a=0.9, b=0.8, c=0.7), top_k=2)
        assert order(pool) == ["a", "b"]
        assert cuts_of(pool) == [("c", "top_k", "rank 3 of 3, top_k is 2")]
        assert pool.cuts[0].hit.explain == {"fusion": {"rank": 3}}

    def test_the_stage_that_put_it_down_is_named(self) -> None:
        pool = rerank(pool_of(a=0.9, b=0.8, c=0.7), {"a": 0.1, "b": 0.3, "c": 0.2}, **AS_IT_IS)
        cut = {cut.fact_id: cut.why for cut in top(pool, top_k=1).cuts}
        assert cut["a"].endswith("top_k is 1; rerank put it from rank 1 to 3")
        assert cut["c"] == "rank 2 of 3, top_k is 1", "it was not among the first before either"

    def test_keep_cuts_the_others(self) -> None:
        pool = keep(pool_of(a=0.9, b=0.8), ["b"], stage="load", why="deleted meanwhile")
        assert order(pool) == ["b"]
        assert cuts_of(pool) == [("a", "load", "deleted meanwhile")]


class TestJoin:
    def test_one_query_is_left_as_it_is(self) -> None:
        pool = pool_of(a=0.5)
        assert join([pool]) is pool

    def test_each_fact_once_with_its_best_score(self) -> None:
        joined = join([pool_of(a=0.9, b=0.5), pool_of(b=0.7, c=0.6)])
        assert [(hit.fact_id, hit.score) for hit in joined.hits] == [
            ("a", 0.9),
            ("b", 0.7),
            ("c", 0.6),
        ]
        query = joined.hits[1].explain["query"]
        assert query["best"] == 2
        assert query["found_by"] == [1, 2]
        assert query["rank"] == 2

    def test_top_k_is_for_each_query(self) -> None:
        first = top(pool_of(a=0.9, b=0.8, c=0.7), top_k=2)
        second = top(pool_of(d=0.3, e=0.2, f=0.1), top_k=2)
        assert order(join([first, second])) == ["a", "b", "d", "e"]

    def test_what_another_query_found_is_not_cut(self) -> None:
        first = top(pool_of(a=0.9, b=0.8), top_k=1)
        second = top(pool_of(b=0.9, a=0.8, c=0.1), top_k=1)
        joined = join([first, second])
        assert order(joined) == ["a", "b"]
        assert [cut.fact_id for cut in joined.cuts] == ["c"]

    @pytest.mark.slow
    @given(st.lists(POOLS, min_size=2, max_size=3))
    def test_the_order_of_the_queries_does_not_change_the_result(self, pools: list[Pool]) -> None:
        def results(pools: list[Pool]) -> list[tuple[str, float]]:
            return [(hit.fact_id, hit.score) for hit in join(pools).hits]

        assert results(pools) == results(pools[::-1])
