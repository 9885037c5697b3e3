"""Fusing a semantic and a text list."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.models.search import Candidate, ListName
from edenmem.search.fusion import convex, rrf, semantic_list, single, text_list
from edenmem.search.ranking import Pool

IDS = st.integers(0, 30).map(lambda number: f"{number:024x}")
SEMANTIC_SCORES = st.floats(0.0, 1.0, allow_nan=False)
TEXT_SCORES = st.floats(0.01, 60.0, allow_nan=False)


def candidates(scores: st.SearchStrategy[float]) -> st.SearchStrategy[list[Candidate]]:
    return st.dictionaries(IDS, scores, max_size=25).map(
        lambda found: [Candidate(fact_id, score) for fact_id, score in found.items()]
    )


SEMANTIC = candidates(SEMANTIC_SCORES)
TEXT = candidates(TEXT_SCORES)


def found(*pairs: tuple[str, float]) -> list[Candidate]:
    return [Candidate(fact_id, score) for fact_id, score in pairs]


def scores(pool: Pool) -> dict[str, float]:
    return {hit.fact_id: hit.score for hit in pool.hits}


def _weights(semantic: float) -> dict[ListName, float]:
    return {"semantic": semantic, "text": 1.0 - semantic}


def fuse_convex(
    semantic: list[Candidate],
    text: list[Candidate],
    *,
    weight: float = 0.6,
    depth: int = 100,
    semantic_floor: float | None = None,
    text_floor: float | None = None,
) -> Pool:
    return convex(
        semantic_list(semantic, depth=depth, floor=semantic_floor),
        text_list(text, depth=depth, floor=text_floor),
        weights=_weights(weight),
    )


def fuse_rrf(
    semantic: list[Candidate], text: list[Candidate], *, depth: int = 20, floor: float = 0.0
) -> Pool:
    return rrf(
        semantic_list(semantic, depth=depth), text_list(text, depth=depth), k=60, floor=floor
    )


def figures(pool: Pool) -> tuple[list[Any], list[Any]]:
    hits = [(hit.fact_id, hit.score, hit.explain) for hit in pool.hits]
    return hits, [(cut.fact_id, cut.stage, cut.why, cut.explain) for cut in pool.cuts]


class TestConvex:
    def test_by_hand(self) -> None:
        # semantic: 0.9 → 1, 0.8 → 0.5, 0.7 → 0; text: 0 is nothing, 8 → 1, 2 → 0.25
        pool = fuse_convex(found(("a", 0.9), ("b", 0.8), ("c", 0.7)), found(("b", 8.0), ("d", 2.0)))
        assert scores(pool) == pytest.approx({"b": 0.6 * 0.5 + 0.4, "a": 0.6, "d": 0.1, "c": 0.0})
        assert [hit.fact_id for hit in pool.hits] == ["b", "a", "d", "c"]

    def test_only_semantic_hits_keep_their_order_below_the_weight(self) -> None:
        pool = fuse_convex(found(("a", 0.9), ("b", 0.7), ("c", 0.8)), [])
        assert [hit.fact_id for hit in pool.hits] == ["a", "c", "b"]
        assert pool.hits[0].score == pytest.approx(0.6)

    def test_only_text_hits_keep_their_order_below_the_weight(self) -> None:
        pool = fuse_convex([], found(("a", 3.0), ("b", 9.0)))
        assert scores(pool) == pytest.approx({"b": 0.4, "a": 0.4 / 3})

    def test_nothing_found_is_nothing(self) -> None:
        assert fuse_convex([], []) == Pool()

    def test_equal_scores_are_all_the_best_and_ordered_by_id(self) -> None:
        pool = fuse_convex(found(("c", 0.8), ("a", 0.8), ("b", 0.8)), [])
        assert [(hit.fact_id, hit.score) for hit in pool.hits] == [
            ("a", 0.6),
            ("b", 0.6),
            ("c", 0.6),
        ]

    def test_a_second_keyword_hit_close_to_the_first_is_worth_nearly_as_much(self) -> None:
        pool = fuse_convex([], found(("a", 8.1), ("b", 8.0)))
        assert scores(pool)["b"] > 0.39

    def test_a_cut_text_list_is_not_stretched(self) -> None:
        text = found(*((f"{number:02d}", 10.0 - number) for number in range(10)))
        pool = fuse_convex([], text, depth=5)
        assert len(pool.hits) == 5
        assert scores(pool)["04"] == pytest.approx(0.4 * 0.6)

    def test_a_match_of_few_words_is_a_share_of_what_all_would_be_worth(self) -> None:
        semantic = semantic_list(found(("a", 0.9), ("b", 0.8)), depth=10, zero=0.5)
        text = found(("b", 1.0))
        best = convex(semantic, text_list(text, depth=10), weights=_weights(0.6))
        assert [hit.fact_id for hit in best.hits] == ["b", "a"]
        share = convex(semantic, text_list(text, depth=10, reach=5.0), weights=_weights(0.6))
        assert [hit.fact_id for hit in share.hits] == ["a", "b"]
        assert scores(share)["b"] == pytest.approx(0.6 * 0.75 + 0.4 * 0.2)
        beyond = convex(semantic, text_list(text, depth=10, reach=0.5), weights=_weights(0.6))
        assert scores(beyond) == scores(best)  # a fact that repeats the words reaches further

    def test_what_one_list_lacked_is_completed(self) -> None:
        """By hand: cosines 0.8, 0.4 and 0.2 over a zero of 0; words 8, 4 and 2."""
        pool = convex(
            semantic_list(
                found(("a", 0.9), ("b", 0.7)), depth=9, floor=0.65, zero=0.5, completed={"c": 0.6}
            ),
            text_list(found(("b", 8.0), ("c", 4.0)), depth=9, completed={"a": 2.0}),
            weights=_weights(0.6),
        )
        assert scores(pool) == pytest.approx(
            {"a": 0.6 + 0.4 * 0.25, "b": 0.6 * 0.5 + 0.4, "c": 0.6 * 0.25 + 0.4 * 0.5}
        )
        said = {hit.fact_id: hit.explain for hit in pool.hits}
        assert said["c"]["semantic"]["completed"]
        assert said["c"]["semantic"]["score"] == 0.6
        assert said["c"]["semantic"]["rank"] is None
        assert "completed" not in said["b"]["semantic"]

    def test_a_completed_score_brings_nothing_in(self) -> None:
        """A floor is about what a list found: words that were too far down do not help over it."""
        pool = convex(
            semantic_list(found(("a", 0.9), ("b", 0.6)), depth=9, floor=0.65, zero=0.5),
            text_list(found(("a", 8.0)), depth=9, completed={"b": 2.0}),
            weights=_weights(0.6),
        )
        assert [hit.fact_id for hit in pool.hits] == ["a"]
        assert [(cut.fact_id, cut.stage) for cut in pool.cuts] == [("b", "semantic")]

    def test_scores_below_the_zero_of_the_model_are_worth_nothing(self) -> None:
        pool = convex(
            semantic_list(found(("a", 0.9), ("b", 0.4)), depth=9, zero=0.5),
            text_list([], depth=9),
            weights=_weights(0.6),
        )
        assert scores(pool) == pytest.approx({"a": 0.6, "b": 0.0})

    def test_the_floor_does_not_stretch_what_comes_through_it(self) -> None:
        """Two near-equal hits that alone come through the floor stay near to each other."""
        semantic = found(("a", 0.82), ("b", 0.81), ("c", 0.5), ("d", 0.4))
        pool = fuse_convex(semantic, [], semantic_floor=0.65)
        assert [hit.fact_id for hit in pool.hits] == ["a", "b"]
        assert scores(pool)["b"] > 0.55

    def test_a_fact_below_the_semantic_floor_stays_if_its_words_match(self) -> None:
        pool = fuse_convex(found(("a", 0.9), ("b", 0.6)), found(("b", 5.0)), semantic_floor=0.65)
        assert scores(pool) == pytest.approx({"a": 0.6, "b": 0.4})  # 0.6 is the lowest: worth 0
        assert not pool.cuts
        hit = next(hit for hit in pool.hits if hit.fact_id == "b")
        assert hit.explain["semantic"]["passed"] is False
        assert hit.explain["semantic"]["threshold"] == 0.65

    @given(SEMANTIC, TEXT, st.floats(0, 1))
    def test_scores_are_in_the_unit_interval_and_no_fact_is_lost(
        self, semantic: list[Candidate], text: list[Candidate], weight: float
    ) -> None:
        pool = fuse_convex(semantic, text, weight=weight)
        assert {hit.fact_id for hit in pool.hits} == {c.fact_id for c in (*semantic, *text)}
        assert all(0.0 <= hit.score <= 1.0 for hit in pool.hits)

    @given(SEMANTIC, TEXT, st.randoms(use_true_random=False))
    def test_the_order_in_which_candidates_come_does_not_matter(
        self, semantic: list[Candidate], text: list[Candidate], random: Random
    ) -> None:
        shuffled_semantic, shuffled_text = list(semantic), list(text)
        random.shuffle(shuffled_semantic)
        random.shuffle(shuffled_text)
        shuffled = fuse_convex(shuffled_semantic, shuffled_text)
        assert figures(fuse_convex(semantic, text)) == figures(shuffled)

    @given(SEMANTIC, TEXT)
    def test_what_is_better_in_both_lists_is_not_worse_in_the_result(
        self, semantic: list[Candidate], text: list[Candidate]
    ) -> None:
        result = scores(fuse_convex(semantic, text))
        by_meaning = {c.fact_id: c.score for c in semantic}
        by_words = {c.fact_id: c.score for c in text}
        for one, other in itertools.permutations(result, 2):
            if by_meaning.get(one, -1.0) >= by_meaning.get(other, -1.0) and (
                by_words.get(one, -1.0) >= by_words.get(other, -1.0)
            ):
                assert result[one] >= result[other] - 1e-12

    @given(SEMANTIC, TEXT)
    def test_equal_results_are_ordered_by_id(
        self, semantic: list[Candidate], text: list[Candidate]
    ) -> None:
        hits = fuse_convex(semantic, text).hits
        for before, after in itertools.pairwise(hits):
            assert (-before.score, before.fact_id) < (-after.score, after.fact_id)


class TestRrf:
    def test_reference_values_by_hand(self) -> None:
        # ranks from 0: a is 0 and 1, b is 1 and 0, c is 2 in one list, d is 2 in the other
        pool = fuse_rrf(
            found(("a", 0.9), ("b", 0.8), ("c", 0.7)), found(("b", 9.0), ("a", 8.0), ("d", 7.0))
        )
        raws = {hit.fact_id: hit.explain["fusion"]["raw"] for hit in pool.hits}
        both, alone = 1 / 60 + 1 / 61, 1 / 62
        assert raws == pytest.approx({"a": both, "b": both, "c": alone, "d": alone})
        assert [hit.fact_id for hit in pool.hits] == ["a", "b", "c", "d"]
        assert scores(pool) == pytest.approx(
            {"a": both * 30, "b": both * 30, "c": alone * 30, "d": alone * 30}
        )

    def test_first_in_both_lists_is_one(self) -> None:
        assert scores(fuse_rrf(found(("a", 0.9)), found(("a", 4.0)))) == {"a": pytest.approx(1.0)}

    def test_known_failure_25_a_single_list_is_not_cut_by_default(self) -> None:
        """Known failure 25: a floor on RRF cuts single-source hits after the 6th or 7th."""
        single_source = found(*((f"{number:02d}", 0.9 - number / 100) for number in range(20)))
        assert len(fuse_rrf(single_source, []).hits) == 20

    def test_known_failure_25_a_floor_that_is_set_says_what_it_cut(self) -> None:
        """Known failure 25: with the reference's floor of 0.015 what is cut is told."""
        single_source = found(*((f"{number:02d}", 0.9 - number / 100) for number in range(20)))
        pool = fuse_rrf(single_source, [], floor=0.015)
        assert len(pool.hits) == 7  # 1 / (60 + 6) = 0.01515, 1 / (60 + 7) = 0.0149
        assert len(pool.cuts) == 13
        assert pool.cuts[0].stage == "fusion"
        assert "0.0149" in pool.cuts[0].why
        assert "0.015" in pool.cuts[0].why
        assert all(hit.explain["fusion"]["threshold"] == 0.015 for hit in pool.hits)

    def test_known_failure_30_the_raw_value_is_not_the_score(self) -> None:
        """Known failure 30: a raw RRF value of 0.02 is shown as relevance."""
        pool = fuse_rrf(found(("a", 0.9)), found(("b", 5.0)))
        assert all(hit.score == pytest.approx(0.5) for hit in pool.hits)
        assert all(hit.explain["fusion"]["raw"] == pytest.approx(1 / 60) for hit in pool.hits)

    @given(SEMANTIC, TEXT)
    def test_scores_are_in_the_unit_interval_and_follow_the_raw_sums(
        self, semantic: list[Candidate], text: list[Candidate]
    ) -> None:
        hits = fuse_rrf(semantic, text, depth=100).hits
        assert all(0.0 < hit.score <= 1.0 for hit in hits)
        raws = [hit.explain["fusion"]["raw"] for hit in hits]
        assert raws == sorted(raws, reverse=True)

    @given(SEMANTIC, TEXT, st.randoms(use_true_random=False))
    def test_the_order_in_which_candidates_come_does_not_matter(
        self, semantic: list[Candidate], text: list[Candidate], random: Random
    ) -> None:
        shuffled_semantic, shuffled_text = list(semantic), list(text)
        random.shuffle(shuffled_semantic)
        random.shuffle(shuffled_text)
        shuffled = fuse_rrf(shuffled_semantic, shuffled_text)
        assert figures(fuse_rrf(semantic, text)) == figures(shuffled)


