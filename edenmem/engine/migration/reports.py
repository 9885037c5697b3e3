"""Options of a migration and its results: plans, reports, checks."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from edenmem.engine.embeddings.backfill import BackfillReport
from edenmem.models.migration import MigrationRun, RunCheck
from edenmem.models.v1 import V1Damage, V1Options, V1Problem


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a migration.

    Attributes:
        v1: How to convert v1 memory.
        on_conflict: How to handle a text where v2 already has one that no run wrote: keep v2's,
            or replace it (v2's goes to history).
        embed: Embed the facts at the end.
        batch_size: Items per batch.
        accept_incomplete: Complete the run even if its source is incomplete.
    """

    v1: V1Options = msgspec.field(default_factory=V1Options)
    on_conflict: Literal["keep", "replace"] = "keep"
    embed: bool = False
    batch_size: int = 500
    accept_incomplete: bool = False

    def to_ledger(self) -> dict[str, Any]:
        """Return the options that determine the result, for the ledger."""
        own: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self.v1))
        return {**own, "on_conflict": self.on_conflict}


class PlanRow(msgspec.Struct, kw_only=True):
    """The plan for one agent: numbers of items by kind and outcome.

    ``already`` counts items moved by an earlier run.
    """

    agent_id: str
    agent: str = ""
    facts: int = 0
    reflections: int = 0
    texts: int = 0
    policies: int = 0
    switches: int = 0
    left_behind: int = 0
    bad: int = 0
    already: int = 0


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """An item before and after the migration; ``label`` has the names of its scope."""

    kind: str
    source: str
    scope: str
    before: str
    after: str
    label: str = ""


class PlanConflict(msgspec.Struct, frozen=True, kw_only=True):
    """A v1 item that conflicts with v2 memory: how the run resolves it, and why.

    ``label`` has the names of its scope.
    """

    kind: str
    source: str
    scope: str
    treatment: str
    reason: str
    label: str = ""


class MigrationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a run, computed without writing.

    Attributes:
        source: Location of the v1 memory, without secrets.
        target: Location of the store.
        items: Number of items. An item can use several documents, a document several items.
        documents: Numbers of v1 documents by collection.
        results: The same documents by result: "used", "left_behind" or "bad".
        not_asked: Documents of agents outside the selection, by collection.
        rows: The items by agent.
        left_behind: Numbers of items left behind, by reason.
        problems_by_kind: Numbers of problems.
        problems: The first problems.
        unknown_fields: ``collection.field`` → number of documents with this unknown field.
        samples: Some items before and after.
        outcomes: Numbers of items by outcome.
        conflicts_by_treatment: Numbers of items that conflict with v2 memory.
        conflicts: The first conflicts.
        notices: Remarks for the operator.
        resumes: ID of the unfinished run that this run resumes.
        incomplete: Missing or unreadable parts of the source.
    """

    source: str
    target: str
    items: int
    documents: dict[str, int]
    results: dict[str, int] = msgspec.field(default_factory=dict)
    not_asked: dict[str, int] = msgspec.field(default_factory=dict)
    rows: tuple[PlanRow, ...] = ()
    left_behind: dict[str, int] = msgspec.field(default_factory=dict)
    problems_by_kind: dict[str, int] = msgspec.field(default_factory=dict)
    problems: tuple[V1Problem, ...] = ()
    unknown_fields: dict[str, int] = msgspec.field(default_factory=dict)
    samples: tuple[Sample, ...] = ()
    outcomes: dict[str, int] = msgspec.field(default_factory=dict)
    conflicts_by_treatment: dict[str, int] = msgspec.field(default_factory=dict)
    conflicts: tuple[PlanConflict, ...] = ()
    notices: tuple[str, ...] = ()
    resumes: str | None = None
    incomplete: tuple[V1Damage, ...] = ()


class MigrationReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run.

    Attributes:
        run: The run, with its counts by outcome.
        problems_by_kind: Numbers of problems of the source.
        problems: The first problems.
        conflicts: The first items that conflict with v2 memory.
        embedding: The embedding of the facts, if requested.
        verification: The final comparison with the source.
        notices: Remarks for the operator.
    """

    run: MigrationRun
    problems_by_kind: dict[str, int] = msgspec.field(default_factory=dict)
    problems: tuple[V1Problem, ...] = ()
    conflicts: tuple[PlanConflict, ...] = ()
    embedding: BackfillReport | None = None
    verification: Verification | None = None
    notices: tuple[str, ...] = ()


DifferenceKind = Literal["missing", "changed", "duplicate", "extra", "order"]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A difference between a store and its source and log.

    Attributes:
        kind: "missing"; "changed": a field differs; "duplicate": several documents of one scope;
            "extra": v1 has nothing there; "order": of a buffer.
        target_type: fact, reflection, consolidation, policy, agent, user, buffer or history.
        target_id: The ID; empty for a buffer.
        scope: The actual or expected scope.
        source: The v1 documents.
        field: The field that differs.
        expected: The value in v1 or in the last log entry.
        found: The stored value.
        reason: Why this is a difference.
    """

    kind: DifferenceKind
    target_type: str
    target_id: str
    scope: str
    source: str
    field: str
    expected: str
    found: str
    reason: str


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of a store with the source of a run, document by document.

    Attributes:
        run_id: The run.
        documents: Number of v1 documents.
        seen: Number of v1 documents covered by the items.
        counts: Numbers of items by outcome, and of those that differ ("differs").
        superseded_by: The later run that migrated the current state of v1, if any.
        changed: Migrated items edited, consolidated or removed since, according to the log.
        taken_back: Items removed or restored by a rollback or undo.
        kept: Items not moved, because v2 has its own version or the owner was erased.
        platform: Memories written by the platform.
        differing: Number of differences.
        differences: The first differences, by field.
        incomplete: Missing parts of the source, unless they were accepted.
        unreadable: Number of unreadable log entries; these excuse no difference.
        unfinished: Whether the run has items left to move.
        agents: The agents of the source, if the verification is complete.
        state: Hash of what was compared, likewise.
    """

    run_id: str
    documents: int
    seen: int
    counts: dict[str, int]
    superseded_by: str | None = None
    changed: int = 0
    taken_back: int = 0
    kept: int = 0
    platform: int = 0
    differing: int = 0
    differences: tuple[Difference, ...] = ()
    incomplete: tuple[V1Damage, ...] = ()
    unreadable: int = 0
    unfinished: bool = False
    agents: tuple[str, ...] = ()
    state: str = ""

    @property
    def complete(self) -> bool:
        """Return whether the run is finished and verified without any difference."""
        return self.outcome == "verified" and not self.unfinished

    @property
    def outcome(self) -> Literal["verified", "differences", "incomplete"]:
        """Return the outcome for the ledger."""
        lacks = self.taken_back or self.documents != self.seen
        if self.differing or self.unreadable or lacks:
            return "differences"
        return "incomplete" if self.incomplete else "verified"

    def check(self, at: datetime) -> RunCheck:
        """Return the summary for the ledger."""
        return RunCheck(
            outcome=self.outcome,
            at=at,
            differing=self.differing,
            taken_back=self.taken_back,
            agents=self.agents,
            state=self.state,
        )


class RepairReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a repair.

    Attributes:
        repaired: Numbers of documents written again, or removed, by type.
        left: Differences that a repair cannot remove.
        verification: The comparison afterwards.
        dry_run: Whether nothing was written.
    """

    repaired: dict[str, int]
    left: tuple[Difference, ...] = ()
    verification: Verification
    dry_run: bool = False
