"""What a store does so that a person, a session, a group or an agent can be forgotten.

Every method may be called again after it was cut off: it goes on with what is left. The order in
which the engine calls them is told in `edenmem.engine.erasure.forgetting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from edenmem.models.changes import AuditEntry
from edenmem.models.forgetting import Forgetting, Passage, Traces


class Erasure(Protocol):
    """Finds and removes traces."""

    def count_conversations(self, traces: Traces) -> dict[str, int]:
        """How many sessions and messages of the host there are, of which `erase_messages` speaks;
        kinds of which there is nothing are left out."""

    def count_traces(self, traces: Traces) -> dict[str, int]:
        """What there is to be removed, by kind; kinds of which there is nothing are left out."""

    def begin_forgetting(self, forgetting: Forgetting) -> Forgetting:
        """Keep it as open; one that is open already stays as it is, with more blocks."""

    def forgettings(self) -> list[Forgetting]:
        """All, open ones first, then the latest."""

    def close_forgetting(
        self, forgetting_id: str, *, at: datetime, counts: dict[str, int], entry: AuditEntry
    ) -> None:
        """Drop its subject, and write the audit entry, which has no content. Changes that were
        decided up to ``at`` stay refused."""

    def settle_formations(self, traces: Traces, *, at: datetime) -> int:
        """Make sure that nothing which was said so far is formed later; how many formations were
        changed.

        What was recorded is applied, as far as it is not blocked; claims are withdrawn, so that
        nobody can record an outcome; messages without a formation get one that is done. Decisions
        and errors are emptied.
        """

    def erase(self, traces: Traces, derived: Sequence[str], *, at: datetime) -> dict[str, int]:
        """Remove the derived reflections in the order given, then all memory that is a trace, with
        its vectors, index entries and history; empty its audit entries; drop cached contexts.
        Memory that stays does not name the accounts any more. What was removed, by kind."""

    def erase_messages(self, traces: Traces) -> dict[str, int]:
        """Remove the ``own`` sessions with their messages, the messages and memberships of the
        accounts in ``shared`` ones, and the accounts.

        Raises:
            UsageError: they are not ours: another program keeps them in this database.
        """

    def redact(self, passages: Sequence[Passage]) -> int:
        """Empty these entries of history, audit and formations, previous texts and cached
        contexts, and keep what else they say; how many there were. Other places are left alone."""