class TestSingle:
    def test_semantic_scores_are_shown_as_they_are(self) -> None:
        pool = single(semantic_list(found(("a", 0.91), ("b", 0.7)), depth=10))
        assert scores(pool) == {"a": 0.91, "b": 0.7}

    def test_known_failure_26_the_floor_is_on_the_score_not_on_the_cosine(self) -> None:
        """Known failure 26: a threshold called a cosine is compared with (1 + cosine) / 2.

        A cosine of 0.4 has the score 0.7: it comes through a floor of 0.65, and one of 0.2
        (score 0.6) does not.
        """
        semantic = found(("a", (1 + 0.4) / 2), ("b", (1 + 0.2) / 2))
        pool = single(semantic_list(semantic, depth=10, floor=0.65))
        assert [hit.fact_id for hit in pool.hits] == ["a"]
        assert pool.cuts[0].fact_id == "b"
        assert pool.cuts[0].stage == "semantic"
        assert "0.600" in pool.cuts[0].why
        assert "0.65" in pool.cuts[0].why

    def test_a_score_at_the_floor_comes_through(self) -> None:
        pool = single(semantic_list(found(("a", 0.65)), depth=10, floor=0.65))
        assert [hit.fact_id for hit in pool.hits] == ["a"]

    def test_text_scores_are_shares_of_the_best(self) -> None:
        pool = single(text_list(found(("a", 6.0), ("b", 1.5)), depth=2))
        assert scores(pool) == {"a": 1.0, "b": 0.25}
        assert pool.hits[1].explain["text"]["score"] == 1.5

    @given(TEXT)
    def test_text_scores_are_in_the_unit_interval(self, text: list[Candidate]) -> None:
        hits = single(text_list(text, depth=100)).hits
        assert all(0.0 <= hit.score <= 1.0 for hit in hits)
        assert not hits or hits[0].score == 1.0


@given(SEMANTIC, TEXT)
def test_explain_has_rank_score_and_threshold_of_every_stage(
    semantic: list[Candidate], text: list[Candidate]
) -> None:
    pool = fuse_convex(semantic, text, semantic_floor=0.65, text_floor=1.5)
    for place, hit in enumerate(pool.hits, 1):
        assert hit.explain["fusion"]["rank"] == place
        assert hit.explain["fusion"]["score"] == hit.score
        for stage in hit.explain.values():
            assert {"rank", "score", "threshold"} <= stage.keys()
    kept = {hit.fact_id for hit in pool.hits}
    cut = {cut.fact_id for cut in pool.cuts}
    assert kept | cut == {c.fact_id for c in (*semantic, *text)}
    assert not kept & cut
