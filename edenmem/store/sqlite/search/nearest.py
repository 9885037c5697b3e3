"""The semantic list: a first pass over one-bit codes, then exact cosines of those that are left.

The first pass compares each code with the query at four bits a dimension, which ranks far better
than comparing signs with signs: on MiniLM vectors of 16,000 sentences the ten nearest are all
among its first 200 (signs alone: 98.9 %). Few candidates are compared exactly at once; where
signs say little of a model's vectors, that shows in what is found, and more are.

Imports numpy, so it is itself imported only when something is searched.
"""

from __future__ import annotations

import math
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edenmem.models.search import SCORE_DECIMALS, Candidate
from edenmem.store.sqlite.core.connections import map_file
from edenmem.store.sqlite.core.part import json_array

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Scores = npt.NDArray[np.float32]


class Block(NamedTuple):
    """The codes of one scope and model: facts' numbers, and 64 dimensions to a row of words."""

    facts: Numbers
    words: Words
    ones: Scores

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return self.facts.nbytes + self.words.nbytes + self.ones.nbytes


class _Known(NamedTuple):
    """A block, and the scope's two revisions that it is of."""

    revision: int
    codes_revision: int
    block: Block


class CodeCache:
    """Codes as arrays, by scope and model, as long as the scope's revision is the same.

    If codes were only added since, those alone are read. The revisions are read in the same
    transaction as everything else, so that what another process wrote is never missed. Bounded;
    the least recently used goes first.
    """

    def __init__(self, limit: int = 128 * 1024 * 1024) -> None:
        self._limit = limit
        self._size = 0
        self._blocks: OrderedDict[tuple[int, int], _Known] = OrderedDict()
        self._lock = threading.Lock()

    def block(self, connection: sqlite3.Connection, scope_id: int, model_id: int) -> Block:
        """The codes of a scope."""
        key = (scope_id, model_id)
        revision, codes_revision = connection.execute(
            "SELECT revision, codes_revision FROM scopes WHERE scope_id = ?", (scope_id,)
        ).fetchone()
        with self._lock:
            known = self._blocks.get(key)
            if known is not None and known.revision == revision:
                self._blocks.move_to_end(key)
                return known.block
        if known is not None and known.codes_revision == codes_revision:
            block = _grown(connection, scope_id, model_id, known.block)
        else:
            block = _read_block(connection, scope_id, model_id)
        with self._lock:
            self._drop(key)
            if block.size <= self._limit:
                self._blocks[key] = _Known(revision, codes_revision, block)
                self._size += block.size
            while self._size > self._limit:
                self._drop(next(iter(self._blocks)))
        return block

    def _drop(self, key: tuple[int, int]) -> None:
        dropped = self._blocks.pop(key, None)
        if dropped is not None:
            self._size -= dropped.block.size


def _grown(connection: sqlite3.Connection, scope_id: int, model_id: int, block: Block) -> Block:
    """The block with the codes that have been added behind it."""
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
        return Block(np.zeros(0, np.int64), np.zeros((0, 0), np.uint64), np.zeros(0, np.float32))
    numbers, codes = zip(*rows, strict=True)
    words = words_of(np.frombuffer(b"".join(codes), np.uint8).reshape(len(rows), -1))
    ones = np.bitwise_count(words).sum(axis=0, dtype=np.float32)
    return Block(np.array(numbers, dtype=np.int64), words, ones)


def words_of(codes: npt.NDArray[np.uint8]) -> Words:
    """Rows of code bytes as columns of 64-bit words: sums then run along memory."""
    if codes.shape[1] % 8:
        codes = np.pad(codes, ((0, 0), (0, -codes.shape[1] % 8)))
    return np.ascontiguousarray(codes.view(np.uint64).T)


def among(block: Block, only: Numbers) -> Block:
    """The part of a block whose facts are in a sorted list."""
    kept = np.isin(block.facts, only, assume_unique=True)
    return Block(block.facts[kept], block.words[:, kept], block.ones[kept])


#: Exact scores and what they are made of: as float32, the square of a number may be nought or
#: infinite, and the last decimal of a sum depends on the order of adding.
Exact = npt.NDArray[np.float64]

#: So many times the limit, and at least so many, are compared exactly.
OVERSAMPLING = 4
FEWEST_EXACT = 400

_QUERY_BITS = 4
#: A dimension so many times as large as nearly all others is not cut to their size: such a query
#: is taken at twice as many bits.
_RULING = 4.0
#: Vectors that an exact scan holds at a time.
_SCAN = 2048
#: A search asks for no more at once; who looks for duplicates does.
_FEW = 8

#: How far an estimated cosine may be from the exact one, times √dimensions. The deviation of an
#: estimate is about 0.76 for vectors of any direction; this is eight times as much, for vectors
#: that do not point everywhere alike.
_MARGIN = 6.0
#: So many of the likeliest, or twice the limit, are compared exactly before it is known how good
#: the others have to be.
_FIRST = 32
#: So many of the best are to be found whatever vectors are like, or nearly.
_JUDGED = 10

