"""Reading a store whole, and writing what was read from one like it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from edenmem.models.backup import Document, LoadResult, Record, RecordKind, Selection
from edenmem.models.integrity import PresenceKind

#: Selects everything.
ALL = Selection()


class Walk(Protocol):
    """Everything that is stored, document by document."""

    def documents(
        self,
        kinds: Sequence[RecordKind],
        selection: Selection = ALL,
        *,
        with_vectors: bool = False,
        snapshot: bool = False,
        unwritten: bool = False,
    ) -> Iterator[Document]:
        """Walk the documents of some kinds, in the order of `RecordKind`, whatever is in them.

        Each kind comes by id; messages by session and id, policies by scope, history by its target
        and then as the versions followed each other. The same memory makes the same documents,
        whatever the store. A page of them is short in number and in bytes.

        Args:
            kinds: Which.
            selection: Narrows them; by an index where it names agents, scopes or sessions.
            with_vectors: Whether facts come with their vectors.
            snapshot: Let all be of one moment, on SQLite; on MongoDB each document is. Otherwise
                nothing is open between two pages, so that whoever walks may write.
            unwritten: Let history have the version of each fact of which nothing is written down
                beside the fact itself, in its place.
        """

    def present(self, kind: PresenceKind, ids: Sequence[str]) -> set[str]:
        """Those of the ids that exist; what is marked as deleted does not."""

    def load(
        self, kind: RecordKind, records: Sequence[Record], *, dry_run: bool = False
    ) -> list[LoadResult]:
        """Store those records that are not there yet; one answer for each, in order.

        On SQLite all of them are one transaction. On MongoDB each is whole or absent, and what was
        cut off is completed by loading the same again. ``dry_run``: only look; that what others
        refer to is there is then not asked.
        """
