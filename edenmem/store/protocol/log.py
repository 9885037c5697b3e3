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
    ) -> Iterator[AuditEntry]:
        """Audit entries, newest first, in batches: those that all that is given holds of.

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
            limit: At most so many.
        """

    def audit_entry(self, entry_id: str) -> AuditEntry | None:
        """One audit entry."""

    def audit_entries(self, entry_ids: Sequence[str]) -> dict[str, AuditEntry]:
        """Those of these audit entries that there are, by id."""

    def find_audited(self, key: AuditKey, prefix: str, *, limit: int = 20) -> Sequence[str]:
        """The whole ids in the log that begin with ``prefix`` (from 4 hex digits on), each once,
        in their order; of what was changed also where it is not there any more."""


def command_beginnings(command: str) -> tuple[str, ...]:
    """How the commands begin that ``command`` means, each with the space that ends its words."""
    words = " ".join(command.split()) + " "
    return words, f"edenmem {words}"