#: A fact has its vector of a model beside its own one, or it is its own.
_STAGED = (
    "SELECT fact_no, vector FROM vectors_beside"
    " WHERE fact_no IN (SELECT value FROM json_each(?)) AND model_id = ?"
)
_OWN = "SELECT fact_no, vector FROM vectors WHERE fact_no IN (SELECT value FROM json_each(?))"


def _estimates(block: Block, query: Scores) -> Scores:
    """About the cosine of the query, of length 1, with the vector of each code.

    A vector's signs point about as it does: their cosine with it is near √(2/π), and so their
    product with the query, over that, is near the cosine (Gao and Long 2024, "RaBitQ").
    """
    sizes = np.sort(np.abs(query))
    reach, highest = float(sizes[math.ceil(0.98 * (len(sizes) - 1))]), float(sizes[-1])
    bits = _QUERY_BITS
    if highest > _RULING * reach:
        reach, bits = highest, 2 * _QUERY_BITS
    steps = (1 << bits) - 1
    levels = np.clip(np.rint((query / reach + 1) / 2 * steps), 0, steps).astype(np.uint8)
    scores = block.ones * np.float32(-steps / 2)
    for bit in range(bits):
        plane = words_of(np.packbits((levels >> bit) & 1)[None, :])
        hits = np.bitwise_count(block.words & plane).sum(axis=0, dtype=np.uint16)
        scores += hits * np.float32(1 << bit)
    step = 2 * reach / steps  # scores are sums over the ones of a code, in these units
    whole = step * float(levels.sum(dtype=np.int64)) - reach * len(query)
    estimates: Scores = (2 * step * scores - whole) / math.sqrt(len(query) * 2 / math.pi)
    return estimates


def _products(matrix: Exact, queries: Exact) -> Exact:
    """Of each vector (row) with each query (column)."""
    if len(queries) > _FEW:
        return matrix @ queries.T
    # Not through BLAS: for so little its threads cost more than they do.
    return np.stack([np.einsum("ij,j->i", matrix, query) for query in queries], axis=1)


def _each_once(numbers: Numbers) -> Numbers:
    """Sorted, each once. `numpy.unique`, like `quantile` and `median`, loads masked arrays first,
    which takes longer than the rest of a search in a new process."""
    ordered = np.sort(numbers)
    is_new = np.ones(len(ordered), dtype=bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_new]


def _leading(guesses: Scores, depth: int) -> Numbers:
    """Places of the ``depth`` facts with the highest estimates, best first."""
    places = np.argpartition(guesses, len(guesses) - depth)[-depth:]
    return places[np.argsort(-guesses[places], kind="stable")]


