"""Protocols for the audit log, and for notes of what left the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal, Protocol

from edenmem.models.records import AuditEntry, Seal, StoredEntry
from edenmem.models.scope import Scope
from edenmem.models.told import Note, Reply, Shown

#: What an ID in the log refers to: an entry, the changed object, or the run.
AuditKey = Literal["entry", "target", "run"]


class AuditLog(Protocol):
    """The log of changes."""

    def audit(
        self,
        *,
        agent_id: str | None = None,
        target_id: str | None = None,
        target_ids: Sequence[str] = (),
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
        """Yield the audit entries that match all filters, newest first, in batches.

        Args:
            agent_id: The agent whose memory was changed.
            target_id: The ID of the changed object.
            target_ids: The IDs of changed objects; empty for all.
            scope: Exactly this scope.
            run_id: The run that made the change.
            actor: The name of the author.
            command: Prefix of the command, in whole words: "fact" matches "fact edit". The
                program's name may be omitted.
            actions: The kinds of change, by tag; empty for all.
            since: Made at or after this time.
            until: Made before this time.
            limit: Maximum number of entries.
            unreadable: Collects the IDs of unreadable entries, which are then skipped.

        Raises:
            DocumentDamaged: an entry is unreadable, and ``unreadable`` is None.
        """

    def audit_entry(self, entry_id: str) -> AuditEntry | None:
        """Return the audit entry with this ID."""

    def audit_entries(
        self, entry_ids: Sequence[str], *, unreadable: set[str] | None = None
    ) -> dict[str, AuditEntry]:
        """Return the audit entries with these IDs, by ID; ``unreadable`` as for `audit`."""

    def stored_entries(self, entry_ids: Sequence[str]) -> dict[str, StoredEntry]:
        """Return the readable entries with these IDs as they are stored, by ID."""

    def seals(self) -> Iterator[Seal]:
        """Yield the seals of the log by number.

        Raises:
            DocumentDamaged: a seal is unreadable.
        """

    def add_seal(self, seal: Seal) -> bool:
        """Store a seal; return False if another one has its number."""

    def find_audited(self, key: AuditKey, prefix: str, *, limit: int = 20) -> Sequence[str]:
        """Return the distinct IDs in the log with this prefix (at least 4 hex digits), in order.

        Includes IDs of objects that no longer exist.
        """


def command_prefixes(command: str) -> tuple[str, ...]:
    """Return the prefixes of the commands that ``command`` matches, each ending with a space."""
    words = " ".join(command.split()) + " "
    return words, f"edenmem {words}"


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
