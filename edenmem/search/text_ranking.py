"""Ranking by words: the sum of the weights of the query's words that a text has.

The weight of a word is ``ln(1 + (N - n + 0.5) / (n + 0.5))``, where ``n`` of ``N`` texts have the
word: the weight of Lucene's BM25, which is never zero, so five texts are ranked as well as five
thousand. ``N`` and ``n`` are taken over the searched texts: a name in all of them has almost no
weight. Facts are single sentences: counting repeated words and dividing by the length, as BM25
does, found less in chats and no more in facts.

All stores without Lucene score by `WeighedQuery`; they differ in how they find the matching texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log
from sys import intern

import msgspec

from edenmem.search.words import index_words, is_fuzzy, query_words, within_one_edit

#: A word in its index form, or several consecutive words.
Term = tuple[str, ...]

#: Above this number of texts, words in more than half of them are ignored.
MANY = 10_000
#: Maximum number of similar words for an unknown word; most frequent first.
MOST_NEIGHBORS = 10


class WeighedQuery(msgspec.Struct, frozen=True):
    """The terms of a query with their weights.

    ``whole`` is the score of a text with each word of the query, including words that no text has.
    Partial matches are measured against this score.
    """

    weights: Mapping[Term, float]
    whole: float

    def score(self, words: Sequence[str]) -> float:
        """Score a text, given as index words; 0 if the text has no term."""
        return sum(weight for term, weight in self.weights.items() if has_term(term, words))


def weigh(
    words: Sequence[Sequence[Term]],
    having: Mapping[Term, int],
    *,
    total: int,
) -> WeighedQuery:
    """Weigh the terms of a query by the number of texts that have them.

    Terms without a text are left out, and above `MANY` texts also terms that most texts have,
    unless nothing else remains. ``words`` are the alternative terms of each word of the query.
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
    return WeighedQuery(weights, sum(wanted))


def has_term(term: Term, words: Sequence[str]) -> bool:
    """Check a text for a term."""
    size = len(term)
    if size == 1:
        return term[0] in words
    return any(tuple(words[i : i + size]) == term for i in range(len(words) - size + 1))


def query_terms(query: str) -> list[tuple[str, Term]]:
    """Return the words to search for, as written and in their index form."""
    words = query_words(query)
    terms = zip(words, map(tuple, index_words(words)), strict=True)
    return [(word, term) for word, term in terms if term]


def coverage(query: str, texts: Mapping[str, str]) -> dict[str, float]:
    """Return the share of a query's words that each text has, or a word one edit away."""
    asked = query_terms(query)
    shares: dict[str, float] = {}
    for (key, _), words in zip(texts.items(), index_words(texts.values()), strict=True):
        known = set(words)
        had = sum(
            has_term(term, words)
            or (is_fuzzy(word) and any(within_one_edit(term[0], each) for each in known))
            for word, term in asked
        )
        shares[key] = had / len(asked) if asked else 0.0
    return shares


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

    def weigh(self, query: str) -> WeighedQuery:
        """Weigh the words of a query among these texts."""
        words = [self._match(word, term) for word, term in query_terms(query)]
        terms = dict.fromkeys(term for terms in words for term in terms)
        having = {term: sum(1 for _ in self._texts_with(term)) for term in terms}
        return weigh(words, having, total=len(self._words))

    def best(self, query: WeighedQuery, limit: int) -> list[tuple[str, float]]:
        """Return the texts with any word of the query, best first, of equal scores the newest."""
        matching = dict.fromkeys(key for term in query.weights for key in self._texts_with(term))
        scores = ((key, query.score(self._words[key])) for key in matching)
        return sorted(scores, key=lambda item: (item[1], item[0]), reverse=True)[:limit]

    def _texts_with(self, term: Term) -> Iterator[str]:
        for key in self._having.get(term[0], ()):
            if len(term) == 1 or has_term(term, self._words[key]):
                yield key

    def _match(self, word: str, term: Term) -> Sequence[Term]:
        """Return the term or, if no text has it, the similar words of the texts."""
        if not is_fuzzy(word) or next(self._texts_with(term), None) is not None:
            return (term,)
        near = [(known,) for known in self._having if within_one_edit(term[0], known)]
        near.sort(key=lambda one: (-len(self._having[one[0]]), one))
        return near[:MOST_NEIGHBORS] or (term,)