def _goes_deeper(
    leading: Numbers, places: Numbers, scores: Exact, limit: int, floor: float, total: int
) -> bool:
    """Whether estimates rank so badly that facts behind ``leading`` may be among the best.

    What ranks well has the best in the first third. If estimates say nothing (the numbers of all
    vectors are positive, or a few of them rule the others), most of the best come later, however
    many have been looked at, and in the end all facts are compared.
    """
    if len(leading) >= total:
        return False
    over = np.flatnonzero(scores >= floor)
    best = over[np.argsort(-scores[over], kind="stable")][: max(limit, _JUDGED)]
    late = ~np.isin(places[best], leading[: len(leading) // 3], assume_unique=True)
    return bool(late[:_JUDGED].any() or late.sum() * 4 > len(best))


def unit_queries(vectors: Sequence[bytes]) -> Exact:
    """Vectors of queries as rows of length 1."""
    asked = np.stack([np.frombuffer(vector, "<f4") for vector in vectors]).astype(np.float64)
    rows: Exact = asked / np.linalg.norm(asked, axis=1, keepdims=True)
    return rows


class ExactScores:
    """(1 + cosine) / 2 of facts, from their vectors of a model, in one read transaction.

    ``model`` is its number and its dimensions.
    """

    def __init__(self, connection: sqlite3.Connection, model: tuple[int, int]) -> None:
        self._db = connection
        map_file(connection)
        self._model_id, self._dimensions = model

    def score(self, facts: Numbers, queries: Exact) -> tuple[Numbers, Exact]:
        """(1 + cosine) / 2 of each fact (row) with each query (column)."""
        numbers = [np.zeros(0, np.int64)]
        scores = [np.zeros((0, len(queries)))]
        for rows in self._vectors(facts):
            matrix = np.frombuffer(b"".join([row[1] for row in rows]), "<f4").astype(np.float64)
            matrix = matrix.reshape(len(rows), self._dimensions)
            lengths = np.sqrt(np.einsum("ij,ij->i", matrix, matrix))
            cosines = _products(matrix, queries) / lengths[:, None]
            numbers.append(np.array([row[0] for row in rows], dtype=np.int64))
            scores.append(np.round((1 + np.clip(cosines, -1, 1)) / 2, SCORE_DECIMALS))
        return np.concatenate(numbers), np.concatenate(scores)

    def _vectors(self, facts: Numbers) -> Iterator[list[tuple[int, bytes]]]:
        for start in range(0, len(facts), _SCAN):
            wanted = json_array(facts[start : start + _SCAN].tolist())
            rows = self._db.execute(_STAGED, (wanted, self._model_id)).fetchall()
            found = {row[0] for row in rows}
            if len(found) < min(_SCAN, len(facts) - start):
                rows += [row for row in self._db.execute(_OWN, (wanted,)) if row[0] not in found]
            yield rows

    def of(self, wanted: Sequence[tuple[bytes, Mapping[int, str]]]) -> list[dict[str, float]]:
        """For each vector the scores of some facts, which are given as number → id."""
        found = []
        for vector, ids in wanted:
            numbers, scores = self.score(np.array(sorted(ids), np.int64), unit_queries([vector]))
            pairs = zip(numbers.tolist(), scores[:, 0].tolist(), strict=True)
            found.append({ids[number]: score for number, score in pairs})
        return found


class Nearest:
    """The nearest facts among some blocks, in one read transaction.

    ``model`` is its number and its dimensions.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        blocks: Sequence[Block],
        model: tuple[int, int],
        allowed: Sequence[int] | None,
    ) -> None:
        self._db = connection
        self._dimensions = model[1]
        self._scorer = ExactScores(connection, model)
        self._blocks = [block for block in blocks if len(block.facts)]
        if allowed is not None:
            only = np.sort(np.array(allowed, dtype=np.int64))
            self._blocks = [
                narrowed for block in self._blocks if len((narrowed := among(block, only)).facts)
            ]
        self.total = sum(len(block.facts) for block in self._blocks)

    def best(
        self, vectors: Sequence[bytes], limit: int, *, exact: bool, floor: float = 0.0
    ) -> list[list[Candidate]]:
        """For each vector the nearest with a score of ``floor`` or more, best first, equal ones
        by id."""
        queries = unit_queries(vectors)
        facts = np.concatenate([block.facts for block in self._blocks])
        if exact or self.total <= max(2 * limit, _FIRST):
            facts, scores = self._scorer.score(np.sort(facts), queries)
        else:
            facts, scores = self._likely(facts, queries, limit, floor)
        return [
            self._rank(facts[column >= floor], column[column >= floor], limit)
            for column in scores.T
        ]

    def _likely(
        self, facts: Numbers, queries: Exact, limit: int, floor: float
    ) -> tuple[Numbers, Exact]:
        """The exact scores of the facts that come first by their estimates, but of those that no
        error of an estimate can bring among the best, or over the floor, none.

        How many come first depends on how well the estimates rank: see `_goes_deeper`.
        """
        guesses = [
            np.concatenate([_estimates(block, query) for block in self._blocks])
            for query in queries.astype(np.float32)
        ]
        depths = [min(max(OVERSAMPLING * limit, FEWEST_EXACT), self.total)] * len(queries)
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
                if not _goes_deeper(leading[number], known[0], scores, limit, floor, self.total):
                    going.discard(number)
                    continue
                depths[number] = min(2 * depths[number], self.total)
                leading[number] = _leading(guesses[number], depths[number])
        return facts[known[0]], known[1]

    def _least(
        self, guesses: Scores, known: tuple[Numbers, Exact], number: int, limit: int, floor: float
    ) -> float:
        """The estimate under which no fact can be among the best, or over the floor.

        If a few dimensions rule the others, estimates of the best are all too low, by about as
        much as those of the best that are known by now.
        """
        places, scores = known[0], known[1][:, number]
        best = np.argsort(-scores, kind="stable")[: max(limit, _JUDGED)]
        bar = max(floor, float(scores[best[limit - 1]])) if len(best) >= limit else floor
        errors = np.sort(guesses[places[best]] - (2 * scores[best] - 1))
        astray = float(errors[len(errors) // 2])
        return 2 * bar - 1 - _MARGIN / math.sqrt(self._dimensions) + min(0.0, astray)

    def _score_exactly(
        self,
        facts: Numbers,
        queries: Exact,
        wanted: Sequence[Numbers],
        known: tuple[Numbers, Exact] | None = None,
    ) -> tuple[Numbers, Exact]:
        """The places that are known and wanted, each with its exact scores."""
        places = _each_once(np.concatenate(wanted))
        if known is not None:
            places = np.setdiff1d(places, known[0], assume_unique=True)
        places = places[np.argsort(facts[places])]
        numbers, scores = self._scorer.score(facts[places], queries)
        places = places[np.searchsorted(facts[places], numbers)]
        if known is None:
            return places, scores
        return np.concatenate([known[0], places]), np.concatenate([known[1], scores])

    def _rank(self, facts: Numbers, scores: Exact, limit: int) -> list[Candidate]:
        if len(scores) > limit:  # keep also those that are equal to the last one
            bar = np.partition(scores, len(scores) - limit)[-limit]
            facts, scores = facts[scores >= bar], scores[scores >= bar]
        known = dict(zip(facts.tolist(), scores.tolist(), strict=True))
        rows = self._db.execute(
            "SELECT id, fact_no FROM facts WHERE fact_no IN (SELECT value FROM json_each(?))",
            (json_array(known),),
        )
        found = [Candidate(fact_id, known[number]) for fact_id, number in rows]
        found.sort(key=lambda one: (-one.score, one.fact_id))
        return found[:limit]
