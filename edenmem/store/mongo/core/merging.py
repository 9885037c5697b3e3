"""Walks of indexes, merged into one order without reading them whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from heapq import merge
from itertools import groupby
from typing import TypeVar

_T = TypeVar("_T")

#: Before every time that is stored. A range from here skips documents without the field.
EPOCH = datetime(1, 1, 2, tzinfo=UTC)


def newest_first(
    streams: Iterable[Iterator[_T]], *, at: Callable[[_T], datetime], id_of: Callable[[_T], str]
) -> Iterator[_T]:
    """Streams that each are newest first, as one: newest first, equal times by id.

    Only items of one time are held at once.
    """

    def order(item: _T) -> float:
        return -at(item).timestamp()

    for _, same_time in groupby(merge(*streams, key=order), key=order):
        yield from sorted(same_time, key=id_of)
