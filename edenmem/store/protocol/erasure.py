"""Protocol for erasing a person, a session, a group or an agent.

Every method can be called again after an interruption and continues with what is left. For the
order of the calls see `edenmem.engine.erasure.forgetting`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

from edenmem.models.backup import RecordKind
from edenmem.models.changes import AuditEntry
from edenmem.models.forgetting import Forgetting, Passage, Traces
from edenmem.models.memory import Fact, Reflection

#: What is removed, by the kind of record, as counts name it.
KINDS = {
    RecordKind.FACT: "facts",
    RecordKind.REFLECTION: "reflections",
    RecordKind.HELD: "held items",
    RecordKind.CONSOLIDATION: "texts",
    RecordKind.POLICY: "policies",
    RecordKind.HISTORY: "versions in history",
    RecordKind.AUDIT: "audit entries (emptied)",
}


class Erasure(Protocol):
    """Finds and removes traces."""

    def count_conversations(self, traces: Traces) -> dict[str, int]:
        """Count the sessions, messages and accounts that `erase_messages` would remove.

        Kinds with a count of 0 are left out.
        """

    def count_traces(self, traces: Traces, derived: Sequence[str]) -> dict[str, int]:
        """Count what `erase` would remove beyond what `Walk.documents` finds of the traces.

        These are derived reflections with their audit entries, cached contexts, and notes of
        replies. Kinds with a count of 0 are left out.
        """

    def begin_forgetting(self, forgetting: Forgetting) -> Forgetting:
        """Store a forgetting as open; if it is open already, only add its blocks."""

    def forgettings(self) -> list[Forgetting]:
        """Return all forgettings: open ones first, then the latest."""

    def close_forgetting(
        self, forgetting_id: str, *, at: datetime, counts: dict[str, int], entry: AuditEntry
    ) -> None:
        """Close a forgetting: drop its subject and write its audit entry, which has no content.

        Changes decided up to ``at`` remain refused.
        """

    def add_entries(self, entries: Sequence[AuditEntry]) -> None:
        """Write audit entries without content; existing ones stay as they are."""

    def find_returned(self, since: datetime) -> Iterator[Fact | Reflection]:
        """Yield memory of other programs, written since a moment, with forgotten source messages.

        The caller decides whether a forgetting applies to it.
        """

    def find_old_contexts(self, *, since: datetime, before: datetime) -> dict[str, datetime]:
        """Return sessions active since a moment with a context cached before another one, and when.

        Only contexts that other programs can restore.
        """

    def mark_messages(self, traces: Traces) -> None:
        """Keep the words of forgotten messages out of the search for facts that stay."""

    def erase(
        self, traces: Traces, derived: Sequence[str], *, at: datetime, run: str
    ) -> dict[str, int]:
        """Remove the derived reflections in the given order, then all traces in memory.

        Vectors, index entries and history are removed too, audit entries emptied, and cached
        contexts dropped. Memory that remains no longer names the accounts. ``run`` is the ID of the
        erasure's run, which marks what was emptied (`edenmem.models.records.StoredEntry`).

        Returns:
            What was removed, by `KINDS` and the kinds of `count_traces`.
        """

    def erase_messages(self, traces: Traces) -> dict[str, int]:
        """Remove the ``own`` sessions with their messages, and the accounts.

        In ``shared`` sessions only the accounts' messages and memberships are removed. Returns what
        was removed, by the kinds of `count_conversations`.

        Raises:
            UsageError: another program keeps the messages in this database.
        """

    def redact(self, passages: Sequence[Passage], *, run: str) -> int:
        """Empty the content of these entries and keep their other fields; return their number.

        ``run`` as for `erase`.

        Affects history, audit, formations, previous texts, quotes and doubts, and cached contexts.
        A doubt stays one, without its text. Passages in other places are left alone.
        """
