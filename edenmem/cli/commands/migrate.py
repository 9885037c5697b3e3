"""``edenmem migrate``: memory from v1, schema migrations, and past runs."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.commands import migrate_views as views
from edenmem.cli.commands.change import undo_run
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.output import show_progress
from edenmem.errors import EdenmemError, NotFoundError, StoreError
from edenmem.settings.paths import is_mongodb
from edenmem.text import many

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from edenmem.engine.migration.reports import (
        MigrationPlan,
        MigrationReport,
        RunOptions,
        Verification,
    )
    from edenmem.engine.migration.source import StagedPlan
    from edenmem.engine.service import MemoryService
    from edenmem.models.migration import MigrationRun
    from edenmem.models.v1 import V1Options


app = group("Migrate memory from v1, and the schema of the store.")

From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="URI|FOLDER|FILE",
        help="Source: MongoDB URI, mongodump folder, or Extended JSON or BSON file."
        "  [default: the configured MongoDB]",
    ),
]


AllowIncomplete = Annotated[
    bool,
    typer.Option(
        "--allow-incomplete",
        help="Exit 0 even if part of the input is missing or unreadable.",
    ),
]

_SOURCES = (
    "--from takes a MongoDB URI, the folder of a database in a mongodump,"
    " or an Extended JSON or BSON file"
)


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, to update the ledger and remove temporary files."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set signal handlers
        return
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def find_same(run: Invocation, source: str | None, chosen: RunOptions) -> MigrationRun | None:
    """Return the verified run that another one would only repeat, if there is one."""
    with suppress(EdenmemError):
        return run.service.migrations.find_same(_absolute(source), chosen)
    return None  # opening the source reports the error


def _absolute(source: str | None) -> str | None:
    """Make a path independent of the working folder."""
    if source is None or is_mongodb(source):
        return source
    return str(Path(source).expanduser().absolute())


def open_plan(run: Invocation, source: str | None, v1_options: V1Options) -> StagedPlan:
    """Read a source; the plan is a context manager that removes what was read."""
    try:
        with show_progress(run.out) as progress:
            return run.service.migrations.open_source(
                _absolute(source),
                v1_options,
                progress=lambda done, total: progress.step("reading", done, total),
            )
    except NotFoundError as error:
        if source is not None and not error.hint:
            error.add_hint(_SOURCES)
        raise


# -- migrate v1 ----------------------------------------------------------------------------------


@app.command("v1", cls=Command)
def v1(
    run: Invocation,
    source: From = None,
    dry_run: options.DryRun = False,
    agents: Annotated[
        list[str] | None,
        typer.Option(
            "--agent", "-a", metavar="AGENT", help="Only memory of this agent (repeatable)."
        ),
    ] = None,
    shards: Annotated[
        Literal["merge", "keep"],
        typer.Option(
            "--shards", metavar="HOW", help="merge active shards into one text, or keep them."
        ),
    ] = "merge",
    provenance: Annotated[
        bool,
        typer.Option(
            "--provenance", help="Also migrate reflections already in a text, as absorbed."
        ),
    ] = False,
    episodes: Annotated[
        Literal["leave", "keep"],
        typer.Option("--episodes", metavar="HOW", help="leave episodes behind, or keep them."),
    ] = "leave",
    on_conflict: Annotated[
        options.OnConflict,
        typer.Option(
            "--on-conflict",
            metavar="HOW",
            help="If v2 has a text of its own: keep or replace it.",
        ),
    ] = "keep",
    no_embed: Annotated[
        bool,
        typer.Option("--no-embed", help="Skip vectors; create them later with 'embed backfill'."),
    ] = False,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, max=10_000, metavar="N", help="Items per batch.")
    ] = 500,
    allow_incomplete: AllowIncomplete = False,
    yes: options.Yes = False,
) -> None:
    """Migrate memory from v1 into this store. Never writes to v1.

    An interrupted run resumes with the same command. A second run adds what is new in v1, and keeps
    what was changed here. Runs can be verified, repaired and rolled back. If part of the input is
    missing or unreadable, the rest is migrated and the exit code is 1, also with --dry-run.

    \b
    edenmem migrate v1 --from dump/eden --dry-run
    edenmem migrate v1 --from mongodb://old-host/eden --agent mira --yes
    edenmem migrate v1 --from dump/eden --shards keep --json -o run.json
    """
    from edenmem.engine.migration.reports import MigrationReport, RunOptions

    chosen = RunOptions(
        v1=_v1_options(
            run,
            shards=shards,
            provenance=provenance,
            episodes=episodes,
            agents=tuple(dict.fromkeys(agents or ())),
        ),
        on_conflict=on_conflict,
        embed=not no_embed,
        batch_size=batch_size,
        accept_incomplete=allow_incomplete,
    )
    if not dry_run and not run.service.setup.is_made:
        raise StoreError("the store does not exist yet", hint="create it with 'edenmem init'")
    if not dry_run and (same := find_same(run, source, chosen)):
        run.out.data([MigrationReport(run=same)])
        run.out.note(f"nothing to do: nothing has changed since run {same.id} was verified")
        return
    with interrupted_by_sigterm(), open_plan(run, source, chosen.v1) as plan:
        chosen = msgspec.structs.replace(chosen, v1=plan.options)
        known = {person.id for person in plan.agents()}
        if absent := [agent for agent in plan.options.agents if agent not in known]:
            run.out.note(f"no memory in the source for: {', '.join(absent)}")
        if dry_run or not yes:
            planned = _print_plan(run, plan, chosen, whole=dry_run)
        if dry_run:
            end_if(planned.incomplete and not allow_incomplete)
            return
        documents = many(sum(plan.about.totals.values()), "document")
        run.confirm(f"Migrate {documents} into {run.service.setup.location}?", yes=yes)
        made = _migrate(run, plan, chosen)
    views.print_report(run, made)
    end_if(_has_failed(made))


def _has_failed(made: MigrationReport) -> bool:
    """Return whether the run is incomplete or unverified."""
    run, check, embedding = made.run, made.verification, made.embedding
    return bool(
        run.counts.get("failed")
        or run.lacks_input
        or (embedding is not None and embedding.failed)
        or (check is not None and not check.complete)
    )


def _migrate(run: Invocation, plan: StagedPlan, chosen: RunOptions) -> MigrationReport:
    try:
        with show_progress(run.out) as progress:
            return run.serve(
                lambda service: service.migrations.run(plan, chosen, progress=progress.step)
            )
    except KeyboardInterrupt:
        stopped = run.service.migrations.interrupted(plan, chosen)
        if stopped is not None:
            again = shlex.join(["edenmem", *sys.argv[1:]])
            far = f"{stopped.done:,} of {many(stopped.total, 'item')}"
            run.out.note(f"run {stopped.id} was interrupted after {far}; to resume: {again}")
        raise


def _print_plan(
    run: Invocation, plan: StagedPlan, chosen: RunOptions, *, whole: bool
) -> MigrationPlan:
    async def make_plan(service: MemoryService) -> MigrationPlan:
        with show_progress(run.out) as progress:
            return service.migrations.plan(
                plan, chosen, progress=lambda done, total: progress.step("planning", done, total)
            )

    planned = run.serve(make_plan)
    views.print_plan(run, planned, whole=whole)
    return planned


def _v1_options(run: Invocation, **given: Any) -> V1Options:
    from edenmem.models.v1 import V1Options

    scopes = run.service.scopes.in_database().scopes
    return V1Options(
        user_words=scopes.user.word_limit,
        agent_words=scopes.agent.word_limit,
        shard_words=scopes.shard.word_limit,
        session_words=scopes.session.word_limit,
        **given,
    )


# -- the schema, and past runs -------------------------------------------------------------------

_Run = Annotated[str, typer.Argument(metavar="RUN", help="Run: ID or ID prefix.")]


@app.command("up", cls=Command)
def up(run: Invocation, dry_run: options.DryRun = False) -> None:
    """Apply pending schema migrations. Safe to run again.

    Stop processes of older versions of edenmem first: they may not support the new schema.

    \b
    edenmem migrate up --dry-run
    edenmem migrate up
    """
    if dry_run:
        run.out.listing(
            run.service.migrations.pending(), views.STEPS, empty="no pending migrations"
        )
        return
    taken, made = run.service.migrations.step_up()
    if run.out.data([{"steps": list(taken), "made": list(made)}], dict):
        return
    applied = [f"applied {name}" for name in taken] or ["the schema is up to date"]
    run.out.safe("\n".join([*applied, *(f"  created {each}" for each in made)]))


@app.command("status", cls=Command)
def status(
    run: Invocation,
    run_id: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Show one run: ID or ID prefix.")
    ] = None,
) -> None:
    """Show schema migrations and runs of 'migrate v1', or one run.

    The latest run is first.

    \b
    edenmem migrate status
    """
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


@app.command("verify", cls=Command)
def verify(
    run: Invocation,
    run_id: _Run,
    source: From = None,
    allow_incomplete: AllowIncomplete = False,
) -> None:
    """Verify that every document of v1 is accounted for. Exits with 1 if not.

    \b
    edenmem migrate verify 69218c1f --from dump/eden
    """
    found = run.service.migrations.find_run(run_id)
    from edenmem.engine.runtime.concurrency import in_thread

    if allow_incomplete:
        found = msgspec.structs.replace(found, incomplete_accepted=True)
    with (
        _open_run(run, found, source) as plan,
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


@app.command("repair", cls=Command)
def repair(
    run: Invocation,
    run_id: _Run,
    source: From = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
) -> None:
    """Write again what a verification finds missing or damaged. Later edits and deletions stay.

    \b
    edenmem migrate repair 69218c1f --from dump/eden --dry-run
    """
    found = run.service.migrations.find_run(run_id)
    run.confirm(f"Repair what run {found.id} wrote?", yes=yes or dry_run)
    with (
        interrupted_by_sigterm(),
        _open_run(run, found, source) as plan,
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


def _open_run(
    run: Invocation, found: MigrationRun, source: str | None
) -> AbstractContextManager[StagedPlan]:
    """Open the source of a run with the options of the run."""
    from edenmem.models.v1 import V1Options

    v1_options = msgspec.convert(found.options, V1Options)
    return open_plan(run, source or run.service.migrations.source_of(found), v1_options)


@app.command("rollback", cls=Command)
def rollback(
    run: Invocation,
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
    found = run.service.migrations.find_run(run_id).id
    reason = f"rollback of the run {found}"
    with interrupted_by_sigterm():
        undo_run(run, found, force=force, yes=yes, dry_run=dry_run, reason=reason)
