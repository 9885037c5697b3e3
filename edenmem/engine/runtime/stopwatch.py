"""How long each stage of a piece of work took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Milliseconds of each stage; stages that run at the same time are each measured whole."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._stages: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure what happens inside; a stage that is entered again adds up."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            took = (time.perf_counter() - begun) * 1000
            self._stages[name] = self._stages.get(name, 0.0) + took

    def timings(self) -> dict[str, float]:
        """Stage → milliseconds, and the whole time since the beginning as "total"."""
        return {**self._stages, "total": (time.perf_counter() - self._begun) * 1000}
