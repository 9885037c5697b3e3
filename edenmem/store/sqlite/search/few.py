"""The semantic list of a few facts, compared without numpy, which takes longer to import."""

from __future__ import annotations

import math
import sqlite3
import struct
from collections.abc import Collection, Iterable, Sequence
from heapq import nlargest
from operator import mul

from edenmem.models.search import SCORE_DECIMALS
from edenmem.store.sqlite.memory.vectors import read_vectors


class NearestOfFew:
    """The nearest among the facts of some scopes with a vector of a model.

    Has the methods of `edenmem.store.sqlite.search.nearest.Nearest`, and returns the same scores.
    ``scopes`` are scope numbers as a JSON array.
    """

    def __init__(self, connection: sqlite3.Connection, model_id: int, scopes: str) -> None:
        facts = connection.execute(
            "SELECT fact_no FROM vector_codes WHERE model_id = ?"
            " AND scope_id IN (SELECT value FROM json_each(?))",
            (model_id, scopes),
        )
        self._vectors = dict(read_vectors(connection, model_id, (number for (number,) in facts)))
        self._scores: list[dict[int, float]] = []

    @property
    def size(self) -> int:
        """Return the number of facts."""
        return len(self._vectors)

    def narrow(self, allowed: Iterable[int]) -> None:
        """Leave out all other facts."""
        kept = self._vectors.keys() & allowed
        self._vectors = {number: self._vectors[number] for number in kept}

    def best(
        self, vectors: Sequence[bytes], limit: int, *, exact: bool = False, floor: float = 0.0
    ) -> list[dict[int, float]]:
        """See `Nearest.best`; always exact."""
        self._scores = [self._compare(vector) for vector in vectors]
        return [_rank(scores, limit, floor) for scores in self._scores]

    def scores(self, vector: int, facts: Collection[int]) -> dict[int, float]:
        """See `Nearest.scores`."""
        scores = self._scores[vector]
        return {number: scores[number] for number in facts if number in scores}

    def _compare(self, query: bytes) -> dict[int, float]:
        """Return (1 + cosine) / 2 of all facts."""
        as_numbers = struct.Struct(f"<{len(query) // 4}f").unpack
        asked = as_numbers(query)
        length = math.hypot(*asked)
        scores = {}
        for number, vector in self._vectors.items():
            numbers = as_numbers(vector)
            lengths = length * math.hypot(*numbers)
            cosine = sum(map(mul, asked, numbers)) / lengths if lengths else math.nan
            if math.isnan(cosine):
                continue  # without a direction, or damaged
            scores[number] = round((1 + max(-1.0, min(cosine, 1.0))) / 2, SCORE_DECIMALS)
        return scores


def _rank(scores: dict[int, float], limit: int, floor: float) -> dict[int, float]:
    over = ((score, number) for number, score in scores.items() if score >= floor)
    return {number: score for score, number in nlargest(limit, over)}
