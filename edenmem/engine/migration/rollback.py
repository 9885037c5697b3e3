"""The way back of a migration: the undo of its run, and what the ledger says of it.

Whichever command takes a run back, and whichever makes it again, the ledger knows: the run is
rolled back, or partly, and what was taken back can be migrated again. While that is at work, no
migration is. A process that is killed in between leaves the run as partly rolled back; the same
command goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from edenmem.engine.history.undo import PAGE, Undoer, UndoOutcome, UndoStep, chains_of
from edenmem.engine.migration.reports import KeptChange, RollbackReport
from edenmem.engine.migration.run import hold_lease
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import NotFoundError
from edenmem.models.migration import MigrationRun, RunState
from edenmem.store.protocol.store import Store, batched

_NAMED = 1000
#: The action of an entry about an agent that neither made nor removed it.
_SWITCHES = "set_agent_toggles"
#: Entries after which progress is told.
_TELL = 100


def undo_run(
    runtime: Runtime,
    run_id: str,
    *,
    force: bool = False,
    dry_run: bool = False,
    reason: str = "",
    whole: RunState = RunState.UNDONE,
) -> Iterator[UndoStep]:
    """Take back all that a run changed, newest first; what became of each entry. Blocks.

    See `Undoer.undo_run`. If the run is a migration, or took one back, or made it again, the
    ledger says afterwards how much of the migration there is: ``whole`` says how all of it went.

    Raises:
        ConflictError: the run is that of a migration, and a migration is at work.
        StoreError: the database cannot be used; the same call goes on.
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
    """Return the migration that a run is, took back, or made again."""
    runs = store.migrations.migration_runs()
    return next((run for run in runs if run_id in (run.id, *run.undo_runs)), None)


def roll_back(
    runtime: Runtime,
    run_id: str,
    *,
    force: bool = False,
    dry_run: bool = False,
    tell: Callable[[int], None] = lambda changes: None,
) -> RollbackReport:
    """Take a migration back, and count what went and what stayed. Blocks.

    Raises:
        ConflictError: a migration is at work.
        NotFoundError: there is no such run in the ledger.
        StoreError: the database cannot be used; the same call goes on.
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
    for looked, step in enumerate(steps, 1):
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
        if looked % _TELL == 0:
            tell(looked)
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
        raise NotFoundError(f"there is no run {run_id}", hint="'edenmem migrate status' lists them")
    return run


def _begin(runtime: Runtime, run: MigrationRun) -> MigrationRun:
    """Note that the run is being taken back, or made again, and by which run."""
    assert runtime.actor.run_id is not None
    by = tuple(dict.fromkeys((*run.undo_runs, runtime.actor.run_id)))
    run = msgspec.structs.replace(
        run, state=RunState.PARTLY, undo_runs=by, updated_at=runtime.clock()
    )
    runtime.store.migrations.put_migration_run(run)
    return run


def _state_after(outcomes: Counter[UndoOutcome], before: RunState, whole: RunState) -> RunState:
    """Return the state of a run after all that could be taken back was."""
    if not outcomes[UndoOutcome.REFUSED]:
        return whole
    return RunState.PARTLY if outcomes[UndoOutcome.DONE] else before


def _state_in_log(store: Store, run: MigrationRun) -> RunState:
    """Return the state of a run by how many of its changes are in force."""
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
