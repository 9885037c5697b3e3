"""Memory as it is and as it was, and changing it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

from edenmem.memory import Needs, State
from edenmem.models.changes import ChangeResult, ChangeSet, HistoryEntry
from edenmem.models.integrity import Finding
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection, ScopeSummary
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter


class Memory(Protocol):
    """Memory as it is now."""

    def facts(
        self,
        filter: FactFilter,
        *,
        limit: int | None = None,
        with_vectors: bool = False,
    ) -> Iterator[Fact]:
        """Facts, most recently made or corrected first, then by id."""

    def recent_facts(self, scopes: Sequence[Scope], *, since: datetime, limit: int) -> list[Fact]:
        """The newest facts made or corrected at or after ``since``, newest first."""

    def fact(self, fact_id: str, *, with_vector: bool = False) -> Fact | None:
        """One fact by its id, for an operator; whoever acts for a reader checks its ``home``."""

    def facts_by_ids(
        self, scopes: Sequence[Scope], fact_ids: Sequence[str], *, with_vectors: bool = False
    ) -> dict[str, Fact]:
        """Those of the ids that are in one of the scopes."""

    def facts_by_hashes(self, scope: Scope, hashes: Sequence[str]) -> dict[str, Fact]:
        """The scope's facts with these content hashes, keyed by hash."""

    def reflections(
        self,
        scopes: Sequence[Scope],
        *,
        absorbed: bool | None = None,
        limit: int | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
    ) -> Iterator[Reflection]:
        """Reflections, newest first, formed at or after ``since`` and before ``before``.
        ``absorbed`` None: both."""

    def reflection(self, reflection_id: str) -> Reflection | None:
        """One reflection by its id."""

    def reflections_by_ids(self, reflection_ids: Sequence[str]) -> dict[str, Reflection]:
        """Those of the reflections that there are, by id; whoever asks checks their ``home``."""

    def find_derived(self, reflection_ids: Sequence[str]) -> list[Reflection]:
        """Reflections that were derived (propagated) from one of these."""

    def pending(self, scope: Scope) -> list[Reflection]:
        """All reflections in the scope's buffer, oldest first, however many."""

    def buffers(self, scopes: Sequence[Scope]) -> dict[Scope, tuple[str, ...]]:
        """The ids in the buffers of those scopes that have one, as they are stored, and those that
        a consolidation has taken out and is about to mark."""

    def consolidations(self, scopes: Sequence[Scope]) -> dict[Scope, Consolidation]:
        """The texts and buffers of those scopes that have one, in one round trip."""

    def policies(self, scopes: Sequence[Scope]) -> dict[Scope, Policy]:
        """The policies of those scopes that have one, in one round trip."""

    def shards(self, agent_id: str) -> list[Policy]:
        """The policies of the agent's shards, by name."""

    def scopes(
        self,
        *,
        agent_id: str | None = None,
        kinds: Sequence[ScopeKind] = (),
        user_ids: Sequence[str] | None = None,
        min_pending: int = 0,
    ) -> Iterator[ScopeSummary]:
        """Every scope that has a fact, a reflection, a text or a policy; by agent, kind, owner.
        ``user_ids``: user scopes of these accounts only; an empty list finds nothing."""

    def scopes_of(self, agent_id: str) -> list[Scope]:
        """All scopes of an agent of which anything is stored, history and audit included."""

    def revisions(self, scopes: Sequence[Scope]) -> dict[Scope, int]:
        """A number for each scope that grows with every change that edenmem makes in it."""

    def duplicate_facts(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        """Facts beside an older one of the same scope and hash, which is ``related``; none as
        long as the unique key stands."""


class History(Protocol):
    """Memory as it was."""

    def versions(
        self, target_type: str, target_id: str, *, scope: Scope | None = None
    ) -> list[HistoryEntry]:
        """All versions, oldest first, the current one included while the target exists.

        For a consolidated text give its scope; ``target_id`` may then be empty.
        """

    def list_versions(self, target_type: str, ids: Sequence[str]) -> dict[str, dict[int, str]]:
        """List for each target the numbers of the versions that history has, with how each came to
        be (`HistoryEntry.action`). A target without history is left out."""

    def consolidation_at(self, scope: Scope, moment: datetime) -> HistoryEntry | None:
        """The version of the scope's text that was current at ``moment``."""

    def facts_at(self, scopes: Sequence[Scope], moment: datetime, *, limit: int) -> list[Fact]:
        """The facts as they were at ``moment``, newest first: later ones left out, later edits
        and deletions taken back from history."""

    def pending_at(self, scope: Scope, moment: datetime) -> list[Reflection]:
        """The reflections that were in the buffer at ``moment``, oldest first."""


class Changes(Protocol):
    """The one way by which memory is changed."""

    def apply(self, changes: ChangeSet) -> list[ChangeResult]:
        """Apply each change, in order; see `edenmem.models.changes` for what each one means.

        On SQLite the whole set is one transaction. On MongoDB a set that is too large for one is
        several, and one that was interrupted is completed by applying it again. In both cases a
        change that was applied before is answered with ALREADY.
        """

    def load_state(self, needs: Needs, *, at: datetime) -> State:
        """Load all that is needed to judge changes, in one snapshot if the store has them.

        Every key of ``needs`` is in the answer, with None or nothing for what is not there. ``at``
        is the time of the set: a forgetting that was closed before it blocks nothing.
        """

    def track_access(self, fact_ids: Sequence[str], at: datetime) -> None:
        """Count an access to each fact."""

    def finish_absorbing(self, scope: Scope) -> int:
        """Mark as absorbed what the text of a scope says that its version was made of, as the write
        of that version did or was about to do; how many were not marked."""


class Propagation(Protocol):
    """Which versions of texts are still to be passed on to other scopes."""

    def find_unpropagated(self, *, agent_id: str | None = None) -> list[Scope]:
        """Scopes with a version that is still to be propagated; by agent, kind, owner."""

    def settle_propagation(self, scope: Scope, version: int) -> None:
        """Note that nothing is left to be propagated of this version. Idempotent."""
