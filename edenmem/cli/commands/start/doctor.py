"""``edenmem doctor``: look at what edenmem stands on, and mend what can be mended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import agent_id_of
from edenmem.cli.app.framework import Command, single
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.terminal.progress import show_progress
from edenmem.cli.terminal.prompts import confirm
from edenmem.cli.terminal.times import parse_duration
from edenmem.errors import ExitCode, UsageError
from edenmem.settings.paths import is_mongodb

if TYPE_CHECKING:
    from edenmem.engine.doctor.report import DoctorReport

app = single()


@app.command(cls=Command)
def doctor(
    ctx: typer.Context,
    check: Annotated[
        list[str] | None,
        typer.Option("--check", metavar="NAME", help="Only this check; may be repeated."),
    ] = None,
    agent: options.Agent = None,
    online: Annotated[
        bool, typer.Option("--online", help="Also ask the models something (it may cost).")
    ] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Mend what is safe to mend, after showing the plan.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --fix: show the plan, and mend nothing.")
    ] = False,
    listed: Annotated[
        bool, typer.Option("--list", help="What is checked, and what --fix mends.")
    ] = False,
    atlas: Annotated[
        bool,
        typer.Option("--atlas", help="Try search on the configured cluster, in a scratch place."),
    ] = False,
    timeout: Annotated[
        str,
        typer.Option("--timeout", metavar="TIME", help="With --atlas: how long to wait: 90s, 10m."),
    ] = "15m",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Examine the store and all that is in it, and mend what is safe to mend.

    Nothing is changed without --fix. With it, the plan is shown first, and what is mended is in
    'edenmem log'. --quiet says nothing unless something is wrong, which suits cron.

    Exit 0: all is well, notes aside. 1: there are warnings or problems. 5: the database cannot be
    reached.

    --atlas tries on your own cluster what search relies on: it makes a collection of its own with
    two search indexes, searches it in every way that edenmem does, removes it, and tells what it
    saw. Your collections are not touched.

    \b
    edenmem doctor
    edenmem doctor --check buffers --check hashes --agent mira
    edenmem doctor --fix --dry-run
    edenmem doctor --atlas --uri "mongodb+srv://user@cluster.example/eden"
    """
    run = invocation(ctx)
    if dry_run and not fix:
        raise UsageError("--dry-run belongs to --fix", hint="without --fix nothing is changed")
    if atlas and (check or agent or online or fix or listed):
        raise UsageError("--atlas goes with none of the other checks")
    if listed:
        from edenmem.cli.commands.start.doctor_views import print_catalogue

        print_catalogue(run)
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
    from edenmem.engine.doctor.catalogue import select_checks

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
            if dry_run or not confirm("Mend this?", yes=yes):
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
                run.out.note("nothing of this is mended by itself")
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
            hint="name the cluster: 'edenmem doctor --atlas --uri URI'",
        )
    location = run.service.setup.location
    if not confirm(
        f"Make a scratch collection and two search indexes in {location}?", yes=yes, can_look=False
    ):
        run.out.note("nothing was tried")
        return
    report = run.service.doctor.try_atlas(
        timeout=seconds, progress=lambda name: run.out.progress(f"trying: {name}")
    )
    print_atlas(run, report)
    if not report.passed:
        raise typer.Exit(ExitCode.SOME_FAILED)
