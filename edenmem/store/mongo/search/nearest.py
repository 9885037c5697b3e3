"""Rank vectors by exact comparison, for scans and for missing scores."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from edenmem.models.search import SCORE_DECIMALS, Candidate
from edenmem.store.protocol.store import batched

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Vectors compared at once: 3 MB of doubles at 1,536 dimensions.
_STEP = 256


class Nearest:
    """The best candidates so far for each query vector; holds one batch of vectors at a time."""

    def __init__(self, vectors: Sequence[bytes], limit: int) -> None:
        import numpy as np

        self._queries = _normalize(np.stack([np.frombuffer(v, dtype="<f4") for v in vectors]))
        self._limit = limit
        self._heaps: list[list[tuple[float, _ReversedText]]] = [[] for _ in vectors]
        self.length = self._queries.shape[1]
        self.other_lengths: set[int] = set()
        self.compared = 0

    def add(self, found: Iterable[tuple[str, bytes | None]]) -> None:
        """Compare the vectors of facts, given with their IDs."""
        for batch in batched(self._usable(found), _STEP):
            self._compare([key for key, _ in batch], [vector for _, vector in batch])

    def _usable(self, found: Iterable[tuple[str, bytes | None]]) -> Iterator[tuple[str, bytes]]:
        for key, vector in found:
            if vector is None:
                continue
            if len(vector) != self.length * 4:
                self.other_lengths.add(len(vector) // 4)
                continue
            yield key, vector

    def _compare(self, keys: list[str], vectors: list[bytes]) -> None:
        import numpy as np

        matrix = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(keys), self.length)
        # The last bits of doubles depend on the position in the batch.
        scores = np.round((1.0 + self._queries @ _normalize(matrix).T) / 2.0, SCORE_DECIMALS)
        self.compared += len(keys)
        for heap, row in zip(self._heaps, scores.tolist(), strict=True):
            for key, score in zip(keys, row, strict=True):
                item = (score, _ReversedText(key))
                if len(heap) < self._limit:
                    heapq.heappush(heap, item)
                elif heap and item > heap[0]:
                    heapq.heapreplace(heap, item)

    def best(self) -> list[list[Candidate]]:
        """Return the candidates of each query, best first, then by ID."""
        return [
            [Candidate(key.text, score) for score, key in sorted(heap, reverse=True)]
            for heap in self._heaps
        ]


class _ReversedText:
    """A text with reversed order, so that among equal scores the larger ID is dropped."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __lt__(self, other: _ReversedText) -> bool:
        return self.text > other.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ReversedText) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def _normalize(matrix: NDArray[Any]) -> NDArray[np.float64]:
    import numpy as np

    wide = matrix.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    normalized: NDArray[np.float64] = wide / np.where(lengths == 0, 1.0, lengths)
    return normalized
