"""Protocol for statistics, computed by the database. ``agent_id`` None: all agents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from edenmem.models.integrity import Finding
from edenmem.models.memory import Fact
from edenmem.models.statistics import BufferAge, MemoryCounts


class Statistics(Protocol):
    """Counts about memory; the only texts are those of single facts."""

    def counts(self, *, agent_id: str | None = None, since: datetime | None = None) -> MemoryCounts:
        """Count facts and reflections.

        Days are those from ``since``, without empty ones: memory is dated by its newest source
        message, else by its formation. Kinds are all five kinds of scope, in their order.
        """

    def buffer_ages(self, *, agent_id: str | None = None, limit: int) -> Sequence[BufferAge]:
        """Return the scopes with the oldest pending reflections, oldest first."""

    def count_rejections(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Mapping[str, int]:
        """Count rejected items by `Decision.rule`, of formations begun at or after ``since``."""

    def most_retrieved(self, *, agent_id: str | None = None, limit: int) -> Sequence[Fact]:
        """Return the facts with the most accesses, then by ID; facts without any are left out."""

    def miscounts(self) -> Iterator[Finding]:
        """Yield stored counters that differ from what they count."""

    def recount(self) -> int:
        """Recompute the counters that `miscounts` found; return how many rows changed."""
