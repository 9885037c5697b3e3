"""Measure the duration of stages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Measure stages in milliseconds; concurrent stages are measured separately."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._stages: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the body; repeated stages add up."""
        started = time.perf_counter()
        try:
            yield
        finally:
            took = (time.perf_counter() - started) * 1000
            self._stages[name] = self._stages.get(name, 0.0) + took

    def timings(self) -> dict[str, float]:
        """Return milliseconds by stage, and the time since creation as "total"."""
        return {**self._stages, "total": (time.perf_counter() - self._started) * 1000}
