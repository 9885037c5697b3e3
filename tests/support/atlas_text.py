"""Text scores of the fake Atlas server: simple English analysis, and Lucene's BM25.

Tests may rely on these parts of Lucene: stop words, case and plain English endings are ignored,
fuzzy queries match within one edit, rare terms weigh more, and scores follow Lucene's formula over
the whole index, regardless of filters.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

#: Lucene's list for English.
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be but by for if in into is it no not of on or such that the their "
        "then there these they this to was will with",
    )
)
K1, B = 1.2, 0.75
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_ENDINGS = ("ing", "ies", "ed", "es", "s", "e", "y")
ANALYZERS = ("lucene.english", "lucene.standard", "lucene.simple", "lucene.keyword")


def analyzed(text: str, analyzer: str) -> list[str]:
    """Return the terms of a text."""
    if analyzer == "lucene.keyword":
        return [text]
    words = [word.casefold().removesuffix("'s") for word in _WORD.findall(text)]
    if analyzer != "lucene.english":
        return words
    return [_stem(word) for word in words if word not in STOP_WORDS]


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def one_edit(one: str, other: str) -> bool:
    """Check for one inserted, deleted or replaced letter, or two swapped neighbors."""
    if abs(len(one) - len(other)) > 1 or one == other:
        return one == other
    start = next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
    a, b = one[start:], other[start:]
    swapped = a[:2] == b[:2][::-1] and a[2:] == b[2:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or swapped


class Texts:
    """The texts of one field of an index, by document."""

    def __init__(self, terms: Mapping[object, Sequence[str]]) -> None:
        self._counts = {key: Counter(found) for key, found in terms.items() if found}
        self._lengths = {key: len(found) for key, found in terms.items() if found}
        self._frequency = Counter(term for counts in self._counts.values() for term in counts)
        total = sum(self._lengths.values())
        self._average = total / len(self._lengths) if self._lengths else 1.0

    def scores(self, query: Sequence[str], *, max_edits: int) -> dict[object, float]:
        """Return the scores of documents with any of the terms, or a fuzzy match."""
        found: dict[object, float] = {}
        for term in query:
            terms = self._expanded(term, max_edits)
            # As in Lucene, a rare misspelling scores no higher than the term in the query.
            commonest = max((self._frequency[known] for known in terms), default=0)
            for known, weight in terms.items():
                for key, score in self._term_scores(known, commonest):
                    found[key] = found.get(key, 0.0) + weight * score
        return found

    def _expanded(self, term: str, max_edits: int) -> dict[str, float]:
        """Return matching terms of the index with weights; fuzzy matches weigh less."""
        terms = {term: 1.0} if term in self._frequency else {}
        # Lucene divides by the shorter length, so short words have no fuzzy matches.
        if max_edits and len(term) > 2:
            near = [known for known in self._frequency if known != term and one_edit(term, known)]
            terms |= {
                known: 1.0 - 1.0 / min(len(term), len(known)) for known in near if len(known) > 2
            }
        return terms

    def _term_scores(self, term: str, with_term: int) -> list[tuple[object, float]]:
        total = len(self._counts)
        idf = math.log(1 + (total - with_term + 0.5) / (with_term + 0.5))
        return [
            (
                key,
                idf
                * counts[term]
                / (counts[term] + K1 * (1 - B + B * self._lengths[key] / self._average)),
            )
            for key, counts in self._counts.items()
            if term in counts
        ]
