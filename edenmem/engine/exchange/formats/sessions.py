"""Conversations in edenmem's own form, one session per line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edenmem.engine.exchange.documents import read_pairs
from edenmem.engine.exchange.files import Source
from edenmem.engine.exchange.formats.common import LeftOut


def read(source: Source, left_out: LeftOut) -> Iterator[tuple[int, Any]]:
    """Yield the lines of a file as they are."""
    for number, _, item in read_pairs(source):
        yield number, item
