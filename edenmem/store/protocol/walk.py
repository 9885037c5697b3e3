"""Protocol for reading a whole store and loading its documents into another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from edenmem.models.backup import Document, LoadResult, Record, RecordKind, Selection
from edenmem.models.integrity import PresenceKind
from edenmem.models.records import AuditEntry

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
