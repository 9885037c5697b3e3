"""Operate migrations: schema steps, runs, verification and rollback.

A rollback is the undo of a run. The ledger records every undo and redo of a run, by whichever
command, and reverted items can be migrated again. The migration lease is held meanwhile. A process
killed in between leaves the run partly rolled back; the same command resumes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from edenmem.engine.embeddings.status import find_local_embedder
from edenmem.engine.history.undo import PAGE, Undoer, UndoOutcome, UndoStep, chains_of
from edenmem.engine.migration.items import V1Plan
from edenmem.engine.migration.planning import make_plan
from edenmem.engine.migration.reports import (
    KeptChange,
    MigrationReport,
    RollbackReport,
    RunOptions,
    Verification,
    check_of,
)
from edenmem.engine.migration.run import RunProgress, V1Runner, hold_lease
from edenmem.engine.migration.source import Progress, StagedPlan
from edenmem.engine.migration.verification import verify
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.references import Resolver
from edenmem.errors import AmbiguousReference, ConflictError, NotFoundError
from edenmem.models.migration import MigrationRun, RunState, SchemaStep, tell_state
from edenmem.models.v1 import V1Options
from edenmem.store.protocol.store import Store, batched

_NAMED = 1000
_SWITCHES = "set_agent_toggles"
#: Number of entries between progress reports.
_PROGRESS = 100


class Migrations:
    """The schema of a store and its migrations from v1. Blocks, except `run`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self.schema = runtime.store.migrations.schema
        self.step_down = runtime.store.migrations.migrate_down
        self.plan = partial(make_plan, runtime)
        self.roll_back = partial(roll_back, runtime)
        self.source_of = partial(source_of, runtime.store)

    # -- the schema --------------------------------------------------------------------------

    def pending(self) -> list[SchemaStep]:
        """Return the pending steps of the schema."""
        return [step for step in self.schema() if step.applied_at is None]

    def step_up(self) -> tuple[Sequence[str], Sequence[str]]:
        """Apply the pending steps; return their names and what else was created."""
        applied = self._store.migrations.migrate_up()
        return applied, self._store.database.initialize()  # indexes of the new steps

    def steps_down(self, to: int) -> list[SchemaStep]:
        """Return the applied steps after step ``to``, latest first.

        Raises:
            ConflictError: one of them is irreversible.
        """
        steps = [step for step in self.schema()[::-1] if step.applied_at and step.number > to]
        for step in steps:
            if step.no_way_back:
                raise ConflictError(f"step {step.name} is irreversible: {step.no_way_back}")
        return steps

    def runs(self) -> list[MigrationRun]:
        """Return all runs with their current states, latest first."""
        runs, now = self._store.migrations.migration_runs(), self._runtime.clock()
        return [msgspec.structs.replace(run, state=tell_state(run, runs, now)) for run in runs]

    # -- from v1 -----------------------------------------------------------------------------

    def open_source(
        self, location: str | None, options: V1Options, *, progress: Progress | None = None
    ) -> StagedPlan:
        """Read v1 memory and stage it; see `factory.open_v1_plan`."""
        from edenmem.engine.factory import open_v1_plan

        exists = self._store.database.info().initialized
        return open_v1_plan(
            self._runtime.settings,
            location,
            options,
            users=self._store.host.users() if exists else (),
            find_agent=self._find_agent if exists else None,
            progress=progress,
        )

    def _find_agent(self, name: str) -> str:
        return Resolver(self._store).agent(name).id

    async def run(
        self, plan: V1Plan, options: RunOptions, *, progress: RunProgress
    ) -> MigrationReport:
        """Move all items and verify them; see `V1Runner.run`."""
        return await V1Runner(self._runtime, plan, options).run(progress=progress)

    def verify(
        self,
        plan: V1Plan,
        run: MigrationRun,
        *,
        progress: Callable[[int], None] = lambda items: None,
    ) -> Verification:
        """Compare a run with its source, and record the outcome in the ledger; see `verify`.

        The outcome is not recorded for an unfinished or partly reverted run.
        """
        embedder = find_local_embedder(self._runtime)
        found = verify(self._store, plan, run, embedder=embedder, progress=progress)
        kept = self._store.migrations.migration_run(run.id)
        is_done = kept is not None and kept.state is RunState.DONE
        if kept is not None and is_done and not self._runtime.settings.store.read_only:
            check = check_of(found, self._runtime.clock())
            kept = msgspec.structs.replace(kept, verification=check)
            self._store.migrations.put_migration_run(kept)
        return found

    def find_run(self, text: str) -> MigrationRun:
        """Return the run with this ID or ID prefix.

        Raises:
            NotFoundError: there is none.
            AmbiguousReference: several IDs have this prefix.
        """
        found = [each for each in self.runs() if each.id.startswith(text.lower())]
        if not found:
            raise _unknown_run(text)
        if len(found) > 1:
            raise AmbiguousReference("run", text, [f"{each.id}  {each.source}" for each in found])
        return found[0]


def source_of(store: Store, run: MigrationRun) -> str | None:
    """Return the source of a run; None if that is the store itself.

    The ledger does not have the credentials in the store's URI. Another database of the same
    server is another source.
    """
    location = store.database.info().location
    is_own = location == run.source or location.startswith(f"{run.source} (")
    return None if is_own else run.source


