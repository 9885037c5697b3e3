"""What is known of migrations: the steps of our own schema, and the runs that brought data here."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

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
    """How far a run is."""

    RUNNING = "running"  # at work, or cut off: its lease tells which
    DONE = "done"
    FAILED = "failed"  # stopped by an error; the same command goes on where it stopped
    ROLLED_BACK = "rolled_back"
    PARTLY = "partly_rolled_back"  # some of it was changed since and stayed, or it was cut off


class RunProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Something of the source that was not taken over as it is: which document, and why."""

    source: str
    reason: str


class MigrationRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a migration of data.

    ``source`` is for people and has no secrets in it; with ``options`` it says whether another run
    is of the same thing. ``documents`` are those of the source by collection. ``last_key`` is the
    key of the last item that is done, ``done`` how many of ``total`` items; ``counts`` are items by
    outcome. ``resumed`` counts how often the run went on after it was cut off. ``problems`` holds
    the first of them only. ``seconds`` is the time that all its processes were at work.
    ``undo_runs`` are the runs of commands that took it back, or made it again. ``incomplete`` is
    what of the source was missing or could not be read, ``incomplete_accepted`` whether the person
    calls it complete all the same.
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

    @property
    def lacks_input(self) -> bool:
        """Whether its source is incomplete, and nobody has accepted that."""
        return bool(self.incomplete) and not self.incomplete_accepted
