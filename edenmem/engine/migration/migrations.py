"""What an operator does about migrations: the steps of the schema, and the runs of the past."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from edenmem.engine.migration.plan import V1Plan
from edenmem.engine.migration.planning import make_plan
from edenmem.engine.migration.reports import MigrationReport, RunOptions
from edenmem.engine.migration.rollback import roll_back
from edenmem.engine.migration.run import Tell, V1Runner
from edenmem.engine.migration.source import Progress, StagedPlan
from edenmem.engine.migration.verification import verify
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import AmbiguousReference, ConflictError, NotFoundError
from edenmem.models.migration import MigrationRun, SchemaStep, tell_state
from edenmem.models.v1 import V1Options
from edenmem.store.protocol.store import Store


class Migrations:
    """The schema of one store, and its migrations from v1. Blocks, except `run`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self.schema = runtime.store.migrations.schema
        self.step_down = runtime.store.migrations.migrate_down
        self.plan = partial(make_plan, runtime)
        self.verify = partial(verify, runtime.store)
        self.roll_back = partial(roll_back, runtime)
        self.source_of = partial(source_of, runtime.store)

    # -- the schema --------------------------------------------------------------------------

    def pending(self) -> list[SchemaStep]:
        """Return the steps that the store has not had."""
        return [step for step in self.schema() if step.applied_at is None]

    def step_up(self) -> tuple[Sequence[str], Sequence[str]]:
        """Take the pending steps; their names, and what else was made."""
        taken = self._store.migrations.migrate_up()
        return taken, self._store.database.initialise()  # indexes that came with the steps

    def steps_down(self, to: int) -> list[SchemaStep]:
        """Return the steps after step ``to``, latest first.

        Raises:
            ConflictError: one of them has no way back.
        """
        steps = [step for step in self.schema()[::-1] if step.applied_at and step.number > to]
        for step in steps:
            if step.no_way_back:
                raise ConflictError(f"step {step.name} has no way back: {step.no_way_back}")
        return steps

    def runs(self) -> list[MigrationRun]:
        """Return all runs, latest first, each with the state that follows from the others too."""
        runs, now = self._store.migrations.migration_runs(), self._runtime.clock()
        return [msgspec.structs.replace(run, state=tell_state(run, runs, now)) for run in runs]

    # -- from v1 -----------------------------------------------------------------------------

    def open_source(
        self, location: str | None, options: V1Options, *, progress: Progress | None = None
    ) -> StagedPlan:
        """Read memory of v1 and lay it out; see `factory.open_v1_plan`."""
        from edenmem.engine.factory import open_v1_plan

        is_made = self._store.database.info().initialised
        return open_v1_plan(
            self._runtime.settings,
            location,
            options,
            users=self._store.host.users() if is_made else (),
            progress=progress,
        )

    async def run(self, plan: V1Plan, options: RunOptions, *, tell: Tell) -> MigrationReport:
        """Move everything, verify it, and say what became of it; see `V1Runner.run`."""
        return await V1Runner(self._runtime, plan, options).run(tell=tell)

    def find_run(self, text: str) -> MigrationRun:
        """Return the run with this id or prefix of an id.

        Raises:
            NotFoundError: there is none.
            AmbiguousReference: several ids begin so.
        """
        found = [each for each in self.runs() if each.id.startswith(text.lower())]
        if not found:
            raise NotFoundError(
                f"there is no run {text!r}", hint="'edenmem migrate status' lists those there are"
            )
        if len(found) > 1:
            raise AmbiguousReference("run", text, [f"{each.id}  {each.source}" for each in found])
        return found[0]


def source_of(store: Store, run: MigrationRun) -> str | None:
    """Return where a run read from; None if that is the store itself, whose URI has credentials
    that the ledger has not. Another database of the same server is another source."""
    location = store.database.info().location
    is_own = location == run.source or location.startswith(f"{run.source} (")
    return None if is_own else run.source
