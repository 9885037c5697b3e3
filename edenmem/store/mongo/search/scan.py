"""Search on a server without search commands: every fact in question is read and compared.

Exact, within a stated limit, and it says so.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import log
from typing import TYPE_CHECKING, Any

from edenmem.errors import EmbeddingModelMismatch, StoreError
from edenmem.models.memory import Fact
from edenmem.models.search import SCORE_DECIMALS, Candidate, FactFilter, SearchAbility
from edenmem.store.mongo.core import vectors as stored
from edenmem.store.mongo.core.collection import Collection
from edenmem.store.mongo.core.collections import OWN, VectorSlot
from edenmem.store.mongo.core.filters import Filter, fact_filters
from edenmem.store.protocol.store import batched

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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


#: Vectors that are compared in one step: 3 MB of doubles at 1,536 dimensions.
_STEP = 256


class Scan:
    """Reads all facts that the filter admits, up to ``limit`` of them, and compares exactly."""

    def __init__(self, facts: Collection, limit: int) -> None:
        self._facts = facts
        self._limit = limit

    def ability(self) -> SearchAbility:
        """An exact scan, with its limit and the reason for it."""
        return SearchAbility(
            kind="scan",
            notice="this MongoDB answers no search commands: searching by an exact scan of at most "
            f"{self._limit:,} facts",
        )

    def semantic(
        self,
        filter: FactFilter,
        vectors: Sequence[bytes],
        *,
        model: str,
        limit: int,
        exact: bool = False,
        slot: VectorSlot = OWN,
    ) -> list[list[Candidate]]:
        """The nearest of all facts with vectors of ``model`` in ``slot``; always exact."""
        if not vectors:
            return []
        filters = fact_filters(filter)
        of_model = [{**admitted, slot.model: model} for admitted in filters]
        self._check_size(of_model)
        ranking = _Nearest(vectors, limit)
        for admitted in of_model:
            found = self._facts.find(admitted, {slot.field: 1})
            ranking.add((document["_id"], document.get(slot.field)) for document in found)
        if not ranking.compared:
            self._check_models(filters, model, ranking)
        return ranking.best()

    def text(
        self, filter: FactFilter, queries: Sequence[str], *, limit: int
    ) -> list[list[Candidate]]:
        """The facts that have any of the words."""
        if not queries:
            return []
        filters = fact_filters(filter)
        self._check_size(filters)
        corpus = Corpus(
            (str(document["_id"]), str(document.get("content") or ""))
            for admitted in filters
            for document in self._facts.find(admitted, {"content": 1})
        )
        return [
            [Candidate(fact_id, score) for fact_id, score in corpus.best(query, limit)]
            for query in queries
        ]

    def _check_size(self, filters: Sequence[Filter]) -> None:
        """Count on the index before anything is read."""
        total = 0
        for admitted in filters:
            total += self._facts.count(admitted, limit=self._limit + 1 - total)
            if total > self._limit:
                raise StoreError(
                    f"a search without search indexes reads at most {self._limit:,} facts, and "
                    "there are more to read",
                    hint="narrow the search by scope or time, raise search.scan_limit, or use a "
                    "MongoDB with Atlas Search",
                )

    def _check_models(self, filters: Sequence[Filter], model: str, ranking: _Nearest) -> None:
        if ranking.other_lengths:
            lengths = ", ".join(f"{length:,}" for length in sorted(ranking.other_lengths))
            raise EmbeddingModelMismatch(
                stored=f"{model} ({lengths} dimensions)",
                current=f"{model} ({ranking.length:,} dimensions)",
            )
        check_models(self._facts, filters, model)

    def finds(self, fact: Fact) -> bool:
        """A scan sees what is there."""
        return True


def check_models(facts: Collection, filters: Sequence[Filter], model: str) -> None:
    """See that the facts in question, none of which has a vector of ``model``, have no others.

    Raises:
        EmbeddingModelMismatch: they have.
    """
    for admitted in filters:
        # The first with a vector speaks for all: one walk, which ends there.
        others = {**admitted, "embedding_model": {"$nin": [model, None]}}
        for document in facts.find(others, {"embedding": 1, "embedding_model": 1}):
            if stored.decode(document.get("embedding")) is not None:
                raise EmbeddingModelMismatch(stored=str(document["embedding_model"]), current=model)


class _Nearest:
    """The best so far for each query vector; holds one step of vectors at a time."""

    def __init__(self, vectors: Sequence[bytes], limit: int) -> None:
        import numpy as np

        self._queries = _normalise(np.stack([np.frombuffer(v, dtype="<f4") for v in vectors]))
        self._limit = limit
        self._heaps: list[list[tuple[float, _ReversedText]]] = [[] for _ in vectors]
        self.length = self._queries.shape[1]
        self.other_lengths: set[int] = set()
        self.compared = 0

    def add(self, found: Iterable[tuple[Any, Any]]) -> None:
        """Compare what is stored as vectors of facts, by their ids."""
        for batch in batched(self._usable(found), _STEP):
            self._compare([key for key, _ in batch], [vector for _, vector in batch])

    def _usable(self, found: Iterable[tuple[Any, Any]]) -> Iterator[tuple[str, bytes]]:
        for key, as_stored in found:
            vector = stored.decode(as_stored)
            if vector is None:
                continue
            if len(vector) != self.length * 4:
                self.other_lengths.add(len(vector) // 4)
                continue
            yield str(key), vector

    def _compare(self, keys: list[str], vectors: list[bytes]) -> None:
        import numpy as np

        matrix = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(keys), self.length)
        # Even doubles differ in their last bits by the place of a vector in the batch.
        scores = np.round((1.0 + self._queries @ _normalise(matrix).T) / 2.0, SCORE_DECIMALS)
        self.compared += len(keys)
        for heap, row in zip(self._heaps, scores.tolist(), strict=True):
            for key, score in zip(keys, row, strict=True):
                item = (score, _ReversedText(key))
                if len(heap) < self._limit:
                    heapq.heappush(heap, item)
                elif heap and item > heap[0]:
                    heapq.heapreplace(heap, item)

    def best(self) -> list[list[Candidate]]:
        """Best first, equal scores by id."""
        return [
            [Candidate(key.text, score) for score, key in sorted(heap, reverse=True)]
            for heap in self._heaps
        ]


class _ReversedText:
    """A text that compares the other way round, so that of equal scores the larger id goes."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __lt__(self, other: _ReversedText) -> bool:
        return self.text > other.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ReversedText) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def _normalise(matrix: NDArray[Any]) -> NDArray[np.float64]:
    import numpy as np

    wide = matrix.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    normalised: NDArray[np.float64] = wide / np.where(lengths == 0, 1.0, lengths)
    return normalised
