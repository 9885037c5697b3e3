"""``edenmem migrate up|status|verify|repair|rollback``: schema migrations and past runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation, end_if, invocation
from edenmem.cli.commands.data import migrate_views as views
from edenmem.cli.commands.data.v1_source import (
    AllowIncomplete,
    Database,
    Files,
    From,
    chosen_files,
    interrupted_by_sigterm,
    open_plan,
)
from edenmem.cli.commands.memory.undo import undo_run
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.progress import show_progress
from edenmem.text import many

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from edenmem.engine.migration.reports import Verification
    from edenmem.engine.migration.source import StagedPlan
    from edenmem.engine.service import MemoryService
    from edenmem.models.migration import MigrationRun

_Run = Annotated[str, typer.Argument(metavar="RUN", help="Run: ID or ID prefix.")]


def up(ctx: typer.Context, dry_run: options.DryRun = False) -> None:
    """Apply pending schema migrations. Safe to run again.

    Stop processes of older versions of edenmem first: they may not support the new schema.

    \b
    edenmem migrate up --dry-run
    edenmem migrate up
    """
    run = invocation(ctx)
    if dry_run:
        run.out.listing(
            run.service.migrations.pending(), views.STEPS, empty="no pending migrations"
        )
        return
    run.must_write("migrate up")
    taken, made = run.service.migrations.step_up()
    if run.out.data([{"steps": list(taken), "made": list(made)}], dict):
        return
    applied = [f"applied {name}" for name in taken] or ["the schema is up to date"]
    run.out.safe("\n".join([*applied, *(f"  created {each}" for each in made)]))


def status(
    ctx: typer.Context,
    run_id: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Show one run: ID or ID prefix.")
    ] = None,
) -> None:
    """Show schema migrations and runs of 'migrate v1', or one run.

    The latest run is first.

    \b
    edenmem migrate status
    """
    run = invocation(ctx)
    if run_id is not None:
        views.print_run(run, run.service.migrations.find_run(run_id))
        return
    schema = run.service.migrations.schema()
    pending = [step for step in schema if step.applied_at is None]
    runs = [] if pending else run.service.migrations.runs()
    data = {"schema": list(map(to_data, schema)), "runs": list(map(to_data, runs))}
    if run.out.data([data], dict):
        return
    run.out.listing(schema, views.STEPS)
    if pending:
        run.out.note(f"{many(len(pending), 'migration')} pending: run 'edenmem migrate up'")
        return
    run.out.line()
    run.out.listing(runs, views.RUNS, empty="no runs of 'migrate v1'")


def verify(
    ctx: typer.Context,
    run_id: _Run,
    source: From = None,
    database: Database = None,
    files: Files = None,
    allow_incomplete: AllowIncomplete = False,
) -> None:
    """Verify that every document of v1 is accounted for. Exits with 1 if not.

    \b
    edenmem migrate verify 69218c1f --from dump/eden
    """
    run = invocation(ctx)
    found = run.service.migrations.find_run(run_id)
    import msgspec

    from edenmem.engine.runtime.concurrency import in_thread

    if allow_incomplete:
        found = msgspec.structs.replace(found, incomplete_accepted=True)
    with (
        _open(run, found, source, database, files) as plan,
        show_progress(run.out) as progress,
    ):

        async def compare(service: MemoryService) -> Verification:
            return await in_thread(
                service.migrations.verify,
                plan,
                found,
                progress=lambda items: progress.step("verifying", items, max(found.total, items)),
            )

        check = run.serve(compare)
    views.print_verification(run, check)
    end_if(not check.complete)


def repair(
    ctx: typer.Context,
    run_id: _Run,
    source: From = None,
    database: Database = None,
    files: Files = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
) -> None:
    """Write again what a verification finds missing or damaged. Later edits and deletions stay.

    \b
    edenmem migrate repair 69218c1f --from dump/eden --dry-run
    """
    run = invocation(ctx)
    found = run.service.migrations.find_run(run_id)
    if not dry_run:
        run.must_write("migrate repair")
        run.confirm(f"Repair what run {found.id} wrote?", yes=yes)
    with (
        interrupted_by_sigterm(),
        _open(run, found, source, database, files) as plan,
        show_progress(run.out) as progress,
    ):
        report = run.service.migrations.repair(
            plan,
            found,
            dry_run=dry_run,
            progress=lambda items: progress.step("verifying", items, max(found.total, items)),
        )
    views.print_repair(run, report)
    end_if(not report.verification.complete)


def _open(
    run: Invocation,
    found: MigrationRun,
    source: str | None,
    database: str | None,
    files: list[str] | None,
) -> AbstractContextManager[StagedPlan]:
    """Open the source of a run with the options of the run."""
    import msgspec

    from edenmem.models.v1 import V1Options

    v1_options = msgspec.convert(found.options, V1Options)
    if database or files:
        v1_options = msgspec.structs.replace(v1_options, **chosen_files(database, files))
    return open_plan(run, source or run.service.migrations.source_of(found), v1_options)


def rollback(
    ctx: typer.Context,
    run_id: _Run,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also overwrite later changes, which stay in history."),
    ] = False,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
) -> None:
    """Roll back a run, like 'undo --run'. Lists later changes, which are kept.

    \b
    edenmem migrate rollback 69218c1f --dry-run
    """
    run = invocation(ctx)
    if not dry_run:
        run.must_write("migrate rollback")
    found = run.service.migrations.find_run(run_id).id
    reason = f"rollback of the run {found}"
    with interrupted_by_sigterm():
        undo_run(run, found, force=force, yes=yes, dry_run=dry_run, reason=reason)
