"""The measures, against figures that were worked out by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.search.metrics import ndcg, recall, reciprocal_rank

MEASURES = (recall, reciprocal_rank, ndcg)


def test_recall_is_the_share_of_the_relevant_that_came() -> None:
    assert recall("abcde", {"b", "e", "x"}, k=5) == pytest.approx(2 / 3)
    assert recall("abcde", {"b", "e", "x"}, k=4) == pytest.approx(1 / 3)
    assert recall("abcde", {"a", "b", "c"}, k=2) == pytest.approx(2 / 3)  # it cannot be more


def test_the_reciprocal_rank_looks_at_the_first_alone() -> None:
    assert reciprocal_rank("abcde", {"a", "b"}, k=5) == 1.0
    assert reciprocal_rank("abcde", {"d", "e"}, k=5) == 0.25
    assert reciprocal_rank("abcde", {"d"}, k=3) == 0.0


def test_ndcg_by_hand() -> None:
    # Gains 1, 0, 1: DCG = 1 + 1 / log2(4) = 1.5; ideal = 1 + 1 / log2(3) = 1.630930.
    assert ndcg("abc", {"a", "c"}, k=3) == pytest.approx(1.5 / 1.6309297535714573)
    # One relevant fact in second place: (1 / log2(3)) / 1.
    assert ndcg("abc", {"b"}, k=3) == pytest.approx(0.6309297535714575)
    # Three of four relevant in places 2, 3, 5 of 5:
    # 0.630930 + 0.5 + 0.386853 = 1.517783; ideal of four = 2.561606.
    assert ndcg("vabwc", {"a", "b", "c", "d"}, k=5) == pytest.approx(0.592512, abs=1e-6)


def test_the_ideal_of_ndcg_has_no_more_places_than_k() -> None:
    assert ndcg("ab", {"a", "b", "c"}, k=2) == 1.0


@pytest.mark.parametrize("measure", MEASURES)
def test_no_relevant_facts_are_an_error_and_not_zero(measure: object) -> None:
    with pytest.raises(ValueError, match="no relevant facts"):
        measure("abc", (), k=10)  # type: ignore[operator]


@pytest.mark.parametrize("measure", MEASURES)
def test_an_empty_ranking_is_worth_nothing(measure: object) -> None:
    assert measure("", {"a"}, k=10) == 0.0  # type: ignore[operator]


@given(
    st.permutations("abcdefgh"),
    st.sets(st.sampled_from("abcdefghxyz"), min_size=1),
    st.integers(1, 12),
)
def test_all_measures_are_shares(ranking: list[str], relevant: set[str], k: int) -> None:
    for measure in MEASURES:
        assert 0.0 <= measure(ranking, relevant, k=k) <= 1.0 + 1e-12


@given(st.permutations("abcdef"), st.sets(st.sampled_from("abcdef"), min_size=1))
def test_moving_a_relevant_fact_up_never_costs(ranking: list[str], relevant: set[str]) -> None:
    for place, (above, below) in enumerate(itertools.pairwise(ranking)):
        if above in relevant or below not in relevant:
            continue
        better = [*ranking[:place], below, above, *ranking[place + 2 :]]
        assert ndcg(better, relevant, k=6) > ndcg(ranking, relevant, k=6)
        assert reciprocal_rank(better, relevant, k=6) >= reciprocal_rank(ranking, relevant, k=6)
