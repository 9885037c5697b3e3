"""The semantic list: a first pass over one-bit codes, then exact cosines of the best.

The first pass compares each code with the query at four bits per dimension, which ranks far better
than comparing signs with signs: with MiniLM vectors of 16,000 sentences the ten nearest are always
among the first 200 (signs alone: 98.9 %). In large scopes signs alone choose the codes that are
worth four bits. Few candidates are compared exactly; where the signs of a model's vectors say
little, the results of the first pass show it, and more are compared.

Imports numpy, so this module is imported on the first search.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edenmem.models.search import SCORE_DECIMALS
from edenmem.store.common.cache import BoundedCache
from edenmem.store.sqlite.core.scopes import State
from edenmem.store.sqlite.memory.vectors import read_vectors

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]
    Words = npt.NDArray[np.uint64]
    Scores = npt.NDArray[np.float32]
    #: The type of exact scores: in float32 the square of a number may underflow or overflow, and
    #: the last decimal of a sum depends on the order.
    Exact = npt.NDArray[np.float64]


_NO_FACTS: Numbers = np.zeros(0, np.int64)
_NO_LENGTHS: Exact = np.zeros(0)


class Block(NamedTuple):
    """The codes of one scope and model: fact numbers, and rows of 64-bit words.

    A small block has the vectors too, as they are stored, and the inverse of their lengths.
    """

    facts: Numbers
    words: Words
    ones: Scores
    vectors: Scores | None = None
    inverse: Exact = _NO_LENGTHS

    @property
    def size(self) -> int:
        """Return the size in bytes."""
        return sum(each.nbytes for each in self if each is not None)


class _Known(NamedTuple):
    """A block, with the two revisions of its scope."""

    revision: int
    codes_revision: int
    block: Block


class CodeCache:
    """Codes as arrays by scope and model, as long as the revision of the scope is the same.

    If codes were only added since, only those are read, and writes of other processes are never
    missed. ``limit`` is in bytes.
    """

    def __init__(self, limit: int = 128 * 1024 * 1024) -> None:
        self._blocks: BoundedCache[tuple[int, int], _Known] = BoundedCache(limit)

    def block(self, scorer: ExactScores, scope: State) -> Block:
        """Return the codes of a scope, whose state was read in the same transaction."""
        connection, model_id = scorer.connection, scorer.model_id
        scope_id, revision, codes_revision, _ = scope
        known = self._blocks.get((scope_id, model_id))
        if known is not None and known.revision == revision:
            return known.block
        if known is not None and known.codes_revision == codes_revision:
            block, old = _append_new(connection, scope_id, model_id, known.block), known.block
        else:
            block, old = _read_block(connection, scope_id, model_id), None
        if 0 < len(block.facts) * scorer.dimensions <= _SMALL:
            block = _add_vectors(scorer, block, old)
        found = _Known(revision, codes_revision, block)
        self._blocks.put((scope_id, model_id), found, block.size)
        return block


def _append_new(
    connection: sqlite3.Connection, scope_id: int, model_id: int, block: Block
) -> Block:
    """Append the codes that were added since to a block."""
    if not len(block.facts):
        return _read_block(connection, scope_id, model_id)
    more = _read_block(connection, scope_id, model_id, after=int(block.facts[-1]))
    if not len(more.facts):
        return block
    return Block(
        np.concatenate([block.facts, more.facts]),
        np.concatenate([block.words, more.words], axis=1),
        np.concatenate([block.ones, more.ones]),
    )


def _read_block(
    connection: sqlite3.Connection, scope_id: int, model_id: int, *, after: int = -(2**62)
) -> Block:
    rows = connection.execute(
        "SELECT fact_no, code FROM vector_codes WHERE scope_id = ? AND model_id = ?"
        " AND fact_no > ? ORDER BY fact_no",
        (scope_id, model_id, after),
    ).fetchall()
    if not rows:
        return Block(_NO_FACTS, np.zeros((0, 0), np.uint64), np.zeros(0, np.float32))
    numbers, codes = zip(*rows, strict=True)
    words = words_of(np.frombuffer(b"".join(codes), np.uint8).reshape(len(rows), -1))
    ones = np.bitwise_count(words).sum(axis=0, dtype=np.float32)
    return Block(np.array(numbers, dtype=np.int64), words, ones)


def _add_vectors(scorer: ExactScores, block: Block, old: Block | None) -> Block:
    """Return a block with its vectors; it may begin with the facts of an earlier one.

    Vectors whose products exceed float32 are not kept.
    """
    known = 0 if old is None else len(old.inverse)
    vectors = scorer.vectors(block.facts[known:])
    if vectors is None:
        return block
    with np.errstate(divide="ignore"):
        inverse = 1 / _lengths(vectors.astype(np.float64))
    if not np.all((inverse > 1 / _LONGEST) & (inverse < _LONGEST)):
        return block
    if old is not None and old.vectors is not None:
        vectors = np.concatenate([old.vectors, vectors])
        inverse = np.concatenate([old.inverse, inverse])
    return block._replace(vectors=vectors, inverse=inverse)


def words_of(codes: npt.NDArray[np.uint8]) -> Words:
    """Return code bytes as columns of 64-bit words, so that sums run along memory."""
    if codes.shape[1] % 8:
        codes = np.pad(codes, ((0, 0), (0, -codes.shape[1] % 8)))
    return np.ascontiguousarray(codes.view(np.uint64).T)


def among(block: Block, only: Numbers) -> Block:
    """Return the part of a block with facts in a sorted list."""
    kept = np.isin(block.facts, only, assume_unique=True)
    part = Block(block.facts[kept], block.words[:, kept], block.ones[kept])
    if block.vectors is None:
        return part
    return part._replace(vectors=block.vectors[kept], inverse=block.inverse[kept])


#: Compared exactly: this many times the limit, and at least this many.
OVERSAMPLING = 4
FEWEST_EXACT = 400

#: Estimated with all bits of the query: this many times the number to compare, and at least one
#: code in ``_SHARE``.
_REFINED = 4
_SHARE = 8

#: Blocks of up to this many numbers keep their vectors (8 MiB, 1,365 facts of 1,536 dimensions),
#: which are compared without a read.
_SMALL = 2 * 1024 * 1024
#: Up to this many times the limit, all vectors in memory are compared exactly.
_MOST_EXACT = 4
#: Maximum error of a cosine in float32.
_ROUNDING = 1e-4
#: Longer vectors than this, and shorter ones than its inverse, do not fit float32 when multiplied.
_LONGEST = 1e15

_QUERY_BITS = 4
#: A dimension this many times larger than nearly all others is not clipped: such a query uses twice
#: as many bits.
_RULING = 4.0
#: Vectors that are read and converted at a time, few enough for the
#: processor's cache (3 MB of 1,536 numbers).
_SCAN = 256
#: Larger limits are for the search for duplicates only.
_FEW = 8

#: Maximum error of an estimated cosine, times √dimensions. The standard deviation is about 0.76 for
#: vectors of any direction; this is eight times as much, for unevenly distributed vectors.
_MARGIN = 6.0
#: Compared before the bar for the others is known: this many, or twice the limit.
_FIRST = 32
#: Share of the best to find with any kind of vectors.
_JUDGED = 10


class _Levels(NamedTuple):
    """A unit query with a few bits per dimension.

    Attributes:
        planes: The bits of all dimensions, lowest bits first, each as a code.
        step: The size of a level.
        half: Half of the highest level.
        total: The sum over all dimensions.
        root: √(2/π × dimensions).
        rough: The mean distance of a level from ``half``.
    """

    planes: tuple[Words, ...]
    step: float
    half: float
    total: float
    root: float
    rough: float


def _quantize(query: Scores) -> _Levels:
    sizes = np.sort(np.abs(query))
    reach, highest = float(sizes[math.ceil(0.98 * (len(sizes) - 1))]), float(sizes[-1])
    bits = _QUERY_BITS
    if highest > _RULING * reach:
        reach, bits = highest, 2 * _QUERY_BITS
    steps = (1 << bits) - 1
    levels = np.clip(np.rint((query / reach + 1) / 2 * steps), 0, steps).astype(np.uint8)
    step = 2 * reach / steps
    return _Levels(
        planes=tuple(words_of(np.packbits((levels >> bit) & 1)[None, :]) for bit in range(bits)),
        step=step,
        half=steps / 2,
        total=step * float(levels.sum(dtype=np.int64)) - reach * len(query),
        root=math.sqrt(len(query) * 2 / math.pi),
        rough=float(np.abs(levels - steps / 2).mean()),
    )


def _estimates(block: Block, query: _Levels, depth: int) -> Scores:
    """Estimate the cosine of the unit query with the vector of each code.

    The cosine of a vector with its signs is near √(2/π), so the product of the signs with the
    query, divided by that, is near the cosine (Gao and Long 2024, "RaBitQ"). Where only ``depth``
    of many codes are asked for, most estimates are rough: from the signs of the query.
    """
    few, total = max(_REFINED * depth, len(block.facts) // _SHARE), len(block.facts)
    if few >= total:
        return _refined(block.words, block.ones, query)
    signs = query.planes[-1]
    of_signs = 2 * int(np.bitwise_count(signs).sum()) - round(query.root**2 * math.pi / 2)
    scores = query.rough * (2 * _hits(block.words, signs) - block.ones)
    estimates: Scores = query.step * (2 * scores - query.rough * of_signs) / query.root
    places = np.argpartition(estimates, total - few)[-few:]
    # `take` keeps the columns along memory.
    estimates[places] = _refined(block.words.take(places, axis=1), block.ones[places], query)
    return estimates


def _refined(words: Words, ones: Scores, query: _Levels) -> Scores:
    """Return the estimates from all bits of the query."""
    scores = ones * np.float32(-query.half)
    for bit, plane in enumerate(query.planes):
        scores += _hits(words, plane) * np.float32(1 << bit)
    # Here ``scores`` are sums over the set bits of a code, in steps.
    estimates: Scores = (2 * query.step * scores - query.total) / query.root
    return estimates


def _hits(words: Words, plane: Words) -> npt.NDArray[np.uint16]:
    """Count the bits that each code shares with a plane."""
    counts: npt.NDArray[np.uint16] = np.bitwise_count(words & plane).sum(axis=0, dtype=np.uint16)
    return counts


def _products(matrix: npt.NDArray[Any], queries: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the products of each vector (row) with each query (column), in the queries' type."""
    if len(queries) > _FEW:
        products: npt.NDArray[Any] = matrix.astype(queries.dtype, copy=False) @ queries.T
        return products
    # Row by row: for small products the threads of BLAS cost more than they save. The rows are
    # converted in the products, which costs less than a converted copy.
    columns = [np.vecdot(matrix, query, dtype=query.dtype) for query in queries]
    return columns[0][:, None] if len(columns) == 1 else np.stack(columns, axis=1)


