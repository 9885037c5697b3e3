"""Ranking by words, of texts that fit into memory: BM25 with Lucene's weights.

``log(1 + (N - n + 0.5) / (n + 0.5))`` is never zero, so that five texts are ranked as well as five
thousand (Lucene's BM25Similarity; k1 and b are its defaults).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import log

_K1 = 1.2
_B = 0.75

#: Shorter words have neighbours that mean something else ("cat", "car").
_FUZZY_LENGTH = 4

# Scripts without spaces between words are taken character by character.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")

#: Lucene's English list, with the pronouns and auxiliaries that questions are made of.
STOP_WORDS = frozenset(
    """
    a an and are as at be but by did do does for from had has have he her his how i if in into is
    it its me my no not of on or our she so such that the their them then there these they this
    to us was we were what when where which who whom whose why will with would you your
    """.split()  # noqa: SIM905
)


def words_of(text: str) -> list[str]:
    """The stemmed words of a text, in order."""
    return [stem(word) for word in _WORD.findall(text.casefold())]


def query_words(query: str) -> list[str]:
    """The stemmed words of a query, each once, without stop words if others remain."""
    words = list(dict.fromkeys(_WORD.findall(query.casefold())))
    telling = [word for word in words if word not in STOP_WORDS]
    return list(dict.fromkeys(stem(word) for word in telling or words))


def stem(word: str) -> str:
    """``word`` without a plural's, a gerund's or a past tense's ending."""
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        root = word.removesuffix(ending)
        if root != word and len(root) > 2 and re.search(r"[aeiouy]", root):
            doubled = root[-1] == root[-2] and root[-1] not in "lsz"
            return root[:-1] if doubled else root.removesuffix("e")
    return word.removesuffix("e") if len(word) > 3 else word


class Corpus:
    """Texts by id, with how often each word is in each."""

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        self._lengths: dict[str, int] = {}
        self._postings: dict[str, list[tuple[str, int]]] = {}
        for key, text in texts:
            words = words_of(text)
            self._lengths[key] = len(words)
            for word, count in Counter(words).items():
                self._postings.setdefault(word, []).append((key, count))
        total = sum(self._lengths.values())
        self._mean_length = total / len(self._lengths) if total else 1.0

    def best(self, query: str, limit: int) -> list[tuple[str, float]]:
        """The texts that have any of the query's words, best first, equal scores by id."""
        scores: defaultdict[str, float] = defaultdict(float)
        for word in query_words(query):
            for meant in self._match_word(word):
                postings = self._postings[meant]
                weight = self._weight(len(postings))
                for key, count in postings:
                    scores[key] += weight * self._saturate(count, self._lengths[key])
        ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        return ranked[:limit]

    def _match_word(self, word: str) -> Sequence[str]:
        if word in self._postings:
            return (word,)
        if len(word) < _FUZZY_LENGTH:
            return ()
        return [known for known in self._postings if within_one_edit(word, known)]

    def _weight(self, documents: int) -> float:
        return log(1 + (len(self._lengths) - documents + 0.5) / (documents + 0.5))

    def _saturate(self, count: int, length: int) -> float:
        return count / (count + _K1 * (1 - _B + _B * length / self._mean_length))


def within_one_edit(one: str, other: str) -> bool:
    """Whether one insertion, deletion, replacement, or swap of neighbours makes them equal."""
    if abs(len(one) - len(other)) > 1:
        return False
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    rest, others = one[start:], other[start:]
    swapped = rest[:2] == others[1::-1] if len(others) > 1 else False
    return (
        rest[1:] == others[1:]
        or rest[1:] == others
        or rest == others[1:]
        or (swapped and rest[2:] == others[2:])
    )
