"""What a store counts: the database does the counting. ``agent_id`` None means all agents, for an
operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from edenmem.models.integrity import Finding
from edenmem.models.memory import Fact
from edenmem.models.statistics import BufferAge, FactUse, FormedOnDay, KindCount


class Statistics(Protocol):
    """Numbers about memory, and none of its text but that of single facts."""

    def count_by_day(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Sequence[FormedOnDay]:
        """The facts and reflections formed at or after ``since``, by day; days without are left
        out."""

    def counts_by_kind(self, *, agent_id: str | None = None) -> Sequence[KindCount]:
        """Sizes by kind of scope, all five, in the order of `ScopeKind`."""

    def buffer_ages(self, *, agent_id: str | None = None, limit: int) -> Sequence[BufferAge]:
        """The scopes whose oldest pending reflection waits longest, longest first."""

    def fact_use(self, *, agent_id: str | None = None) -> FactUse:
        """How facts are used."""

    def count_rejections(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Mapping[str, int]:
        """Rejected items of formations that began at or after ``since``, by `Decision.rule`."""

    def most_retrieved(self, *, agent_id: str | None = None, limit: int) -> Sequence[Fact]:
        """The facts with most accesses, most first, then by id; those without any are left out."""

    def miscounts(self) -> Iterator[Finding]:
        """Numbers that are kept beside what they count, and differ from it."""

    def recount(self) -> int:
        """Count anew what `miscounts` found; how many rows were wrong."""