def _lengths(matrix: Exact) -> Exact:
    lengths: Exact = np.sqrt(np.vecdot(matrix, matrix))
    return lengths


def _scores(cosines: Exact) -> Exact:
    rounded: Exact = np.round((1 + np.clip(cosines, -1, 1)) / 2, SCORE_DECIMALS)
    return rounded


def _sort_unique(numbers: Numbers) -> Numbers:
    """Sort and remove duplicates.

    `numpy.unique`, like `quantile` and `median`, first loads masked arrays, which takes longer than
    the rest of a search in a new process.
    """
    ordered = np.sort(numbers)
    is_new = np.ones(len(ordered), dtype=bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_new]


def _leading(guesses: Scores, depth: int) -> Numbers:
    """Return the places of the ``depth`` facts with the highest estimates, best first."""
    places = np.argpartition(guesses, len(guesses) - depth)[-depth:]
    return places[np.argsort(-guesses[places], kind="stable")]


def _needs_more(
    leading: Numbers, places: Numbers, scores: Exact, limit: int, floor: float, total: int
) -> bool:
    """Return whether the estimates rank so badly that better facts may follow ``leading``.

    With a good ranking the best are in the first third. If the estimates say nothing (all numbers
    of the vectors are positive, or a few dimensions dominate), most of the best come later at any
    depth, and finally all facts are compared.
    """
    if len(leading) >= total:
        return False
    over = np.flatnonzero(scores >= floor)
    best = over[np.argsort(-scores[over], kind="stable")][: max(limit, _JUDGED)]
    late = ~np.isin(places[best], leading[: len(leading) // 3], assume_unique=True)
    return bool(late[:_JUDGED].any() or late.sum() * 4 > len(best))


def unit_queries(vectors: Sequence[bytes]) -> Exact:
    """Return query vectors as rows of length 1."""
    stored = np.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), -1)
    rows: Exact = stored.astype(np.float64)
    rows /= _lengths(rows)[:, None]
    return rows


