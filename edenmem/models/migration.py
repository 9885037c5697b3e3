"""Schema migrations, and runs of data migrations."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

import msgspec

from edenmem.models.changes import Actor
from edenmem.models.v1 import V1Damage


class SchemaStep(msgspec.Struct, frozen=True, kw_only=True):
    """One numbered schema migration, and its state in this database.

    ``applied_at`` is None while pending. ``no_way_back`` is the reason why the migration cannot be
    reverted, or empty.
    """

    number: int
    name: str
    applied_at: datetime | None = None
    no_way_back: str = ""


class RunState(StrEnum):
    """The state of a run. The last four are derived, not stored."""

    RUNNING = "running"  # in progress or interrupted, according to its lease
    DONE = "done"  # moved and verified, with any outcome
    FAILED = "failed"  # stopped by an error; the same command resumes
    ROLLED_BACK = "rolled_back"  # also by 'undo --run'
    PARTLY = "partly_rolled_back"  # interrupted, or without items that have changed since
    INTERRUPTED = "interrupted"  # the same command resumes
    INCOMPLETE = "incomplete"  # done, but a part of the source is missing
    SUPERSEDED = "superseded"  # done, and a later run moved newer memory of v1
    STALE = "stale"  # done, but an earlier run that it relied on was rolled back


#: States of runs with items to move or to verify.
UNFINISHED = (RunState.RUNNING, RunState.FAILED, RunState.INTERRUPTED)

#: Error of a run that was stopped from outside.
INTERRUPTION = "interrupted"

#: Time without a write to the ledger after which a run counts as interrupted.
_SILENCE = timedelta(minutes=1)


class RunProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A document of the source that was not migrated unchanged, with the reason."""

    source: str
    reason: str


class RunCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of the latest verification of a run.

    ``outcome`` is "differences" if the store differs from v1 and the log, the log has unreadable
    entries, or a rollback or undo removed items (``taken_back``); "incomplete" if only a part of
    the source is missing. ``state`` is a hash of what was compared (the source, the memory of
    ``agents`` in the store, and the log) if all of it is accounted for.
    """

    outcome: Literal["verified", "differences", "incomplete"]
    at: datetime
    differing: int = 0
    taken_back: int = 0
    agents: tuple[str, ...] = ()
    state: str = ""


class MigrationRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a data migration.

    ``source`` is a label without secrets; ``source`` and ``options`` identify runs of the same
    data. ``documents`` are counts of source documents by collection, ``results`` counts by result:
    "used", "left_behind" or "bad". ``done`` is the number of finished items of ``total``;
    ``counts`` are items by outcome. ``resumed`` counts resumptions. ``problems`` holds only the
    first ones. ``seconds`` is the working time of all processes. ``undo_runs`` are runs that undid
    or redid this run. ``incomplete`` lists missing or unreadable parts of the source,
    ``incomplete_accepted`` whether the operator accepts them. A run is done after verification;
    ``verification`` is the latest outcome.
    """

    id: str
    source: str
    actor: Actor
    started_at: datetime
    updated_at: datetime
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    kind: str = "v1"
    state: RunState = RunState.RUNNING
    documents: dict[str, int] = msgspec.field(default_factory=dict)
    resumed: int = 0
    done: int = 0
    total: int = 0
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    problems: tuple[RunProblem, ...] = ()
    finished_at: datetime | None = None
    seconds: float = 0.0
    error: str = ""
    undo_runs: tuple[str, ...] = ()
    incomplete: tuple[V1Damage, ...] = ()
    incomplete_accepted: bool = False
    verification: RunCheck | None = None
    results: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def lacks_input(self) -> bool:
        """Check whether the source is incomplete, and not accepted."""
        return bool(self.incomplete) and not self.incomplete_accepted


def find_successor(run: MigrationRun, runs: Sequence[MigrationRun]) -> MigrationRun | None:
    """Return the latest run that replaced this one.

    A replacing run read the same source for at least the same agents, and moved items.
    """
    own = set(run.options.get("agents") or ())
    later = [
        other
        for other in runs
        if (other.source, other.kind, other.state) == (run.source, run.kind, RunState.DONE)
        and (other.started_at, other.id) > (run.started_at, run.id)
        and (other.counts.get("migrated") or other.counts.get("merged"))
        and (not other.options.get("agents") or (own and own <= set(other.options["agents"])))
    ]
    return max(later, key=lambda other: (other.started_at, other.id), default=None)


def is_stale(run: MigrationRun, runs: Sequence[MigrationRun]) -> bool:
    """Check whether an earlier run of the source was rolled back after this run's verification."""
    if run.verification is None:
        return False
    at = run.verification.at
    return any(
        (other.source, other.kind) == (run.source, run.kind)
        and other.state in (RunState.ROLLED_BACK, RunState.PARTLY)
        and (other.started_at, other.id) < (run.started_at, run.id)
        and other.updated_at > at
        for other in runs
    )


def tell_state(run: MigrationRun, runs: Sequence[MigrationRun], now: datetime) -> RunState:
    """Return the state of a run, given the other runs."""
    if run.state is RunState.RUNNING and now - run.updated_at > _SILENCE:
        return RunState.INTERRUPTED
    if run.state is RunState.FAILED and run.error == INTERRUPTION:
        return RunState.INTERRUPTED
    if run.state is not RunState.DONE:
        return run.state
    if find_successor(run, runs) is not None:
        return RunState.SUPERSEDED
    if is_stale(run, runs):
        return RunState.STALE
    return RunState.INCOMPLETE if run.lacks_input else RunState.DONE
