"""Waiting for what another thread or process does, without a guess at how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], *, seconds: float = 30) -> None:
    """Return once the condition holds; fail after a time that only a fault takes."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)