class ExactScores:
    """(1 + cosine) / 2 of facts with vectors of a model, in one read transaction.

    ``model`` is the number and the dimensions of the model.
    """

    def __init__(self, connection: sqlite3.Connection, model: tuple[int, int]) -> None:
        self.connection = connection
        self.model_id, self.dimensions = model

    def vectors(self, facts: Numbers) -> Scores | None:
        """Return the vectors of facts as rows; None if one is missing."""
        found = {number: vector for rows in self._vectors(facts) for number, vector in rows}
        try:
            return self._rows([found[number] for number in facts.tolist()])
        except KeyError:
            return None

    def _rows(self, vectors: Sequence[bytes]) -> Scores:
        return np.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), self.dimensions)

    def score(self, facts: Numbers, queries: Exact) -> tuple[Numbers, Exact]:
        """Return (1 + cosine) / 2 of each fact (row) with each query (column)."""
        numbers = [_NO_FACTS]
        scores = [np.zeros((0, len(queries)))]
        for rows in self._vectors(facts):
            numbers.append(np.array([row[0] for row in rows], dtype=np.int64))
            matrix = self._rows([row[1] for row in rows]).astype(np.float64)
            scores.append(_scores(_products(matrix, queries) / _lengths(matrix)[:, None]))
        return np.concatenate(numbers), np.concatenate(scores)

    def _vectors(self, facts: Numbers) -> Iterator[list[tuple[int, bytes]]]:
        for start in range(0, len(facts), _SCAN):
            wanted = facts[start : start + _SCAN].tolist()
            yield read_vectors(self.connection, self.model_id, wanted)


