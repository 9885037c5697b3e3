"""``edenmem doctor``: check the store and its memory, and repair them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import agent_id_of
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.terminal.progress import show_progress
from edenmem.cli.terminal.prompts import confirm
from edenmem.cli.terminal.times import parse_duration
from edenmem.errors import ExitCode, UsageError
from edenmem.settings.paths import is_mongodb

if TYPE_CHECKING:
    from edenmem.engine.doctor.report import DoctorReport


def doctor(
    ctx: typer.Context,
    check: Annotated[
        list[str] | None,
        typer.Option("--check", metavar="NAME", help="Only this check (repeatable)."),
    ] = None,
    agent: options.Agent = None,
    online: Annotated[
        bool, typer.Option("--online", help="Also call the models (may cost).")
    ] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair what is safe, after showing the plan.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --fix: only show the plan.")
    ] = False,
    listed: Annotated[
        bool, typer.Option("--list", help="List all checks, and which ones --fix repairs.")
    ] = False,
    atlas: Annotated[
        bool,
        typer.Option(
            "--atlas",
            help="Test search on the configured Atlas cluster, in a temporary collection.",
        ),
    ] = False,
    timeout: Annotated[
        str,
        typer.Option("--timeout", metavar="TIME", help="Maximum duration of --atlas: 90s, 10m."),
    ] = "15m",
    yes: options.Yes = False,
) -> None:
    """Check the store and its memory, and make safe repairs.

    Changes nothing without --fix, which shows the plan first and logs repairs in 'edenmem log'.
    --quiet prints only warnings and problems, for cron.

    Exit codes: 0 no warnings or problems, 1 warnings or problems, 5 database unreachable.

    --atlas creates a temporary collection with two search indexes on your cluster, runs every kind
    of search that edenmem uses, and removes the collection. Other collections are not touched.

    \b
    edenmem doctor
    edenmem doctor --check buffers --check hashes --agent mira
    edenmem doctor --fix --dry-run
    edenmem doctor --atlas --uri "mongodb+srv://user@cluster.example/eden"
    """
    run = invocation(ctx)
    if dry_run and not fix:
        raise UsageError("--dry-run needs --fix", hint="without --fix nothing is changed")
    if atlas and (check or agent or online or fix or listed):
        raise UsageError("--atlas excludes all other checks")
    if listed:
        from edenmem.cli.commands.start.doctor_views import print_catalog

        print_catalog(run)
    elif atlas:
        _try_atlas(run, parse_duration(timeout, "--timeout").total_seconds(), yes=yes)
    else:
        _examine(run, check or [], agent, online=online, fix=fix, dry_run=dry_run, yes=yes)


def _examine(
    run: Invocation,
    names: list[str],
    agent: str | None,
    *,
    online: bool,
    fix: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    from edenmem.cli.commands.start.doctor_views import (
        print_health,
        print_plan,
        print_repairs,
    )
    from edenmem.engine.doctor.report import select_checks

    checks = select_checks(names)
    agent_id = agent_id_of(run, agent)
    with (
        show_progress(run.out) as progress,
        run.service.doctor.open(
            checks, agent_id=agent_id, files=run.loaded.files, progress=progress.say
        ) as visit,
    ):
        report = visit.examine(online=online)
        plan = visit.plan(report)
        progress.pause()
        if fix and plan.repairs:
            print_plan(run, plan)
            if dry_run or not confirm("Repair this?", yes=yes):
                if run.out.is_data:
                    print_health(run, report, detailed=bool(names), repairs=plan)
                run.out.note("nothing was changed")
                raise typer.Exit(_code(report))
            done = visit.repair(plan)
            report = visit.examine_again(report, done)
            progress.pause()
            print_repairs(run, done)
            print_health(run, report, detailed=bool(names), repairs=done)
        else:
            print_health(run, report, detailed=bool(names))
            if fix and not report.is_well:
                run.out.note("--fix repairs none of these")
    if code := _code(report):
        raise typer.Exit(code)


def _code(report: DoctorReport) -> ExitCode:
    if not report.reachable:
        return ExitCode.UNAVAILABLE
    return ExitCode.OK if report.is_well else ExitCode.SOME_FAILED


def _try_atlas(run: Invocation, seconds: float, *, yes: bool) -> None:
    from edenmem.cli.commands.start.doctor_views import print_atlas

    if not is_mongodb(run.settings.store.uri):
        raise UsageError(
            "--atlas needs a MongoDB cluster: the configured store is SQLite",
            hint="specify the cluster: edenmem doctor --atlas --uri URI",
        )
    location = run.service.setup.location
    if not confirm(
        f"Create a temporary collection and two search indexes in {location}?",
        yes=yes,
        can_look=False,
    ):
        run.out.note("nothing was tested")
        return
    report = run.service.doctor.try_atlas(
        timeout=seconds, progress=lambda name: run.out.progress(f"testing: {name}")
    )
    print_atlas(run, report)
    if not report.passed:
        raise typer.Exit(ExitCode.SOME_FAILED)
