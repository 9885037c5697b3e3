"""What a store counts; a part of `edenmem.store.protocol.store.Store`.

The database does the counting. ``agent_id`` None means all agents, for an operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from edenmem.models.memory import Fact
from edenmem.models.statistics import BufferAge, FactUse, FormedOnDay, KindCount, UsageOnDay


class Statistics(Protocol):
    """Numbers about memory, and none of its text but that of single facts."""

    def count_by_day(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Sequence[FormedOnDay]:
        """The facts and reflections formed at or after ``since``, by day; days without are left
        out."""

    def usage_by_day(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Sequence[UsageOnDay]:
        """What `edenmem.store.protocol.store.Store.usage` adds up, by day and model."""

    def counts_by_kind(self, *, agent_id: str | None = None) -> Sequence[KindCount]:
        """Sizes by kind of scope, all five, in the order of `ScopeKind`."""

    def buffer_ages(self, *, agent_id: str | None = None, limit: int) -> Sequence[BufferAge]:
        """The scopes whose oldest pending reflection waits longest, longest first."""

    def fact_use(self, *, agent_id: str | None = None) -> FactUse:
        """How facts are used."""

    def most_retrieved(self, *, agent_id: str | None = None, limit: int) -> Sequence[Fact]:
        """The facts with most accesses, most first, then by id; those without any are left out."""
