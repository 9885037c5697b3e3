"""The interface of rerankers: their protocol, the texts they get, and scores in [0, 1]."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from edenmem.errors import ProviderAnswerInvalid
from edenmem.text import clean


class Reranker(Protocol):
    """A model that scores how well a document answers a query, local or behind an endpoint."""

    @property
    def model(self) -> str:
        """Return the name of the model, for display."""

    async def score(self, query: str, documents: Sequence[str]) -> tuple[float, ...]:
        """Return the relevance of each document, in order: finite, in [0, 1], higher is better.

        Any number of documents is split into batches.

        Raises:
            ConfigError: the settings name no usable reranker.
            ProviderError: the call failed, or did not return a score for each document.
        """

    async def close(self) -> None:
        """Stop threads and close connections."""


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
    if not all(abs(number) < math.inf for number in found):
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
