"""What is known of migrations: the steps of our own schema, and the runs that brought data here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

import msgspec

from edenmem.models.changes import Actor
from edenmem.models.v1 import V1Damage


class SchemaStep(msgspec.Struct, frozen=True, kw_only=True):
    """One numbered migration of our own schema, and whether this database has had it.

    ``applied_at`` None: it is pending. ``no_way_back`` says why it cannot be taken back; empty: it
    can.
    """

    number: int
    name: str
    applied_at: datetime | None = None
    no_way_back: str = ""


class RunState(StrEnum):
    """How far a run is. The last four are told, not kept: they follow from the rest."""

    RUNNING = "running"  # at work, or cut off: its lease tells which
    DONE = "done"  # moved and verified, with whatever outcome
    FAILED = "failed"  # stopped by an error; the same command goes on where it stopped
    ROLLED_BACK = "rolled_back"
    UNDONE = "undone"  # rolled back by 'undo --run'
    PARTLY = "partly_rolled_back"  # some of it was changed since and stayed, or it was cut off
    INTERRUPTED = "interrupted"  # cut off: the same command goes on where it stopped
    INCOMPLETE = "incomplete"  # done, but a part of its source is missing
    SUPERSEDED = "superseded"  # done, and a later run brought what v1 has had since
    STALE = "stale"  # done, and an earlier run, whose memory it relied on, was taken back since


#: States of which nothing is left in the store.
TAKEN_BACK = (RunState.ROLLED_BACK, RunState.UNDONE)

#: States of a run that has not moved all of its items, or was not verified yet.
UNFINISHED = (RunState.RUNNING, RunState.FAILED, RunState.INTERRUPTED)

#: What a run that was stopped from outside says of it.
INTERRUPTION = "interrupted"

#: A run that has not written to the ledger for so long is not at work any more.
_SILENCE = timedelta(minutes=1)


class RunProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Something of the source that was not taken over as it is: which document, and why."""

    source: str
    reason: str


class RunCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of the latest verification of a run.

    ``outcome`` is "differences" where the store differs from what v1 and the log say, the log has
    entries that cannot be read, or a rollback or undo took items away (``taken_back``);
    "incomplete" where nothing differs and a part of the source is missing.
    """

    outcome: Literal["verified", "differences", "incomplete"]
    at: datetime
    differing: int = 0
    taken_back: int = 0


class MigrationRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a migration of data.

    ``source`` is for people and has no secrets in it; with ``options`` it says whether another run
    is of the same thing. ``documents`` are those of the source by collection, ``fates`` the same
    documents by what becomes of them: "used", "left_behind" or "bad". ``last_key`` is the
    key of the last item that is done, ``done`` how many of ``total`` items; ``counts`` are items by
    outcome. ``resumed`` counts how often the run went on after it was cut off. ``problems`` holds
    the first of them only. ``seconds`` is the time that all its processes were at work.
    ``undo_runs`` are the runs of commands that took it back, or made it again. ``incomplete`` is
    what of the source was missing or could not be read, ``incomplete_accepted`` whether the person
    calls it complete all the same. A run is done when it was verified; ``verification`` is the
    latest outcome. ``names_taken`` counts accounts that could not be added because others have
    their usernames.
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
    last_key: str = ""
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
    names_taken: int = 0
    fates: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def lacks_input(self) -> bool:
        """Whether its source is incomplete, and nobody has accepted that."""
        return bool(self.incomplete) and not self.incomplete_accepted


def find_successor(run: MigrationRun, runs: Sequence[MigrationRun]) -> MigrationRun | None:
    """Return the latest of the runs that took the place of this one: it read the same source, for
    the same agents or more, and moved something."""
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
    """Whether an earlier run of the same source was taken back after this one was verified."""
    if run.verification is None:
        return False
    at = run.verification.at
    return any(
        (other.source, other.kind) == (run.source, run.kind)
        and other.state in (*TAKEN_BACK, RunState.PARTLY)
        and (other.started_at, other.id) < (run.started_at, run.id)
        and other.updated_at > at
        for other in runs
    )


def tell_state(run: MigrationRun, runs: Sequence[MigrationRun], now: datetime) -> RunState:
    """Return the state of a run in the light of the others."""
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
