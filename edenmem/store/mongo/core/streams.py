"""Merge sorted streams lazily."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from heapq import merge
from itertools import groupby
from typing import TypeVar

_T = TypeVar("_T")

#: Before every stored time. A range from here excludes documents without the field.
EPOCH = datetime(1, 1, 2, tzinfo=UTC)


def newest_first(
    streams: Iterable[Iterator[_T]], *, at: Callable[[_T], datetime], id_of: Callable[[_T], str]
) -> Iterator[_T]:
    """Merge streams that are newest first; equal times are ordered by ID.

    Only items of one time are held in memory.
    """

    def order(item: _T) -> float:
        return -at(item).timestamp()

    for _, same_time in groupby(merge(*streams, key=order), key=order):
        yield from sorted(same_time, key=id_of)
