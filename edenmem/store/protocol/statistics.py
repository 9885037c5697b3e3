"""Protocol for statistics, computed by the database. ``agent_id`` None: all agents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from edenmem.models.integrity import Finding
from edenmem.models.memory import Fact
from edenmem.models.statistics import BufferAge, FactUse, FormedOnDay, KindCount


class Statistics(Protocol):
    """Counts about memory; the only texts are those of single facts."""

    def count_by_day(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Sequence[FormedOnDay]:
        """Count facts and reflections dated at or after ``since``, by day, without empty days.

        A fact or reflection is dated by its newest source message, else by its formation.
        """

    def counts_by_kind(self, *, agent_id: str | None = None) -> Sequence[KindCount]:
        """Return sizes for all five kinds of scope, in the order of `ScopeKind`."""

    def buffer_ages(self, *, agent_id: str | None = None, limit: int) -> Sequence[BufferAge]:
        """Return the scopes with the oldest pending reflections, oldest first."""

    def fact_use(self, *, agent_id: str | None = None) -> FactUse:
        """Return how facts are used."""

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
