"""Protocols for memory: its state, history, changes and log, and what left the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

from edenmem.models.changes import ChangeResult, ChangeSet, HistoryEntry
from edenmem.models.integrity import Finding
from edenmem.models.memory import (
    Consolidation,
    Fact,
    FailedDrafts,
    Held,
    HeldCount,
    Policy,
    Reflection,
    ScopeSummary,
)
from edenmem.models.records import AuditEntry, Seal, StoredEntry
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.models.told import Note, Reply, Shown

if TYPE_CHECKING:  # a command loads what it uses
    from edenmem.memory import Needs, State


class Memory(Protocol):
    """The current state of memory."""

    def facts(
        self,
        filter: FactFilter,
        *,
        limit: int | None = None,
        with_vectors: bool = False,
    ) -> Iterator[Fact]:
        """Yield facts, most recently said or edited first, then by ID."""

    def recent_facts(
        self, scopes: Sequence[Scope], *, since: datetime, limit: int, live_at: datetime
    ) -> list[Fact]:
        """Return the facts said or edited at or after ``since``, newest first.

        Facts that have expired at ``live_at`` are left out.
        """

    def expired_facts(
        self, at: datetime, *, agent_ids: Sequence[str] | None = None, limit: int
    ) -> list[Fact]:
        """Return facts that have expired at a time, of some agents or of all, oldest first."""

    def fact(self, fact_id: str, *, with_vector: bool = False) -> Fact | None:
        """Return a fact by ID from any scope; the caller checks access to its ``home``."""

    def facts_by_ids(
        self, scopes: Sequence[Scope], fact_ids: Sequence[str], *, with_vectors: bool = False
    ) -> dict[str, Fact]:
        """Return the facts with these IDs in any of the scopes, by ID."""

    def facts_by_hashes(self, scope: Scope, hashes: Sequence[str]) -> dict[str, Fact]:
        """Return the scope's facts with these content hashes, by hash."""

    def reflections(
        self,
        scopes: Sequence[Scope],
        *,
        absorbed: bool | None = None,
        limit: int | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
    ) -> Iterator[Reflection]:
        """Yield reflections formed at or after ``since`` and before ``before``, newest first.

        ``absorbed`` None: absorbed or not.
        """

    def reflection(self, reflection_id: str) -> Reflection | None:
        """Return a reflection by ID."""

    def reflections_by_ids(self, reflection_ids: Sequence[str]) -> dict[str, Reflection]:
        """Return reflections by ID from any scope; the caller checks access to their ``home``."""

    def held(
        self, scopes: Sequence[Scope] | None, *, agent_id: str | None = None
    ) -> Iterator[Held]:
        """Yield the items of these scopes that wait for review, newest first.

        Without scopes, all of an agent, or of the store.
        """

    def count_held(self, *, agent_id: str | None = None) -> HeldCount:
        """Count the items that wait for review, of an agent or of all."""

    def find_derived(self, reflection_ids: Sequence[str]) -> list[Reflection]:
        """Return the reflections that were derived (propagated) from one of these."""

    def pending(self, scope: Scope) -> list[Reflection]:
        """Return all reflections in the scope's buffer, oldest first."""

    def consolidations(self, scopes: Sequence[Scope]) -> dict[Scope, Consolidation]:
        """Return the texts and buffers of these scopes, in one round trip."""

    def failed_drafts(self, scopes: Sequence[Scope]) -> dict[Scope, FailedDrafts]:
        """Return what `Changes.set_failed_drafts` set for these scopes."""

    def policies(self, scopes: Sequence[Scope]) -> dict[Scope, Policy]:
        """Return the policies of these scopes, in one round trip."""

    def shards(self, agent_id: str) -> list[Policy]:
        """Return the policies of the agent's shards, by name."""

    def scopes(
        self,
        *,
        agent_id: str | None = None,
        kinds: Sequence[ScopeKind] = (),
        user_ids: Sequence[str] | None = None,
        min_pending: int = 0,
    ) -> Iterator[ScopeSummary]:
        """Yield every scope with a fact, reflection, text or policy, by agent, kind, owner.

        ``user_ids`` restricts user scopes to these accounts; an empty list matches none.
        """

    def scopes_of(self, agent_id: str) -> list[Scope]:
        """Return all scopes of an agent with any data, including history and audit."""

    def find_unpropagated(self, *, agent_id: str | None = None) -> list[Scope]:
        """Return the scopes with a version of a text to propagate, by agent, kind, owner."""

    def revisions(self, scopes: Sequence[Scope]) -> dict[Scope, int]:
        """Return a number for each scope that increases with every change by edenmem."""

    def duplicate_facts(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        """Yield facts with an older duplicate (``related``): the same scope and hash.

        The unique key prevents these.
        """


class History(Protocol):
    """The past states of memory."""

    def versions(
        self, target_type: str, target_id: str, *, scope: Scope | None = None
    ) -> list[HistoryEntry]:
        """Return all versions, oldest first, including the current one while the target exists.

        For a consolidated text pass its scope; ``target_id`` may then be empty.
        """

    def facts_at(self, scopes: Sequence[Scope], moment: datetime, *, limit: int) -> list[Fact]:
        """Return the facts as they were at ``moment``, newest first.

        Later facts are left out; later edits and deletions are undone from history.
        """

    def pending_at(self, scope: Scope, moment: datetime) -> list[Reflection]:
        """Return the reflections that were in the buffer at ``moment``, oldest first."""


class Changes(Protocol):
    """The only way to change memory."""

    def apply(self, changes: ChangeSet) -> list[ChangeResult]:
        """Apply each change in order; see `edenmem.models.changes` for their meaning.

        One transaction on SQLite. On MongoDB a large set takes several transactions; an interrupted
        one is completed by applying it again. A change that was applied before returns ALREADY.
        """

    def load_state(self, needs: Needs, *, at: datetime) -> State:
        """Load everything needed to validate changes, in one snapshot where the store has them.

        The result has every key of ``needs``, with None or an empty value for missing objects.
        ``at`` is the time of the set: forgettings closed before it block nothing.
        """

    def set_failed_drafts(self, scope: Scope, failed: FailedDrafts) -> None:
        """Remember the failed drafts with the document of a scope, if it has one."""

    def finish_absorbing(self, scope: Scope) -> None:
        """Mark the reflections that the current version of a scope's text absorbed, for repairs."""

    def settle_propagation(self, scope: Scope, version: int) -> None:
        """Mark a version of a text as fully propagated. Idempotent."""


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
