"""Reading a store whole, and writing what was read from one like it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from edenmem.models import integrity
from edenmem.models.backup import LoadResult, Record, RecordKind, Selection, Unreadable
from edenmem.models.forgetting import Passage
from edenmem.models.integrity import PresenceKind


class Walk(Protocol):
    """Everything that is stored, document by document."""

    def records(
        self, kind: integrity.RecordKind, *, agent_id: str | None = None
    ) -> Iterator[integrity.Record]:
        """Everything of a kind, each once, in one ordered walk."""

    def present(self, kind: PresenceKind, ids: Sequence[str]) -> set[str]:
        """Those of the ids that exist; what is marked as deleted does not."""

    def dump(
        self, kinds: Sequence[RecordKind], selection: Selection, *, with_vectors: bool = True
    ) -> Iterator[tuple[RecordKind, Record | Unreadable]]:
        """The records of these kinds, kind by kind, each kind by id; messages by session and id,
        policies by scope, history by its target and then as the versions followed each other. The
        same memory makes the same records, whatever the store.

        On SQLite all of it is of one moment. On MongoDB it is read while others may write, so each
        document is of one moment and two of them may be of different ones. Changes that a dead
        process left unfinished there are left out until they are settled.
        """

    def load(
        self, kind: RecordKind, records: Sequence[Record], *, dry_run: bool = False
    ) -> list[LoadResult]:
        """Store those records that are not there yet; one answer for each, in order.

        On SQLite all of them are one transaction. On MongoDB each is whole or absent, and what was
        cut off is completed by loading the same again. ``dry_run``: only look; that what others
        refer to is there is then not asked.
        """

    def passages(self) -> Iterator[Passage]:
        """Every text that is stored, except for the host's own: conversations, names, personas.

        Read in pages, without a cursor or snapshot between them.
        """
