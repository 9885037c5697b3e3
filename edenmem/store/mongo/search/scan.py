"""Search on a server without search commands: every fact in question is read and compared.

Exact, within a stated limit, and it says so.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from edenmem.errors import EmbeddingModelMismatch, StoreError
from edenmem.models.memory import Fact
from edenmem.models.search import SCORE_DECIMALS, Candidate, FactFilter, SearchAbility
from edenmem.search.text_ranking import Corpus
from edenmem.store.mongo.core import vectors as stored
from edenmem.store.mongo.core.collection import Collection
from edenmem.store.mongo.core.collections import OWN, VectorSlot
from edenmem.store.mongo.core.filters import Filter, fact_filters
from edenmem.store.protocol.store import batched

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
