"""What a model is given to read, and a relevance in [0, 1] of what it gave."""

from __future__ import annotations

import math
from collections.abc import Iterable

from edenmem.errors import ProviderAnswerInvalid
from edenmem.text import clean

#: More than any model reads.
_LONGEST_CHARACTERS = 8_000
#: Rounding of float32 may leave a probability this far outside.
_ROUNDING = 1e-4


def readable(text: str) -> str:
    """``text`` without what no tokenizer takes, and without what is beyond every model's limit."""
    return clean(text).strip()[:_LONGEST_CHARACTERS]


def relevances(numbers: Iterable[float], *, logits: bool, source: str) -> tuple[float, ...]:
    """The numbers of a model as relevances: the logistic function of ``logits``, else as they are.

    Raises:
        ProviderAnswerInvalid: one is not finite, or is to be a probability and is none.
    """
    found = tuple(numbers)
    if not all(map(math.isfinite, found)):
        raise ProviderAnswerInvalid(f"{source} gave a score that is not a finite number")
    if logits:
        return tuple(map(logistic, found))
    for number in found:
        if not -_ROUNDING <= number <= 1.0 + _ROUNDING:
            raise ProviderAnswerInvalid(
                f"{source} gave the score {number:g}, which is not from 0 to 1",
                hint='if its scores are logits, set search.rerank_scores = "logits"',
            )
    return tuple(min(1.0, max(0.0, number)) for number in found)


def logistic(number: float) -> float:
    """1 / (1 + e^−x), without overflow."""
    if number >= 0:
        return 1.0 / (1.0 + math.exp(-number))
    grown = math.exp(number)
    return grown / (1.0 + grown)
