"""Scales of embedding models."""

from __future__ import annotations

import pytest

from edenmem.models.embeddings import SCALES, scale_of


@pytest.mark.parametrize(
    ("model", "floor"),
    [
        ("all-MiniLM-L6-v2-int8", 0.55),
        ("multilingual-e5-small-int4", 0.87),
        ("text-embedding-3-small", 0.65),
    ],
)
def test_a_floor_as_a_score_is_halfway_to_one(model: str, floor: float) -> None:
    assert scale_of(model).floor_score == floor


def test_no_floor_lies_below_its_zero() -> None:
    for model, scale in SCALES.items():
        assert scale.zero is not None, model
        assert scale.floor is not None, model
        assert -1 <= scale.zero <= scale.floor <= scale.one <= 1, model


@pytest.mark.parametrize("model", ["", "another", "text-embedding-3-small@512"])
def test_an_unknown_model_has_no_minimum(model: str) -> None:
    scale = scale_of(model)
    assert (scale.zero, scale.floor_score, scale.min_score) == (None, None, None)


@pytest.mark.parametrize(
    ("model", "score", "fitted"),
    [
        ("all-MiniLM-L6-v2-int8", 0.7, 0.7),
        ("another", 0.7, 0.7),
        ("multilingual-e5-small-int4", 0.0, 0.85),
        ("multilingual-e5-small-int4", 0.5, 0.85),
        ("multilingual-e5-small-int4", 0.7, 0.91),
        ("multilingual-e5-small-int4", 1.0, 1.0),
    ],
)
def test_a_limit_that_is_written_for_a_zero_of_0_fits_each_model(
    model: str, score: float, fitted: float
) -> None:
    assert scale_of(model).fit(score) == fitted
