"""Operate migrations: schema steps, runs, verification, repair and rollback.

A rollback is the undo of a run. The ledger records every undo and redo of a run, by whichever
command; the log shows what was undone, so that items can be migrated again. The migration
lease is held meanwhile. A process killed in between leaves the run partly rolled back; the same
command resumes. Changes that a rollback kept since a later run had built on them are undone once
that run is rolled back, too.

A repair takes a damaged document away first, as a change of nobody's run, and then writes what
belongs there as a change of the run, so that a rollback of the run leaves nothing of either. What
people edited or deleted stays so: the log shows what belongs in each place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial

import msgspec

from edenmem.engine.embeddings.backfill import Backfiller
from edenmem.engine.history.undo import PAGE, Undoer, UndoOutcome, UndoStep, chains_of
from edenmem.engine.migration.comparison import find_stored
from edenmem.engine.migration.deciding import removal_of, write_of
from edenmem.engine.migration.items import key_of
from edenmem.engine.migration.ledger import find_same, hold_lease, resumable
from edenmem.engine.migration.planning import make_plan
from edenmem.engine.migration.reports import (
    MigrationReport,
    RepairReport,
    RunOptions,
    Verification,
)
from edenmem.engine.migration.run import RunProgress, V1Runner
from edenmem.engine.migration.source import Progress, StagedPlan
from edenmem.engine.migration.verification import UNREADABLE, Finding, verify
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.references import Resolver
from edenmem.errors import AmbiguousReference, InputError, NotFoundError
from edenmem.models.changes import Change, ChangeSet, RepairBuffer
from edenmem.models.ids import is_id
from edenmem.models.memory import Consolidation
from edenmem.models.migration import MigrationRun, RunState, SchemaStep, tell_state
from edenmem.models.v1 import Memory, V1Options
from edenmem.store.protocol.store import Store, batched
from edenmem.store.v1.source import open_source


class Migrations:
    """The schema of a store and its migrations from v1. Blocks, except `run`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self.schema = runtime.store.migrations.schema
        self.step_down = runtime.store.migrations.migrate_down
        self.plan = partial(make_plan, runtime)
        self.source_of = partial(source_of, runtime.store)

    # -- the schema --------------------------------------------------------------------------

    def pending(self) -> list[SchemaStep]:
        """Return the pending steps of the schema."""
        return [step for step in self.schema() if step.applied_at is None]

    def step_up(self) -> tuple[Sequence[str], Sequence[str]]:
        """Apply the pending steps; return their names and what else was created."""
        applied = self._store.migrations.migrate_up()
        return applied, self._store.database.initialize()  # indexes of the new steps

    def runs(self) -> list[MigrationRun]:
        """Return all runs with their current states, latest first."""
        runs, now = self._store.migrations.migration_runs(), self._runtime.clock()
        return [msgspec.structs.replace(run, state=tell_state(run, runs, now)) for run in runs]

    # -- from v1 -----------------------------------------------------------------------------

    def open_source(
        self,
        location: str | None,
        options: V1Options,
        *,
        progress: Progress = lambda done, total: None,
    ) -> StagedPlan:
        """Read v1 memory and stage it; see `factory.open_v1_plan`."""
        from edenmem.engine.factory import open_v1_plan

        exists = self._store.database.info().initialized
        return open_v1_plan(
            self._runtime.settings,
            location,
            options,
            store=self._store if exists else None,
            find_agent=self._find_agent if exists else None,
            progress=progress,
        )

    def _find_agent(self, name: str) -> str:
        return Resolver(self._store).agent(name).id

    async def run(
        self, plan: StagedPlan, options: RunOptions, *, progress: RunProgress
    ) -> MigrationReport:
        """Move all items and verify them; see `V1Runner.run`."""
        return await V1Runner(self._runtime, plan, options).run(progress=progress)

    def find_same(self, location: str | None, options: RunOptions) -> MigrationRun | None:
        """Return the verified run that the same call would only repeat, if there is one.

        Agents are compared by ID: what a name means, the source decides, which this does not read.

        Raises:
            EdenmemError: see `open_source`.
        """
        settings = self._runtime.settings.store
        if not all(map(is_id, options.v1.agents)):
            return None
        with closing(open_source(location, settings)) as source:
            run = find_same(self._store, source, options, self._runtime.clock())
        embeds = options.embed and self._runtime.embedder is not None
        return None if embeds and Backfiller(self._runtime).status().total.stale else run

    def interrupted(self, plan: StagedPlan, options: RunOptions) -> MigrationRun | None:
        """Return the unfinished run that the same call would resume."""
        return resumable(self._store, plan.about.location, options)

    def verify(
        self,
        plan: StagedPlan,
        run: MigrationRun,
        *,
        progress: Callable[[int], None] = lambda items: None,
    ) -> Verification:
        """Compare a run with its source, and record the outcome in the ledger; see `verify`.

        The outcome is not recorded for an unfinished or partly reverted run.
        """
        found = verify(self._store, plan, run, progress=progress)
        runs = self._store.migrations.migration_runs()
        kept = next((each for each in runs if each.id == run.id), None)
        is_done = kept is not None and kept.state is RunState.DONE
        if kept is not None and is_done and not self._runtime.settings.store.read_only:
            kept = msgspec.structs.replace(kept, verification=found.check(self._runtime.clock()))
            self._store.migrations.put_migration_run(kept)
        return found

    def repair(
        self,
        plan: StagedPlan,
        run: MigrationRun,
        *,
        dry_run: bool = False,
        progress: Callable[[int], None] = lambda items: None,
    ) -> RepairReport:
        """Write again what a verification finds missing or damaged, and verify again.

        Raises:
            ConflictError: another migration is running, or the run was rolled back.
            StoreError: the database cannot be used; the same call resumes.
        """
        findings: list[Finding] = []
        check = verify(self._store, plan, run, progress=progress, findings=findings)
        wanted = [each for each in findings if each.wanted or each.key.type == "buffer"]
        repaired = Counter(each.key.type for each in wanted)
        if not dry_run:
            with hold_lease(self._runtime):
                done = [each for each in wanted if _repair(self._runtime, run, each)]
            repaired = Counter(each.key.type for each in done)
            check = self.verify(plan, run, progress=progress)
        return RepairReport(
            repaired=dict(repaired), left=check.differences, verification=check, dry_run=dry_run
        )

    def find_run(self, text: str) -> MigrationRun:
        """Return the run with this ID or ID prefix.

        Raises:
            NotFoundError: there is none.
            AmbiguousReference: several IDs have this prefix.
        """
        found = [each for each in self.runs() if each.id.startswith(text.lower())]
        if not found:
            raise NotFoundError(
                f"unknown run: {text!r}", hint="list the runs with 'edenmem migrate status'"
            )
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
) -> Iterator[UndoStep]:
    """Undo all changes of a run, newest first, and yield the outcome of each entry. Blocks.

    See `Undoer.undo_run`. If the run is a migration, or the undo or redo of one, the ledger gets
    the new state of the migration.

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
        yield from _undo(runtime, found, run_id, steps)
        for other in runtime.store.migrations.migration_runs():
            # It may have kept changes only since this run had built on them.
            if other.id != found.id and other.state is RunState.PARTLY:
                more = Undoer(runtime).undo_run(other.id, force=force, reason=reason)
                for step in _undo(runtime, other, other.id, more):
                    if step.outcome is not UndoOutcome.REFUSED:  # it was reported at its time
                        yield step


def _undo(
    runtime: Runtime, run: MigrationRun, run_id: str, steps: Iterator[UndoStep]
) -> Iterator[UndoStep]:
    """Yield the steps of an undo or redo of a migration, and keep its state in the ledger."""
    assert runtime.actor.run_id is not None
    ledger = runtime.store.migrations
    begun = msgspec.structs.replace(
        run,
        state=RunState.PARTLY,
        undo_runs=tuple(dict.fromkeys((*run.undo_runs, runtime.actor.run_id))),
        updated_at=runtime.clock(),
        finished_at=None,
        verification=None,
    )
    ledger.put_migration_run(begun)
    outcomes: Counter[UndoOutcome] = Counter()
    for step in steps:
        outcomes[step.outcome] += 1
        yield step
    if run_id != run.id:
        state = _state_in_log(runtime.store, begun)
    else:
        state = RunState.PARTLY if outcomes[UndoOutcome.REFUSED] else RunState.ROLLED_BACK
    now = runtime.clock()
    ledger.put_migration_run(
        msgspec.structs.replace(begun, state=state, updated_at=now, finished_at=now)
    )


def migration_of(store: Store, run_id: str) -> MigrationRun | None:
    """Return the migration that a run executed, undid or redid."""
    runs = store.migrations.migration_runs()
    return next((run for run in runs if run_id in (run.id, *run.undo_runs)), None)


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
        return RunState.ROLLED_BACK
    return RunState.DONE if run.done >= run.total else RunState.FAILED


# -- repair ------------------------------------------------------------------------------------

#: Why a repair takes a document away, and writes one where the item has no reason.
_REASON = "damaged, or missing without a trace in the log"


def _repair(runtime: Runtime, run: MigrationRun, finding: Finding) -> bool:
    """Repair one finding; return whether the store has what belongs there."""
    wanted, at, reason = finding.wanted, runtime.clock(), finding.reason or _REASON
    now: Memory | None = None
    if isinstance(wanted, Memory):
        try:
            now = find_stored(runtime.store, [wanted]).get(key_of(wanted))
        except UNREADABLE:
            return False  # 'doctor --fix' takes unreadable documents out of the way
    if now is not None and not _apply(runtime, None, removal_of(now, reason=_REASON, at=at)):
        return False
    if wanted is None:
        assert finding.scope is not None
        change: Change = RepairBuffer(scope=finding.scope, at=at, reason=reason)
    else:
        version = 0
        if isinstance(wanted, Consolidation):
            found = runtime.store.memory.consolidations([wanted.home])
            version = found[wanted.home].version if found else 0
        change = write_of(wanted, reason=reason, at=at, version=version)
    return _apply(runtime, run.id, change)


def _apply(runtime: Runtime, run_id: str | None, change: Change) -> bool:
    actor = msgspec.structs.replace(runtime.actor, run_id=run_id)
    context = ChangeSet(actor=actor, at=runtime.clock(), changes=(change,))
    try:
        (result,) = runtime.store.changes.apply(context)
    except InputError:
        return False
    return result.ok
