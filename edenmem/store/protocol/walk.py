"""Protocols for a whole store: reading and loading its documents, and counting them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from edenmem.models.backup import Document, LoadResult, Record, RecordKind, Selection
from edenmem.models.integrity import Finding, PresenceKind
from edenmem.models.records import AuditEntry
from edenmem.models.statistics import MemoryCounts

ALL = Selection()


class Walk(Protocol):
    """Everything stored, document by document."""

    def documents(
        self,
        kinds: Sequence[RecordKind],
        selection: Selection = ALL,
        *,
        with_vectors: bool = False,
        snapshot: bool = False,
        unwritten: bool = False,
    ) -> Iterator[Document]:
        """Yield documents of some kinds, in the order of `RecordKind`, including damaged ones.

        Each kind is ordered by ID; messages by session and ID, policies by scope, history by target
        and version order. The same memory yields the same documents on every store. Pages are
        limited in number and in bytes.

        Args:
            kinds: The kinds to read.
            selection: Restricts them; uses an index for agents, scopes and sessions.
            with_vectors: Include the vectors of facts.
            snapshot: Read everything at one moment on SQLite, each document on MongoDB. Otherwise
                nothing is open between two pages, so the caller may write.
            unwritten: Include in history the current version of each fact that has no stored
                history entry.
        """

    def present(self, kind: PresenceKind, ids: Sequence[str]) -> set[str]:
        """Return the IDs that exist and are not marked as deleted."""

    def set_aside(self, entry: AuditEntry) -> bool:
        """Move an unreadable document of memory into the audit entry about it.

        The entry's scope is that of a user or session that the document names, if any. Returns
        whether it was there, unreadable, and could be moved; on SQLite it cannot.
        """

    def put_back(self, entry: AuditEntry, undo: AuditEntry) -> bool:
        """Restore the document of an entry of `set_aside`, and write ``undo``.

        Returns False if the ID is in use.
        """

    def load(
        self, kind: RecordKind, records: Sequence[Record], *, dry_run: bool = False
    ) -> list[LoadResult]:
        """Store the records that do not exist yet; return one result for each, in order.

        One transaction on SQLite. On MongoDB each record is whole or absent, and an interrupted
        load is completed by repeating it. ``dry_run`` writes nothing and checks no references.
        """


class Statistics(Protocol):
    """Counts about memory, by the database; the only texts are those of single facts.

    ``agent_id`` None: all agents.
    """

    def counts(self, *, agent_id: str | None = None, since: datetime | None = None) -> MemoryCounts:
        """Count facts and reflections.

        Days are those from ``since``, without empty ones: memory is dated by its newest source
        message, else by its formation. Kinds are all five kinds of scope, in their order.
        """

    def count_rejections(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Mapping[str, int]:
        """Count rejected items by `Decision.rule`, of formations begun at or after ``since``."""

    def miscounts(self) -> Iterator[Finding]:
        """Yield stored counters that differ from what they count."""

    def recount(self) -> int:
        """Recompute the counters that `miscounts` found; return how many rows changed."""
