"""``edenmem migrate up|down|status|verify|rollback``: the schema's steps, and runs of the past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.commands.data import migrate_views as views
from edenmem.cli.commands.data.v1_source import From, open_plan
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.progress import show_progress
from edenmem.cli.terminal.prompts import confirm
from edenmem.errors import AmbiguousReference, ConflictError, ExitCode, NotFoundError
from edenmem.models.migration import MigrationRun

_Run = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run, or its beginning.")]


def up(ctx: typer.Context, dry_run: options.DryRun = False) -> None:
    """Take the steps of the schema that this store has not had. Safe to run again.

    Processes of an older edenmem may not be able to use a SQLite file afterwards: stop them first.

    \b
    edenmem migrate up --dry-run
    edenmem migrate up
    """
    run = invocation(ctx)
    if dry_run:
        pending = [step for step in run.store.migrations.schema() if step.applied_at is None]
        run.out.listing(pending, views.STEPS, empty="nothing is pending")
        return
    run.must_write("migrate up")
    taken = run.store.migrations.migrate_up()
    made = run.store.database.initialise()  # indexes that came with the steps
    _print_steps(run, taken, "took", "the schema is up to date already", also=made)


def down(
    ctx: typer.Context,
    to: Annotated[int, typer.Argument(metavar="NUMBER", help="The last step that stays.")],
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
) -> None:
    """Take steps of the schema back, for an older edenmem. What they added is lost.

    \b
    edenmem migrate down 9 --dry-run
    """
    run = invocation(ctx)
    steps_back = [
        s for s in reversed(run.store.migrations.schema()) if s.applied_at and s.number > to
    ]
    stuck = next((step for step in steps_back if step.no_way_back), None)
    if stuck is not None:
        raise ConflictError(f"step {stuck.name} has no way back: {stuck.no_way_back}")
    if dry_run:
        run.out.listing(steps_back, views.STEPS, empty="there is nothing to take back")
        return
    run.must_write("migrate down")
    if not confirm(f"Take {len(steps_back)} steps of the schema back?", yes=yes):
        run.out.note("nothing was changed")
        return
    _print_steps(
        run, run.store.migrations.migrate_down(to), "took back", "there was nothing to take back"
    )


def _print_steps(
    run: Invocation, names: Sequence[str], verb: str, nothing: str, *, also: Sequence[str] = ()
) -> None:
    def show() -> None:
        for name in names:
            run.out.line(f"{verb} {name}")
        if not names:
            run.out.line(nothing)
        for made in also:
            run.out.safe(f"  created {made}")

    run.out.report([{"steps": list(names), "made": list(also)}], show, data=dict)


def status(
    ctx: typer.Context,
    run_id: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Show one run: its id or a beginning.")
    ] = None,
) -> None:
    """The steps of the schema and the runs of migrations, latest first; or one run.

    \b
    edenmem migrate status
    """
    run = invocation(ctx)
    if run_id is not None:
        views.print_run(run, _run_of(run, run_id))
        return
    schema = run.store.migrations.schema()
    pending = [step for step in schema if step.applied_at is None]
    runs = [] if pending else run.store.migrations.migration_runs()

    def show() -> None:
        run.out.listing(schema, views.STEPS)
        if pending:
            run.out.note(f"{len(pending)} steps are pending: 'edenmem migrate up' takes them")
            return
        run.out.line()
        run.out.listing(runs, views.RUNS, empty="no migration was run")

    data = {"schema": list(map(to_data, schema)), "runs": list(map(to_data, runs))}
    run.out.report([data], show, data=dict)


def verify(ctx: typer.Context, run_id: _Run, source: From = None) -> None:
    """Look at source and target again: is each document of v1 accounted for? Exit 1 if not.

    \b
    edenmem migrate verify 69218c1f --from dump/eden
    """
    run = invocation(ctx)
    found = _run_of(run, run_id)
    import msgspec

    from edenmem.engine.migration.verification import verify as verified
    from edenmem.models.v1 import V1Options

    v1_options = msgspec.convert(found.options, V1Options)
    with (
        open_plan(run, source or _source_of(run, found), v1_options) as plan,
        show_progress(run.out) as progress,
    ):
        check = verified(
            run.store,
            plan,
            found,
            tell=lambda items: progress.step("verifying", items, max(found.total, items)),
        )
    views.print_verification(run, check)
    if not check.complete:
        raise typer.Exit(ExitCode.SOME_FAILED)


def rollback(
    ctx: typer.Context,
    run_id: _Run,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also what was changed since; later states stay in history."),
    ] = False,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
) -> None:
    """Take back what a run made, as 'undo --run' does. What was changed since is kept, and listed.

    \b
    edenmem migrate rollback 69218c1f --dry-run
    """
    run = invocation(ctx)
    found = _run_of(run, run_id)
    from edenmem.engine.migration.rollback import roll_back

    if not dry_run:
        run.must_write("migrate rollback")
        if not confirm(f"Take back what the run {found.id} made ({found.done:,} items)?", yes=yes):
            run.out.note("nothing was changed")
            return
    with show_progress(run.out) as progress:
        report = roll_back(
            run.runtime,
            found.id,
            force=force,
            dry_run=dry_run,
            tell=lambda done: progress.step("taking back", done, max(found.done, done)),
        )
    views.print_rollback(run, report, forced=force)
    if report.kept_total:
        raise typer.Exit(ExitCode.SOME_FAILED)


def _run_of(run: Invocation, text: str) -> MigrationRun:
    """The run with this id or beginning of an id."""
    found = [
        each for each in run.store.migrations.migration_runs() if each.id.startswith(text.lower())
    ]
    if not found:
        raise NotFoundError(
            f"there is no run {text!r}", hint="'edenmem migrate status' lists those there are"
        )
    if len(found) > 1:
        raise AmbiguousReference("run", text, [f"{each.id}  {each.source}" for each in found])
    return found[0]


def _source_of(run: Invocation, found: MigrationRun) -> str | None:
    """Where the run read from; None if that is the configured store, whose URI has credentials
    that the ledger has not. Another database of the same server is another source."""
    location = run.store.database.info().location
    configured = location == found.source or location.startswith(f"{found.source} (")
    return None if configured else found.source
