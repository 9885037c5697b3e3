"""Ranking by words: BM25 with Lucene's weights, within what is searched.

A word's weight is ``ln(1 + (N - n + 0.5) / (n + 0.5))`` where ``n`` of ``N`` texts have it. It is
never zero, so that five texts are ranked as well as five thousand (Lucene's BM25Similarity; k1 and
b are its defaults). ``N``, ``n`` and the mean length are those of the texts that are searched: a
name that all of them have weighs next to nothing.

Every store that ranks by itself scores by `WeighedQuery`; stores differ in how they find the texts
that have a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log
from sys import intern

import msgspec

from edenmem.search.words import index_words, is_fuzzy, query_words, within_one_edit

#: A word as the index has it, or several that have to follow each other.
Term = tuple[str, ...]

_K1 = 1.2
_B = 0.75

#: Where more texts are searched, words that most of them have are no help to find one.
MANY = 10_000
#: Words that one which nobody used may stand for; the commonest come first.
MOST_NEIGHBOURS = 10
#: Sums of the same weights in another order shall be equal.
_DIGITS = 12


class WeighedQuery(msgspec.Struct, frozen=True):
    """The terms of a query with their weights, and the mean length of the texts searched.

    ``reach`` is the score of a text of mean length that has each word of the query once, those
    included that no text has: what a match of some words is to be measured by.
    """

    weights: Mapping[Term, float]
    mean_length: float
    reach: float

    def score(self, words: Sequence[str]) -> float:
        """The score of a text, given as the words of the index; 0 if it has no term."""
        return self.sum_up(
            self.share(term, count, len(words))
            for term in self.weights
            if (count := count_term(term, words))
        )

    def share(self, term: Term, count: int, length: int) -> float:
        """What a term adds to the score of a text of ``length`` words that has it so often."""
        relative = length / self.mean_length
        return self.weights[term] * count / (count + _K1 * (1 - _B + _B * relative))

    def sum_up(self, shares: Iterable[float]) -> float:
        """The score that shares add up to."""
        return round(sum(shares), _DIGITS)


def weigh(
    words: Sequence[Sequence[Term]],
    having: Mapping[Term, int],
    *,
    total: int,
    mean_length: float,
) -> WeighedQuery:
    """The query whose terms stand in so many of ``total`` texts; those that none has are left out.

    Of many texts also those that most have, unless nothing else remains. ``words`` has the terms
    that each word of the query may stand for.
    """

    def weight(count: int) -> float:
        return log(1 + (total - count + 0.5) / (count + 0.5))

    there = {term: count for term, count in having.items() if count}
    rare = {term: n for term, n in there.items() if total <= MANY or 2 * n <= total}
    kept = rare or there
    weights = {term: weight(count) for term, count in kept.items()}
    wanted = [
        max((weight(having[term]) for term in terms if term in kept or not having[term]), default=0)
        for terms in dict.fromkeys(map(tuple, words))
    ]
    return WeighedQuery(weights, mean_length or 1.0, sum(wanted) / (1 + _K1))


def count_term(term: Term, words: Sequence[str]) -> int:
    """How often a text has a term."""
    first, *rest = term
    if not rest:
        return words.count(first)
    size = len(term)
    return sum(tuple(words[i : i + size]) == term for i in range(len(words) - size + 1))


def query_terms(query: str) -> list[tuple[str, Term]]:
    """What to look for, as it was written and as the index has it."""
    words = query_words(query)
    terms = zip(words, map(tuple, index_words(words)), strict=True)
    return [(word, term) for word, term in terms if term]


class Corpus:
    """Texts by id, with the words of each."""

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        self._words: dict[str, list[str]] = {}
        self._having: dict[str, list[str]] = {}  # word → texts
        pairs = list(texts)
        for (key, _), words in zip(pairs, index_words(text for _, text in pairs), strict=True):
            self._words[key] = [intern(word) for word in words]
            for word in set(words):
                self._having.setdefault(word, []).append(key)
        self._mean_length = sum(map(len, self._words.values())) / max(len(self._words), 1)

    def weigh(self, query: str) -> WeighedQuery:
        """The query with the weights that its words have among these texts."""
        words = [self._match(word, term) for word, term in query_terms(query)]
        terms = dict.fromkeys(term for terms in words for term in terms)
        having = {term: sum(1 for _ in self._texts_with(term)) for term in terms}
        return weigh(words, having, total=len(self._words), mean_length=self._mean_length)

    def best(self, query: WeighedQuery, limit: int) -> list[tuple[str, float]]:
        """The texts that have any of the query's words, best first, equal scores by id."""
        matching = dict.fromkeys(key for term in query.weights for key in self._texts_with(term))
        scores = ((key, query.score(self._words[key])) for key in matching)
        return sorted(scores, key=lambda item: (-item[1], item[0]))[:limit]

    def _texts_with(self, term: Term) -> Iterator[str]:
        for key in self._having.get(term[0], ()):
            if len(term) == 1 or count_term(term, self._words[key]):
                yield key

    def _match(self, word: str, term: Term) -> Sequence[Term]:
        """The term itself or, if no text has it, its neighbours, if there are any."""
        if not is_fuzzy(word) or next(self._texts_with(term), None) is not None:
            return (term,)
        near = [(known,) for known in self._having if within_one_edit(term[0], known)]
        near.sort(key=lambda one: (-len(self._having[one[0]]), one))
        return near[:MOST_NEIGHBOURS] or (term,)
