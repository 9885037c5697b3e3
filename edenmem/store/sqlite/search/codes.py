"""The codes of vectors as arrays in memory, by scope and model, read again when they have changed.

Imports numpy, so it is itself imported only when something is searched.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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
