"""Fusing the lists of one query, by the rules of a recipe."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.models.embeddings import Scale
from edenmem.models.search import Lists, ListScores
from edenmem.search.ranking import Pool
from edenmem.search.recipes import MIN_SCORE, RECIPES, Rules, fuse, recipe

Found = Mapping[str, float]

IDS = st.sampled_from("abcdefghijklmnop")
SEMANTIC = st.dictionaries(IDS, st.floats(0, 1), max_size=12)
TEXT = st.dictionaries(IDS, st.floats(0.01, 60), max_size=12)
ALL = [*RECIPES, "convex+source", "text+source"]
RULES = Rules(
    depth=20,
    scale=Scale(),
    weights={"semantic": 0.6, "text": 0.4, "source": 0.2},
    floors={},
    min_score=0.0,
    rrf_k=60,
    rrf_floor=0.0,
)


def listed(found: Found, completed: Found | None = None, **more: Any) -> ListScores:
    """A list as a store returns it: best first, equal scores by ID."""
    ordered = dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
    return ListScores(ordered, completed or {}, **more)


def fused(lists: Lists, name: str = "convex", **rules: Any) -> Pool:
    return fuse(recipe(name), lists, msgspec.structs.replace(RULES, **rules))


def both(semantic: Found, text: Found, name: str = "convex", **rules: Any) -> Pool:
    return fused({"semantic": listed(semantic), "text": listed(text)}, name, **rules)


def scores(pool: Pool) -> dict[str, float]:
    return {hit.fact_id: hit.score for hit in pool.hits}


def test_a_score_is_absolute_not_a_share_of_the_best_hit() -> None:
    """By hand: cosines 0.8, 0.4 and 0.2; words 8, 4 and 2 of the 8 that all would have."""
    lists: Lists = {
        "semantic": listed({"a": 0.9, "b": 0.7}, {"c": 0.6}),
        "text": listed({"b": 8.0, "c": 4.0}, {"a": 2.0}, whole=8.0),
    }
    expected = {"a": 0.48 + 0.1, "b": 0.24 + 0.4, "c": 0.12 + 0.2}
    assert scores(fused(lists)) == pytest.approx(expected)
    alone: Lists = {
        "semantic": listed({}, {"c": 0.6}),
        "text": listed({"c": 4.0}, whole=8.0),
    }
    assert scores(fused(alone)) == pytest.approx({"c": expected["c"]})


@pytest.mark.parametrize(
    ("scale", "cosines", "shares"),
    [
        (Scale(zero=0.7, one=0.95), (0.98, 0.825, 0.6), (1.0, 0.5, 0.0)),
        (Scale(zero=None), (1.0, 0.6, 0.2), (1.0, 0.5, 0.0)),
        (Scale(zero=None), (0.4, 0.4, 0.4), (0.4, 0.4, 0.4)),
    ],
)
def test_meaning_is_measured_from_the_zero_of_the_model_to_its_one(
    scale: Scale, cosines: tuple[float, ...], shares: tuple[float, ...]
) -> None:
    found = {name: (1 + cosine) / 2 for name, cosine in zip("abc", cosines, strict=True)}
    pool = fused({"semantic": listed(found)}, "semantic", scale=scale, weights={"semantic": 1.0})
    assert [hit.score for hit in pool.hits] == pytest.approx(list(shares))


def test_without_known_weights_words_count_by_the_best_and_by_coverage() -> None:
    text = listed({"a": 6.0, "b": 3.0}, coverage={"a": 0.5, "b": 1.0})
    pool = fused({"text": text}, "text", weights={"text": 1.0})
    assert scores(pool) == {"a": 0.5, "b": 0.5}


def test_more_than_a_whole_match_is_a_whole_match_in_the_order_of_the_list() -> None:
    pool = fused({"text": listed({"b": 9.0, "a": 8.0}, whole=4.0)}, "text", weights={"text": 1.0})
    assert [(hit.fact_id, hit.score) for hit in pool.hits] == [("b", 1.0), ("a", 1.0)]


def test_the_source_is_a_third_list() -> None:
    lists: Lists = {
        "semantic": listed({"a": 0.75}),
        "text": listed({}),
        "source": listed({"a": 2.0, "b": 4.0}, whole=4.0),
    }
    pool = fused(lists, "convex+source")
    assert scores(pool) == pytest.approx({"a": 0.3 + 0.1, "b": 0.2})
    assert pool.hits[0].explain["fusion"]["parts"]["source"] == pytest.approx(0.1)


def test_a_floor_decides_what_a_list_brings_in_and_changes_no_score() -> None:
    """Known failure 26: the floor is compared with (1 + cosine) / 2, not with the cosine."""
    lists: Lists = {
        "semantic": listed({"a": 0.65, "b": 0.6, "c": 0.6}),
        "text": listed({"b": 5.0}, {"c": 1.0}, whole=5.0),
    }
    pool = fused(lists, floors={"semantic": 0.65})
    assert scores(pool) == pytest.approx({"b": 0.12 + 0.4, "a": 0.18})
    (cut,) = pool.cuts
    assert (cut.fact_id, cut.stage) == ("c", "semantic")
    assert cut.why == "semantic score 0.600 is below the threshold 0.65"
    assert pool.hits[0].explain["semantic"] == {
        "rank": 2,
        "score": 0.6,
        "threshold": 0.65,
        "passed": False,
        "normalized": pytest.approx(0.2),
    }


def test_known_failure_122_what_is_not_relevant_enough_is_not_found() -> None:
    """Known failure 122: nonsense finds a fact, because scores are relative to the best hit."""
    pool = both({"a": 0.6, "b": 0.7}, {}, min_score=0.2)
    assert [hit.fact_id for hit in pool.hits] == ["b"]
    assert [(cut.stage, cut.why) for cut in pool.cuts] == [
        (MIN_SCORE, "score 0.120 is below the minimum 0.2")
    ]


def test_facts_beyond_the_depth_bring_nothing_in_and_complete_others() -> None:
    found = {"semantic": listed({"a": 0.9, "b": 0.8}), "text": listed({"b": 1.0, "c": 0.5})}
    pool = fused(found, depth=1)
    assert [hit.fact_id for hit in pool.hits] == ["b", "a"]
    assert pool.hits[0].explain["semantic"]["completed"]


def test_rrf_by_hand() -> None:
    """Known failure 30: the raw value, at most 2 / k, is not shown as the relevance."""
    pool = both({"a": 0.9, "b": 0.8, "c": 0.7}, {"b": 9.0, "a": 8.0, "d": 7.0}, "rrf")
    pair, alone = 1 / 60 + 1 / 61, 1 / 62
    raws = {hit.fact_id: hit.explain["fusion"]["raw"] for hit in pool.hits}
    assert raws == pytest.approx({"a": pair, "b": pair, "c": alone, "d": alone})
    assert scores(pool) == pytest.approx({name: 30 * raw for name, raw in raws.items()})
    assert scores(both({"a": 0.9}, {"a": 4.0}, "rrf")) == pytest.approx({"a": 1.0})


@pytest.mark.parametrize(("floor", "kept"), [(0.0, 20), (0.015, 7)])
def test_known_failure_25_a_floor_on_rrf_says_what_it_cut(floor: float, kept: int) -> None:
    """Known failure 25: a floor on RRF cuts single-source hits after the 7th."""
    pool = both({f"{n:02d}": 0.9 - n / 100 for n in range(20)}, {}, "rrf", rrf_floor=floor)
    assert (len(pool.hits), len(pool.cuts)) == (kept, 20 - kept)
    assert not pool.cuts or pool.cuts[0].why == "raw RRF 0.0149 is below 0.015"


@given(semantic=SEMANTIC, text=TEXT, source=TEXT, name=st.sampled_from(ALL))
def test_scores_are_shares_and_every_candidate_is_kept_or_cut(
    semantic: Found, text: Found, source: Found, name: str
) -> None:
    every = {"semantic": listed(semantic), "text": listed(text), "source": listed(source)}
    lists: Lists = {key: every[key] for key in recipe(name).lists}
    weights = {"semantic": 0.7, "text": 0.3, "source": 0.2}
    pool = fused(lists, name, weights=weights, floors={"semantic": 0.65}, min_score=0.1)
    assert all(0 <= hit.score <= 1 for hit in pool.hits)
    assert [hit.score for hit in pool.hits] == sorted(scores(pool).values(), reverse=True)
    for rank, hit in enumerate(pool.hits, 1):
        assert hit.explain["fusion"]["rank"] == rank
        assert hit.explain["fusion"]["recipe"] == name.partition("+")[0]
        assert all({"rank", "score", "threshold"} <= stage.keys() for stage in hit.explain.values())
    kept, cut = set(scores(pool)), {cut.fact_id for cut in pool.cuts}
    assert kept | cut == {fact for each in lists.values() for fact in each.found}
    assert not kept & cut
    assert all(each.why for each in pool.cuts)


@given(SEMANTIC, TEXT)
def test_what_is_better_in_both_lists_is_not_worse_in_the_result(
    semantic: Found, text: Found
) -> None:
    result = scores(both(semantic, text))
    for one, other in itertools.permutations(result, 2):
        if semantic.get(one, -1) >= semantic.get(other, -1) and (
            text.get(one, -1) >= text.get(other, -1)
        ):
            assert result[one] >= result[other] - 1e-12
