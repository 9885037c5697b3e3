"""What a store lets be seen of itself when its integrity is in doubt, and what it mends of what is
only derived; a part of `edenmem.store.protocol.store.Store`.

Nothing here trusts what is stored: a document that cannot be decoded is told of and stepped over.
Reading changes nothing, and keeps no more in memory than a page. What is memory itself is never
mended here, but by `edenmem.models.changes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from edenmem.models.integrity import Finding, PresenceKind, Record, RecordKind
from edenmem.models.scope import Scope


class Integrity(Protocol):
    """Looking at everything, however damaged."""

    # -- looking -----------------------------------------------------------------------------

    def file_faults(self) -> Iterator[Finding]:
        """What the database itself says is damaged, and what its schema lacks."""

    def records(self, kind: RecordKind, *, agent_id: str | None = None) -> Iterator[Record]:
        """Everything of a kind, each once, in one ordered walk."""

    def present(self, kind: PresenceKind, ids: Sequence[str]) -> set[str]:
        """Those of the ids that exist; what is marked as deleted does not."""

    def people_of(self, session_ids: Sequence[str]) -> dict[str, frozenset[str]]:
        """Session → the canonical ids of its people; deleted sessions too, those that are not
        there left out."""

    def buffers(self, scopes: Sequence[Scope]) -> dict[Scope, tuple[str, ...]]:
        """The ids in the buffers of those scopes that have one, as they are stored, and those that
        a consolidation has taken out and is about to mark."""

    def list_versions(self, target_type: str, ids: Sequence[str]) -> dict[str, dict[int, str]]:
        """List for each target the numbers of the versions that history has, with how each came to
        be (`HistoryEntry.action`). A target without history is left out."""

    def twins(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        """Facts beside an older one of the same scope and hash, which is ``related``; none as
        long as the unique key stands."""

    def find_shared_messages(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        """Messages that are in several formations of one agent (``related``); none as long as
        the unique key stands."""

    def find_lost_progress(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        """Sessions in which the platform's progress is before messages that were formed for its
        first agent, or forgotten: the platform wrote an older copy of the session back."""

    def vector_faults(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        """Facts that name a model and have no usable vector: none, zeros, numbers that are not
        finite, or, where a model's vectors have one length, another."""

    def stray_contexts(self) -> Iterator[Finding]:
        """Cached contexts of sessions that are gone, or of agents (``related``) not in them."""

    def miscounts(self) -> Iterator[Finding]:
        """Numbers that are kept beside what they count, and differ from it."""

    # -- mending what is derived -------------------------------------------------------------

    def mend_schema(self) -> int:
        """Make what `file_faults` found missing in the schema; how many parts."""

    def finish_absorbing(self, scope: Scope) -> int:
        """Mark as absorbed what the text of a scope says that its version was made of, as the write
        of that version did or was about to do; how many were not marked."""

    def drop_vectors(self, fact_ids: Sequence[str]) -> int:
        """Take away the vectors of facts, which are then without one; how many facts."""

    def drop_contexts(self, pairs: Sequence[tuple[str, str]]) -> int:
        """Drop cached contexts of (session, agent); how many."""

    def recount(self) -> int:
        """Count anew what `miscounts` found; how many rows were wrong."""
