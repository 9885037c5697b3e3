"""``edenmem embed``: vectors of facts, and switches of the embedding model."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import agent_id_of
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.commands.indexes.backfill_views import (
    cost_of,
    print_plan,
    print_report,
    progress_of,
)
from edenmem.cli.commands.indexes.embed_switch import SwitchOptions, changes_of
from edenmem.cli.commands.indexes.embed_switch import switch as switch_model
from edenmem.cli.commands.indexes.switch_views import print_ending, print_standing, standing_data
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.progress import show_progress
from edenmem.cli.terminal.prompts import confirm
from edenmem.cli.terminal.tables import Column
from edenmem.cli.terminal.times import parse_duration
from edenmem.errors import ExitCode, UsageError
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.engine.embeddings.backfill import BackfillPlan
    from edenmem.engine.embeddings.status import VectorState, VectorStatus
    from edenmem.engine.embeddings.switch import Progress, SwitchEnder, SwitchEnding
    from edenmem.engine.service import MemoryService
    from edenmem.models.switch import SwitchPhase


class SwitchAction(StrEnum):
    """An action on a switch of the embedding model."""

    BACK = "back"
    DROP_OLD = "drop-old"
    ABANDON = "abandon"


class _Way(NamedTuple):
    phases: tuple[SwitchPhase, ...]
    question: str
    go: Callable[[SwitchEnder, Progress], SwitchEnding]


_WAYS = {
    SwitchAction.BACK: _Way(
        ("switched",), "Switch back to {old}?", lambda ender, progress: ender.back()
    ),
    SwitchAction.DROP_OLD: _Way(
        ("switched", "settling", "clearing"),
        "Drop the vectors of {old} permanently?",
        lambda ender, progress: ender.drop_old(progress),
    ),
    SwitchAction.ABANDON: _Way(
        ("filling", "abandoning"),
        "Remove the prepared vectors of {new}?",
        lambda ender, progress: ender.abandon(progress),
    ),
}


def end_switch(
    run: Invocation, action: SwitchAction, *, patience: float, yes: bool, dry_run: bool
) -> None:
    """Confirm and run an action; ``patience`` is the limit for a search index, in seconds."""
    ender = run.service.embeddings.ender(timeout=patience)
    way = _WAYS[action]
    under_way = ender.expect(*way.phases)
    found = run.service.embeddings.switch_status() if dry_run else None
    if found is not None:
        data = {"dry_run": True, "action": action, **standing_data(*found)}
        run.out.report([data], partial(print_standing, run, *found), data=dict)
        return
    question = way.question.format(old=under_way.previous, new=under_way.model)
    if not confirm(question, yes=yes):
        run.out.note("nothing was changed")
        return
    with show_progress(run.out) as progress:
        ending = way.go(ender, progress.step)
    print_ending(run, ending)


app = group("Create vectors for facts, and switch embedding models.")


@app.command("status", cls=Command)
def status(ctx: typer.Context, agent: options.Agent = None) -> None:
    """Count facts by the model of their vector.

    Also shows a pending switch of the model. On MongoDB, this reads the length of every vector.

    \b
    edenmem embed status
    """
    run = invocation(ctx)
    chosen = agent_id_of(run, agent)

    async def look(service: MemoryService) -> VectorStatus:
        return service.embeddings.backfiller.status(chosen)

    found = run.serve(look)
    under_way = run.service.embeddings.switch_status()

    def show() -> None:
        if under_way:
            print_standing(run, *under_way)
        length = f" ({found.dimensions:,} dimensions)" if found.dimensions else ""
        run.out.fields([("model", f"{found.model}{length}")])
        run.out.listing([*found.agents, found.total], _columns(run, found.agents))
        if found.total.stale and not (under_way and under_way[0].model == found.model):
            run.out.note(
                f"{many(found.total.stale, 'fact')} not found by meaning; "
                + run.service.embeddings.advise(found.model, found.total.others)
            )

    switch = standing_data(*under_way) if under_way else None
    data = to_data(found) | {"stale": found.total.stale, "switch": switch}
    run.out.report([data], show, data=dict)


def _columns(run: Invocation, agents: tuple[VectorState, ...]) -> list[Column[VectorState]]:
    known = run.service.scopes.labels([state.agent_id for state in agents])
    return [
        Column("agent", lambda s: known[s.agent_id] if s.agent_id else "all"),
        Column("facts", lambda s: s.facts, "number"),
        Column("current", lambda s: s.current, "number"),
        Column("missing", lambda s: s.missing, "number"),
        Column("wrong length", lambda s: s.wrong_length, "number"),
        Column(
            "of other models",
            lambda s: ", ".join(f"{name}: {count:,}" for name, count in sorted(s.others.items())),
        ),
    ]


@app.command("backfill", cls=Command)
def backfill(
    ctx: typer.Context,
    agent: options.Agent = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, metavar="N", help="Maximum number of facts to embed."),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=64, metavar="N", help="Concurrent batches.")
    ] = 4,
    switch: Annotated[
        bool,
        typer.Option("--switch", help="Switch all memory to the model at once."),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="Model to switch to; implies --switch."),
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            metavar="NAME=VALUE",
            help="Setting of [embedding] for the new model (repeatable).",
        ),
    ] = None,
    to_profile: Annotated[
        str | None,
        typer.Option(
            "--to-profile", metavar="NAME", help="Profile with the settings of the new model."
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="QUERIES",
            help="Compare both models on labeled queries before the switch (see eval).",
        ),
    ] = None,
    max_loss: Annotated[
        float,
        typer.Option(
            "--max-loss", min=0, max=1, metavar="X", help="Maximum loss of recall for the switch."
        ),
    ] = 0.02,
    force: Annotated[
        bool, typer.Option("--force", help="Switch regardless of the comparison.")
    ] = False,
    prepare_only: Annotated[
        bool, typer.Option("--prepare-only", help="Create and compare vectors without switching.")
    ] = False,
    timeout: Annotated[
        str,
        typer.Option("--timeout", metavar="TIME", help="Maximum time to wait for a search index."),
    ] = "15m",
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Create missing vectors of facts, and replace invalid ones.

    Vectors of another model are replaced too.

    Shows the cost first, and asks before replacing vectors of another model. An interrupted run
    continues when repeated. A fact keeps its old vector until the new one is stored.

    With --switch (or --model, --to, --to-profile), the new vectors are stored next to the old ones
    while searches use the old model. Once all facts have one, all searches switch to the new model;
    with --compare, only if recall falls by at most --max-loss. Then add the new model to the
    configuration. Processes with the old model keep working until 'embed switch drop-old'.

    \b
    edenmem embed backfill --dry-run
    edenmem embed backfill --agent mira --yes
    edenmem embed backfill --model text-embedding-3-large --compare queries.jsonl
    edenmem embed backfill --to provider=local --prepare-only
    edenmem embed backfill --to local_model=multilingual-e5-small
    """
    run = invocation(ctx)
    changes = changes_of(model, to or ())
    if switch or changes or to_profile is not None:
        if agent is not None or limit is not None:
            raise UsageError("a switch covers all memory and excludes --agent and --limit")
        switching = SwitchOptions(
            changes=changes,
            profile=to_profile,
            compare=compare,
            max_loss=max_loss,
            force=force,
            prepare_only=prepare_only,
            concurrency=concurrency,
            patience=parse_duration(timeout, "--timeout").total_seconds(),
            yes=yes,
            dry_run=dry_run,
        )
        switch_model(run, switching)
        return
    if compare is not None or force or prepare_only:
        raise UsageError("--compare, --force and --prepare-only need --switch or --model")
    chosen = agent_id_of(run, agent)

    async def make_plan(service: MemoryService) -> BackfillPlan:
        return service.embeddings.backfiller.plan(agent_id=chosen, limit=limit)

    plan = run.serve(make_plan)
    run.service.embeddings.check_not_staged(plan.model)
    if dry_run:
        print_plan(run, plan)
        return
    _announce(run, plan)
    if plan.replaced and not confirm(f"Replace {many(plan.replaced, 'vector')}?", yes=yes):
        run.out.note("nothing was changed")
        return

    with progress_of(run, plan.facts) as show:
        report = run.serve(
            lambda service: service.embeddings.backfiller.run(
                agent_id=chosen, limit=limit, concurrency=concurrency, progress=show
            )
        )
    print_report(run, report)
    if report.stopped_early:
        raise typer.Exit(ExitCode.UNAVAILABLE)
    if report.failed:
        raise typer.Exit(ExitCode.SOME_FAILED)