# -- rollback -----------------------------------------------------------------------------------


def undo_run(
    runtime: Runtime,
    run_id: str,
    *,
    force: bool = False,
    dry_run: bool = False,
    reason: str = "",
    whole: RunState = RunState.UNDONE,
) -> Iterator[UndoStep]:
    """Undo all changes of a run, newest first, and yield the outcome of each entry. Blocks.

    See `Undoer.undo_run`. If the run is a migration, or the undo or redo of one, the ledger gets
    the new state of the migration: ``whole`` if all of it was reverted.

    Raises:
        ConflictError: the run belongs to a migration, and another migration is running.
        StoreError: the database cannot be used; the same call resumes.
    """
    runtime = runtime.for_run()
    steps = Undoer(runtime).undo_run(run_id, force=force, dry_run=dry_run, reason=reason)
    found = None if dry_run else migration_of(runtime.store, run_id)
    if found is None:
        yield from steps
        return
    with hold_lease(runtime):
        begun = _begin(runtime, found)
        outcomes: Counter[UndoOutcome] = Counter()
        for step in steps:
            outcomes[step.outcome] += 1
            yield step
        if run_id == found.id:
            state = _state_after(outcomes, found.state, whole)
        else:
            state = _state_in_log(runtime.store, begun)
        now = runtime.clock()
        runtime.store.migrations.put_migration_run(
            msgspec.structs.replace(begun, state=state, updated_at=now, finished_at=now)
        )


def migration_of(store: Store, run_id: str) -> MigrationRun | None:
    """Return the migration that a run executed, undid or redid."""
    runs = store.migrations.migration_runs()
    return next((run for run in runs if run_id in (run.id, *run.undo_runs)), None)


def roll_back(
    runtime: Runtime,
    run_id: str,
    *,
    force: bool = False,
    dry_run: bool = False,
    progress: Callable[[int], None] = lambda changes: None,
) -> RollbackReport:
    """Roll a migration back, and count the reverted and the kept changes. Blocks.

    Raises:
        ConflictError: a migration is running.
        NotFoundError: the ledger does not have this run.
        StoreError: the database cannot be used; the same call resumes.
    """
    run = _run(runtime.store, run_id)
    removed: Counter[str] = Counter()
    kept: list[KeptChange] = []
    kept_total = forceable = 0
    reason = f"rollback of the run {run_id}"
    steps = undo_run(
        runtime,
        run_id,
        force=force,
        dry_run=dry_run,
        reason=reason,
        whole=RunState.ROLLED_BACK,
    )
    for count, step in enumerate(steps, 1):
        entry = step.entry
        if step.outcome in (UndoOutcome.DONE, UndoOutcome.PLANNED):
            removed["switch" if entry.action == _SWITCHES else entry.target_type] += 1
        elif step.outcome is UndoOutcome.REFUSED:
            kept_total += 1
            forceable += step.forceable
            if len(kept) < _NAMED:
                kept.append(
                    KeptChange(
                        target_type=entry.target_type, target_id=entry.target_id, reason=step.why
                    )
                )
        if count % _PROGRESS == 0:
            progress(count)
    return RollbackReport(
        run=run if dry_run else _run(runtime.store, run_id),
        removed=dict(removed),
        kept=tuple(kept),
        kept_total=kept_total,
        forceable=forceable,
        dry_run=dry_run,
    )


def _run(store: Store, run_id: str) -> MigrationRun:
    run = store.migrations.migration_run(run_id)
    if run is None:
        raise _unknown_run(run_id)
    return run


def _unknown_run(text: str) -> NotFoundError:
    return NotFoundError(
        f"unknown run: {text!r}", hint="list the runs with 'edenmem migrate status'"
    )


def _begin(runtime: Runtime, run: MigrationRun) -> MigrationRun:
    """Record that the current run begins to undo or redo a migration."""
    assert runtime.actor.run_id is not None
    by = tuple(dict.fromkeys((*run.undo_runs, runtime.actor.run_id)))
    run = msgspec.structs.replace(
        run,
        state=RunState.PARTLY,
        undo_runs=by,
        updated_at=runtime.clock(),
        finished_at=None,
        verification=None,
    )
    runtime.store.migrations.put_migration_run(run)
    return run


def _state_after(outcomes: Counter[UndoOutcome], before: RunState, whole: RunState) -> RunState:
    """Return the state of a run after its undo."""
    if not outcomes[UndoOutcome.REFUSED]:
        return whole
    return RunState.PARTLY if outcomes[UndoOutcome.DONE] else before


def _state_in_log(store: Store, run: MigrationRun) -> RunState:
    """Return the state of a run by the number of its changes in force."""
    in_force = undone = 0
    for entries in batched(store.log.audit(run_id=run.id), PAGE):
        for chain in chains_of(store, entries).values():
            in_force += len(chain) % 2
            undone += 1 - len(chain) % 2
    if in_force and undone:
        return RunState.PARTLY
    if undone:
        return RunState.UNDONE
    return RunState.DONE if run.done >= run.total else RunState.FAILED
