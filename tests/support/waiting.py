"""Wait for other threads and processes, without fixed delays."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], *, seconds: float = 30) -> None:
    """Wait until the condition holds, or fail after a generous time limit."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)
