"""Wait for other threads and processes, without fixed delays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest


def until(condition: Callable[[], object], *, seconds: float = 30) -> None:
    """Wait until the condition holds, or fail after a generous time limit."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)


@contextmanager
def no_waits() -> Iterator[list[float]]:
    """Let no request wait before it is sent again, and note the longest wait of each."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edenmem.endpoint.client.sleep", sleep)
        patch.setattr("edenmem.endpoint.failures.uniform", lambda low, high: high)
        yield waited
