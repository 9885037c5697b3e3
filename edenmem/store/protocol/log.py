"""The log of changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal, Protocol

from edenmem.models.changes import AuditEntry
from edenmem.models.scope import Scope

#: What an id in the log may be of: an entry, what was changed, or the run that changed it.
AuditKey = Literal["entry", "target", "run"]


class AuditLog(Protocol):
    """The log of changes."""

    def audit(
        self,
        *,
        agent_id: str | None = None,
        target_id: str | None = None,
        scope: Scope | None = None,
        run_id: str | None = None,
        actor: str | None = None,
        command: str | None = None,
        actions: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        unreadable: set[str] | None = None,
    ) -> Iterator[AuditEntry]:
        """Read the audit entries that match all filters, newest first, in batches.

        Args:
            agent_id: Whose memory was changed.
            target_id: The id of what was changed.
            scope: Where it was changed; for this scope exactly.
            run_id: The run that made the change.
            actor: The name of who made it.
            command: How its command begins, by whole words: "fact" finds "fact edit" too. The
                program's own name may be left out.
            actions: The kinds of change, by their tags; none: all.
            since: Made at this time or later.
            until: Made before this time.
            limit: Maximum number of entries.
            unreadable: Collects the ids of entries that cannot be read, which are then skipped;
                None: they raise.

        Raises:
            DocumentDamaged: an entry cannot be read, and ``unreadable`` is None.
        """

    def audit_entry(self, entry_id: str) -> AuditEntry | None:
        """One audit entry."""

    def audit_entries(
        self, entry_ids: Sequence[str], *, unreadable: set[str] | None = None
    ) -> dict[str, AuditEntry]:
        """Read the audit entries with these ids, by id; ``unreadable`` as for `audit`."""

    def find_audited(self, key: AuditKey, prefix: str, *, limit: int = 20) -> Sequence[str]:
        """The whole ids in the log that begin with ``prefix`` (from 4 hex digits on), each once,
        in their order; of what was changed also where it is not there any more."""


def command_beginnings(command: str) -> tuple[str, ...]:
    """How the commands begin that ``command`` means, each with the space that ends its words."""
    words = " ".join(command.split()) + " "
    return words, f"edenmem {words}"