def _announce(run: Invocation, plan: BackfillPlan) -> None:
    if plan.facts:
        run.out.note(
            f"{many(plan.facts, 'fact')} to embed with {plan.model}, about {plan.tokens:,} tokens, "
            f"{cost_of(plan.cost)}"
        )
    others = plan.status.total.others
    if plan.replaced and others:
        run.out.note(f"until then, they keep their vectors of {', '.join(sorted(others))}")


@app.command("switch", cls=Command)
def switch_(
    ctx: typer.Context,
    action: Annotated[
        SwitchAction, typer.Argument(metavar="ACTION", help="back, drop-old or abandon.")
    ],
    timeout: Annotated[
        str,
        typer.Option("--timeout", metavar="TIME", help="Maximum time to wait for a search index."),
    ] = "15m",
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Revert or complete a switch of the embedding model.

    'embed backfill --switch' starts a switch.

    back: switch back to the old model at once, and keep the new vectors. drop-old: replace the old
    vectors permanently, on MongoDB in the field that the platform reads. abandon: remove the new
    vectors before the switch.

    An interrupted action can be repeated. No model is called.

    \b
    edenmem embed switch back --yes
    edenmem embed switch drop-old
    """
    run = invocation(ctx)
    seconds = parse_duration(timeout, "--timeout").total_seconds()
    end_switch(run, action, patience=seconds, yes=yes, dry_run=dry_run)
