"""``edenmem migrate``: memory from v1, and schema migrations."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, end_if, invocation
from edenmem.cli.commands.data import migrate_ledger as ledger
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
from edenmem.cli.terminal.progress import show_progress
from edenmem.errors import StoreError
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.engine.migration.reports import MigrationPlan, MigrationReport, RunOptions
    from edenmem.engine.migration.source import StagedPlan
    from edenmem.engine.service import MemoryService
    from edenmem.models.v1 import V1Options

app = group("Migrate memory from v1, and the schema of the store.")


class _Shards(StrEnum):
    MERGE = "merge"
    KEEP = "keep"


class _Episodes(StrEnum):
    LEAVE = "leave"
    KEEP = "keep"


class _OnConflict(StrEnum):
    KEEP = "keep"
    REPLACE = "replace"


@app.command("v1", cls=Command)
def v1(
    ctx: typer.Context,
    source: From = None,
    dry_run: options.DryRun = False,
    agents: Annotated[
        list[str] | None,
        typer.Option(
            "--agent", "-a", metavar="AGENT", help="Only memory of this agent (repeatable)."
        ),
    ] = None,
    shards: Annotated[
        _Shards,
        typer.Option(
            "--shards", metavar="HOW", help="merge active shards into one text, or keep them."
        ),
    ] = _Shards.MERGE,
    provenance: Annotated[
        bool,
        typer.Option(
            "--provenance", help="Also migrate reflections already in a text, as absorbed."
        ),
    ] = False,
    episodes: Annotated[
        _Episodes,
        typer.Option("--episodes", metavar="HOW", help="leave episodes behind, or keep them."),
    ] = _Episodes.LEAVE,
    on_conflict: Annotated[
        _OnConflict,
        typer.Option(
            "--on-conflict",
            metavar="HOW",
            help="If v2 has a text of its own: keep or replace it.",
        ),
    ] = _OnConflict.KEEP,
    no_embed: Annotated[
        bool,
        typer.Option("--no-embed", help="Skip vectors; create them later with 'embed backfill'."),
    ] = False,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, max=10_000, metavar="N", help="Items per batch.")
    ] = 500,
    database: Database = None,
    files: Files = None,
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
    run = invocation(ctx)
    if not dry_run:
        run.must_write("migrate v1")
    import msgspec

    from edenmem.engine.migration.reports import RunOptions

    chosen = RunOptions(
        v1=_v1_options(
            run,
            shards=shards.value,
            provenance=provenance,
            episodes=episodes.value,
            agents=tuple(dict.fromkeys(agents or ())),
            **chosen_files(database, files),
        ),
        on_conflict=on_conflict.value,
        embed=not no_embed,
        batch_size=batch_size,
        accept_incomplete=allow_incomplete,
    )
    if not dry_run and not run.service.setup.is_made:
        raise StoreError("the store does not exist yet", hint="create it with 'edenmem init'")
    with interrupted_by_sigterm(), open_plan(run, source, chosen.v1) as plan:
        chosen = msgspec.structs.replace(chosen, v1=plan.options)
        known = {person.id for person in plan.agents()}
        if absent := [agent for agent in plan.options.agents if agent not in known]:
            run.out.note(f"no memory in the source for: {', '.join(absent)}")
        if dry_run or not yes:
            planned = _print_plan(run, plan, chosen, whole=dry_run)
        if dry_run:
            end_if(
                planned.problems_by_kind.get("name_taken")
                or (planned.incomplete and not allow_incomplete)
            )
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
        or run.names_taken
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
        fact_words=run.settings.formation.fact_words,
        reflection_words=run.settings.formation.reflection_words,
        user_words=scopes.user.word_limit,
        agent_words=scopes.agent.word_limit,
        shard_words=scopes.shard.word_limit,
        session_words=scopes.session.word_limit,
        **given,
    )


for _rest in (
    ledger.up,
    ledger.status,
    ledger.verify,
    ledger.repair,
    ledger.rollback,
):
    app.command(_rest.__name__, cls=Command)(_rest)
