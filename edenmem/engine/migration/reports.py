"""What a migration is asked to do, and what it tells: plans, reports, checks."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from edenmem.engine.embeddings.backfill import BackfillReport
from edenmem.models.formation import UsageTotal
from edenmem.models.migration import MigrationRun, RunCheck
from edenmem.models.v1 import V1Damage, V1Options, V1Problem


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to migrate.

    Attributes:
        v1: What to make of v1.
        on_conflict: What to do with a text where v2 has one: keep v2's, append v1's to it, or
            replace it (v2's goes to history).
        condense: Let a language model shorten texts that are over their limit; the whole text is
            kept as an older version.
        embed: Give facts their vectors at the end.
        batch_size: Items that are written together.
        accept_incomplete: Call the run complete although its source is not.
    """

    v1: V1Options = msgspec.field(default_factory=V1Options)
    on_conflict: Literal["keep", "append", "replace"] = "keep"
    condense: bool = False
    embed: bool = False
    batch_size: int = 500
    accept_incomplete: bool = False

    def to_ledger(self) -> dict[str, Any]:
        """What the ledger keeps: all that says what the run makes."""
        own: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self.v1))
        return {**own, "on_conflict": self.on_conflict, "condense": self.condense}


class PlanRow(msgspec.Struct, kw_only=True):
    """What the plan has for one agent, or one shard of it, by outcome; ``conflicts`` are texts of
    v2 that stand in the way, ``already`` what an earlier run has moved."""

    agent_id: str
    agent: str = ""
    shard: str | None = None
    facts: int = 0
    reflections: int = 0
    texts: int = 0
    policies: int = 0
    switches: int = 0
    left_behind: int = 0
    bad: int = 0
    already: int = 0
    conflicts: int = 0
    over_limit: int = 0


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One thing before and after."""

    kind: str
    source: str
    scope: str
    before: str
    after: str


class PlanConflict(msgspec.Struct, frozen=True, kw_only=True):
    """Something of v1 for which v2 has something else: what the run does, and why."""

    kind: str
    source: str
    scope: str
    treatment: str
    reason: str


class MigrationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a run would do. Nothing was written to find it out.

    ``documents`` are those of v1 by collection, ``not_asked`` those of agents that were not named;
    ``fates`` are the same documents by what becomes of them: "used", "left_behind" or "bad".
    ``items`` is how many steps the run has: one can come of several documents, and several of one.
    ``left_behind`` counts items by reason, ``problems_by_kind`` problems; ``problems`` holds the
    first of them. ``tokens`` are those that embedding the facts would take, ``cost`` in US dollars
    (None: no price is known), ``model`` which one. ``outcomes`` counts items by what the run would
    report of them; ``conflicts_by_treatment`` counts those for which v2 has something else,
    ``conflicts`` names the first of them. ``incomplete`` is what of the source is missing or cannot
    be read.
    """

    source: str
    target: str
    items: int
    documents: dict[str, int]
    fates: dict[str, int] = msgspec.field(default_factory=dict)
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
    facts: int = 0
    model: str = ""
    tokens: int = 0
    cost: float | None = None
    notices: tuple[str, ...] = ()
    resumes: str | None = None
    incomplete: tuple[V1Damage, ...] = ()


class MigrationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did: the run with its counts by outcome, what became of texts that were over
    their limit, vectors, and the check at the end (None: it was not asked for)."""

    run: MigrationRun
    condensed: int = 0
    kept_whole: tuple[str, ...] = ()
    usage: tuple[UsageTotal, ...] = ()
    embedding: BackfillReport | None = None
    verification: Verification | None = None
    notices: tuple[str, ...] = ()


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a store differs from what v1 and the log say it holds.

    Attributes:
        kind: "missing"; "changed": one field of it; "duplicate": the scope has it twice; "copy":
            v1 has it in another scope only; "extra": v1 does not have it; "order": of a buffer.
        target_type: What it is of: fact, reflection, consolidation, policy, agent, user, buffer.
        target_id: Its id; empty if it has none.
        scope: Where it is, or should be.
        source: The documents of v1.
        field: The field that differs.
        expected: What v1, or the log's last entry, says.
        found: What is there.
        reason: Why that is a difference.
    """

    kind: Literal["missing", "changed", "duplicate", "copy", "extra", "order"]
    target_type: str
    target_id: str
    scope: str
    source: str
    field: str
    expected: str
    found: str
    reason: str


class VectorCheck(msgspec.Struct, frozen=True, kw_only=True):
    """How far the vectors of facts were verified.

    ``facts`` is the number of vectors looked at for texts that share one, ``compared`` the size of
    the sample compared with new vectors of a local ``model``; ``reason`` says why there is none.
    """

    facts: int
    compared: int = 0
    model: str = ""
    reason: str = ""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """Source against target, document by document.

    ``superseded_by`` is the later run that brought what v1 has now, if there is one.
    ``documents`` are those of v1, ``seen`` those that the items account for. ``counts`` are items
    by outcome, as a run counts them, and "differs". ``changed`` were moved and have been edited,
    consolidated or removed since, as the log says; ``taken_back`` are gone, or as before, since a
    run was rolled back or undone; ``kept`` are those that were not moved because
    v2 has its own, or their owner was forgotten. ``platform`` counts what the platform wrote beside
    them. ``differing`` counts what differs; ``differences`` holds the first of them, by
    field. ``incomplete`` is what the source lacks, unless that was accepted. ``unreadable`` counts
    entries of the log that cannot be read, which excuse nothing. ``unfinished``: the run has not
    moved all of its items.
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
    vectors: VectorCheck | None = None

    @property
    def complete(self) -> bool:
        """Whether the run is finished, its source is complete, each document is there and was not
        taken back, nothing else is, and the log can be read."""
        return self.outcome == "verified" and not self.unfinished

    @property
    def outcome(self) -> Literal["verified", "differences", "incomplete"]:
        """The outcome, as the ledger keeps it."""
        lacks = self.taken_back or self.documents != self.seen
        if self.differing or self.unreadable or lacks:
            return "differences"
        return "incomplete" if self.incomplete else "verified"


def check_of(verification: Verification, at: datetime) -> RunCheck:
    """Return what the ledger keeps of a verification."""
    return RunCheck(
        outcome=verification.outcome,
        at=at,
        differing=verification.differing,
        taken_back=verification.taken_back,
    )


class KeptChange(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a rollback left as it is, and why."""

    target_type: str
    target_id: str
    reason: str


class RollbackReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a rollback took back, by kind of target, and what it kept because of what happened to
    it since; ``forceable`` counts what of that can be taken back by force."""

    run: MigrationRun
    removed: dict[str, int]
    kept: tuple[KeptChange, ...] = ()
    kept_total: int = 0
    forceable: int = 0
    dry_run: bool = False