class Nearest:
    """The nearest facts among blocks, in one read transaction."""

    def __init__(self, scorer: ExactScores, blocks: Sequence[Block]) -> None:
        self._scorer = scorer
        #: The facts with exact scores, and the scores for each vector.
        self._known: tuple[Numbers, Exact] | None = None
        self._queries = np.zeros((0, 0))
        self._take(blocks)

    @property
    def size(self) -> int:
        """Return the number of facts."""
        return len(self._facts)

    def narrow(self, allowed: Sequence[int]) -> None:
        """Leave out all other facts."""
        only = np.sort(np.array(allowed, dtype=np.int64))
        self._take([among(block, only) for block in self._blocks])

    def _take(self, blocks: Sequence[Block]) -> None:
        self._blocks = [block for block in blocks if len(block.facts)]
        self._facts = np.concatenate([_NO_FACTS, *(block.facts for block in self._blocks)])
        #: The vectors of all facts, if they are in memory, with the inverse of their lengths.
        self._kept = [
            (block.vectors, block.inverse) for block in self._blocks if block.vectors is not None
        ]
        if len(self._kept) < len(self._blocks):
            self._kept = []

    def best(
        self, vectors: Sequence[bytes], limit: int, *, exact: bool = False, floor: float = 0.0
    ) -> list[dict[int, float]]:
        """Return for each vector the nearest facts, best first, of equal scores the newest.

        Scores below ``floor`` are left out.
        """
        self._queries = unit_queries(vectors)
        if self._kept:
            self._known = self._compare(limit, -1.0 if exact else 2 * floor - 1)
        elif exact or len(self._facts) <= max(2 * limit, _FIRST):
            self._known = self._scorer.score(np.sort(self._facts), self._queries)
        else:
            self._known = self._likely(self._queries, limit, floor)
        facts, scores = self._known
        return [_rank(facts[each >= floor], each[each >= floor], limit) for each in scores.T]

    def scores(self, vector: int, facts: Collection[int]) -> dict[int, float]:
        """Return the scores of those facts that have a vector, for a vector of `best`."""
        assert self._known is not None
        found = _pairs(self._known[0], self._known[1][:, vector])
        scores = {number: found[number] for number in facts if number in found}
        if len(scores) < len(facts) and len(found) < len(self._facts):
            others = np.array(sorted(set(facts).difference(found)), np.int64)
            query = self._queries[vector : vector + 1]
            if self._kept:
                more, exact = self._score_kept(
                    np.isin(self._facts, others, assume_unique=True), query
                )
            else:
                others = others[np.isin(others, self._facts, assume_unique=True)]
                more, exact = self._scorer.score(others, query)
            scores |= _pairs(more, exact[:, 0])
        return scores

    def _compare(self, limit: int, least: float) -> tuple[Numbers, Exact]:
        """Return the exact scores of the facts that are among the best in float32.

        ``least`` is the minimum cosine.
        """
        wanted = np.ones(len(self._facts), bool)
        if len(wanted) > _MOST_EXACT * limit:
            queries = self._queries.astype(np.float32)
            cosines = np.concatenate(
                [_products(kept, queries) * inverse[:, None] for kept, inverse in self._kept]
            )
            bars = np.maximum(np.partition(cosines, -limit, axis=0)[-limit], least)
            wanted = (cosines >= bars - _ROUNDING).any(axis=1)
        return self._score_kept(wanted, self._queries)

    def _score_kept(self, wanted: npt.NDArray[np.bool_], queries: Exact) -> tuple[Numbers, Exact]:
        """Return the exact scores of the facts at some places, whose vectors are in memory."""
        cosines, start = [], 0
        for kept, inverse in self._kept:
            part = wanted[start : start + len(kept)]
            start += len(kept)
            if part.all():
                cosines.append(_products(kept, queries) * inverse[:, None])
            else:
                cosines.append(_products(kept[part], queries) * inverse[part, None])
        return self._facts[wanted], _scores(np.concatenate(cosines))

    def _likely(self, queries: Exact, limit: int, floor: float) -> tuple[Numbers, Exact]:
        """Return the exact scores of the facts with the highest estimates.

        Facts that cannot be among the best, or above the floor, within the error of the estimates
        are left out. The number of compared facts depends on the quality of the estimates: see
        `_needs_more`.
        """
        facts, total = self._facts, len(self._facts)
        depth = min(max(OVERSAMPLING * limit, FEWEST_EXACT), total)
        guesses = [
            np.concatenate([_estimates(block, query, depth) for block in self._blocks])
            for query in map(_quantize, queries.astype(np.float32))
        ]
        depths = [depth] * len(queries)
        leading = [_leading(each, depth) for each, depth in zip(guesses, depths, strict=True)]
        head = max(2 * limit, _FIRST)
        known = self._score_exactly(facts, queries, [places[:head] for places in leading])
        going = set(range(len(queries)))
        while going:
            wanted = []
            for number in going:
                least = self._least(guesses[number], known, number, limit, floor)
                places = leading[number]
                wanted.append(places[guesses[number][places] >= least])
            known = self._score_exactly(facts, queries, wanted, known)
            for number in sorted(going):
                scores = known[1][:, number]
                if not _needs_more(leading[number], known[0], scores, limit, floor, total):
                    going.discard(number)
                    continue
                depths[number] = min(2 * depths[number], total)
                leading[number] = _leading(guesses[number], depths[number])
        return facts[known[0]], known[1]

    def _least(
        self, guesses: Scores, known: tuple[Numbers, Exact], number: int, limit: int, floor: float
    ) -> float:
        """Return the estimate below which no fact can be among the best, or above the floor.

        If a few dimensions dominate, the estimates of the best are all too low, by about as much as
        those of the best known facts.
        """
        places, scores = known[0], known[1][:, number]
        best = np.argsort(-scores, kind="stable")[: max(limit, _JUDGED)]
        bar = max(floor, float(scores[best[limit - 1]])) if len(best) >= limit else floor
        errors = np.sort(guesses[places[best]] - (2 * scores[best] - 1))
        astray = float(errors[len(errors) // 2])
        return 2 * bar - 1 - _MARGIN / math.sqrt(self._queries.shape[1]) + min(0.0, astray)

    def _score_exactly(
        self,
        facts: Numbers,
        queries: Exact,
        wanted: Sequence[Numbers],
        known: tuple[Numbers, Exact] | None = None,
    ) -> tuple[Numbers, Exact]:
        """Return the known and requested places, with their exact scores."""
        places = _sort_unique(np.concatenate(wanted))
        if known is not None:
            places = np.setdiff1d(places, known[0], assume_unique=True)
        places = places[np.argsort(facts[places])]
        numbers, scores = self._scorer.score(facts[places], queries)
        places = places[np.searchsorted(facts[places], numbers)]
        if known is None:
            return places, scores
        return np.concatenate([known[0], places]), np.concatenate([known[1], scores])


def _rank(facts: Numbers, scores: Exact, limit: int) -> dict[int, float]:
    order = np.lexsort((facts, scores))[::-1][:limit]
    return _pairs(facts[order], scores[order])


def _pairs(facts: Numbers, scores: Exact) -> dict[int, float]:
    return dict(zip(facts.tolist(), scores.tolist(), strict=True))
