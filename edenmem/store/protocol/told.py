"""Protocol for notes of what left the engine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from edenmem.models.told import Note, Reply, Shown


class Told(Protocol):
    """Notes of the versions of memory that replies were given.

    `Erasure.erase` removes the replies to a person, and the person's memory from shared lists.
    """

    def add(self, notes: Sequence[Note]) -> None:
        """Store notes; existing ones are left unchanged.

        What a forgetting has erased since, or is erasing, is left out.
        """

    def replies(
        self,
        *,
        keys: Sequence[str] | None = None,
        reply_id: str | None = None,
        session_id: str | None = None,
        agent_id: str | None = None,
        user_ids: Sequence[str] | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> list[Reply]:
        """Return the replies that match all filters, newest first.

        Args:
            keys: With one of these items (`edenmem.models.told.Shown.key`), or with memory of a
                scope with one of these keys.
            reply_id: With this ID.
            session_id: In this session.
            agent_id: Of this agent.
            user_ids: To one of these accounts.
            until: Before this time.
            limit: Maximum number of replies.
        """

    def lists(self, ids: Sequence[str]) -> dict[str, tuple[Shown, ...]]:
        """Return the lists with these IDs, in the order in which their items were shown."""

    def prune(self, before: datetime) -> int:
        """Remove the replies before a moment, and unused lists; return the number of replies."""
