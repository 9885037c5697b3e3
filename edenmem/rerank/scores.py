"""Preparation of texts for a reranker, and conversion of its scores to [0, 1]."""

from __future__ import annotations

import math
from collections.abc import Iterable

from edenmem.errors import ProviderAnswerInvalid
from edenmem.text import clean

#: More than any model can read.
_LONGEST_CHARACTERS = 8_000
#: Tolerance for float32 rounding of probabilities.
_ROUNDING = 1e-4


def readable(text: str) -> str:
    """Clean a text of invalid characters and truncate it."""
    return clean(text).strip()[:_LONGEST_CHARACTERS]


def relevances(numbers: Iterable[float], *, logits: bool, source: str) -> tuple[float, ...]:
    """Convert model scores to relevances: logistic for ``logits``, otherwise unchanged.

    Raises:
        ProviderAnswerInvalid: a score is not finite, or not a probability where one is expected.
    """
    found = tuple(numbers)
    if not all(map(math.isfinite, found)):
        raise ProviderAnswerInvalid(f"{source} returned a score that is not a finite number")
    if logits:
        return tuple(map(logistic, found))
    for number in found:
        if not -_ROUNDING <= number <= 1.0 + _ROUNDING:
            raise ProviderAnswerInvalid(
                f"{source} returned a score outside 0 to 1: {number:g}",
                hint='if its scores are logits, set search.rerank_scores = "logits"',
            )
    return tuple(min(1.0, max(0.0, number)) for number in found)


def logistic(number: float) -> float:
    """Return 1 / (1 + e^−x), without overflow."""
    if number >= 0:
        return 1.0 / (1.0 + math.exp(-number))
    grown = math.exp(number)
    return grown / (1.0 + grown)
