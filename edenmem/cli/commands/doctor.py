"""``edenmem doctor``: look at what edenmem stands on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.asking import confirm
from edenmem.cli.data import to_data
from edenmem.cli.framework import Command, single
from edenmem.cli.invocation import Invocation, invocation
from edenmem.cli.tables import Column
from edenmem.cli.times import parse_duration
from edenmem.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from edenmem.engine.atlas_check import AtlasReport, CheckStep

app = single()


@app.command(cls=Command)
def doctor(
    ctx: typer.Context,
    atlas: Annotated[
        bool,
        typer.Option("--atlas", help="Try search on the configured cluster, in a scratch place."),
    ] = False,
    timeout: Annotated[
        str,
        typer.Option("--timeout", metavar="TIME", help="Wait no longer for its indexes: 90s, 10m."),
    ] = "15m",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Try on your own cluster what search relies on.

    --atlas makes a collection of its own with two search indexes, searches it in every way that
    edenmem does, removes it, and tells what it saw. Your collections are not touched. Exit 1 if
    something is not as edenmem needs it.

    \b
    edenmem doctor --atlas --uri "mongodb+srv://user@cluster.example/eden"
    """
    run = invocation(ctx)
    if not atlas:
        raise UsageError("what to look at is missing", hint="this version knows --atlas")
    seconds = parse_duration(timeout, "--timeout").total_seconds()
    location = run.store.info().location
    if not confirm(
        f"Make a scratch collection and two search indexes in {location}?", yes=yes, can_look=False
    ):
        run.out.note("nothing was tried")
        return
    from edenmem.engine.atlas_check import AtlasCheck

    report = AtlasCheck(
        run.store,
        analyzer=run.settings.search.analyzer,
        timeout=seconds,
        tell=lambda name: run.out.progress(f"trying: {name}"),
    ).run()
    _tell(run, report)
    if not report.passed:
        raise typer.Exit(ExitCode.SOME_FAILED)


_COLUMNS: list[Column[CheckStep]] = [
    Column("tried", lambda step: step.name),
    Column("outcome", lambda step: step.outcome),
    Column("seconds", lambda step: f"{step.seconds:.1f}", "number"),
    Column("seen", lambda step: step.seen, "text"),
]


def _tell(run: Invocation, report: AtlasReport) -> None:
    if run.out.is_data:
        run.out.objects([{**to_data(report), "passed": report.passed}])
        return
    run.out.fields([("store", report.location), ("server", report.server_version)])
    run.out.listing(report.steps, _COLUMNS)
    failed = [step for step in report.steps if step.outcome == "failed"]
    for step in failed:
        run.out.indented(f"{step.name}: ", step.seen)
    if not report.removed:
        run.out.note(f"drop it by hand: the collection {report.collection}")
    run.out.line(f"{len(failed)} failed" if failed else "everything is as edenmem needs it")
