"""``edenmem embed``: the vectors of facts."""

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
from edenmem.cli.commands.indexes.embed_switch import Wishes, changes_of
from edenmem.cli.commands.indexes.embed_switch import switch as switch_model
from edenmem.cli.commands.indexes.switch_views import print_ending, print_standing, standing_data
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.progress import show_progress
from edenmem.cli.terminal.prompts import confirm
from edenmem.cli.terminal.tables import Column
from edenmem.cli.terminal.times import parse_duration
from edenmem.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from edenmem.engine.embeddings.backfill import BackfillPlan
    from edenmem.engine.embeddings.status import VectorState, VectorStatus
    from edenmem.engine.embeddings.switch import Progress, SwitchEnder, SwitchEnding
    from edenmem.engine.service import MemoryService
    from edenmem.models.switch import SwitchPhase


class SwitchAction(StrEnum):
    """What can be done about a switch."""

    BACK = "back"
    DROP_OLD = "drop-old"
    ABANDON = "abandon"


class _Way(NamedTuple):
    phases: tuple[SwitchPhase, ...]
    question: str
    go: Callable[[SwitchEnder, Progress], SwitchEnding]


_WAYS = {
    SwitchAction.BACK: _Way(
        ("switched",), "Bring {old} back into force?", lambda ender, progress: ender.back()
    ),
    SwitchAction.DROP_OLD: _Way(
        ("switched", "settling", "clearing"),
        "Drop the vectors of {old} for good?",
        lambda ender, progress: ender.drop_old(progress),
    ),
    SwitchAction.ABANDON: _Way(
        ("filling", "abandoning"),
        "Take away what was prepared of {new}?",
        lambda ender, progress: ender.abandon(progress),
    ),
}


def end_switch(
    run: Invocation, action: SwitchAction, *, patience: float, yes: bool, dry_run: bool
) -> None:
    """Ask, and do it; ``patience`` is how many seconds a search index may take."""
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


app = group("Vectors of facts: status, backfill, switch.")


@app.command("status", cls=Command)
def status(ctx: typer.Context, agent: options.Agent = None) -> None:
    """How many facts have a vector of the configured model, none, or one of another model; and
    where a switch to another model stands, if one is under way.

    On MongoDB this reads every vector's length once.

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
                f"{found.total.stale:,} facts are not found by meaning; "
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
        int | None, typer.Option("--limit", "-n", min=1, metavar="N", help="At most so many facts.")
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=64, metavar="N", help="Batches at once.")
    ] = 4,
    switch: Annotated[
        bool,
        typer.Option("--switch", help="Switch the whole of memory to the model, at one moment."),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="The model to switch to; implies --switch."),
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            metavar="NAME=VALUE",
            help="A setting of [embedding] for the new model; may be repeated.",
        ),
    ] = None,
    to_profile: Annotated[
        str | None,
        typer.Option(
            "--to-profile", metavar="NAME", help="The profile that has the new model's settings."
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="QUERIES",
            help="Before the switch, show what both models find for labelled queries (see eval).",
        ),
    ] = None,
    max_loss: Annotated[
        float,
        typer.Option(
            "--max-loss", min=0, max=1, metavar="X", help="Of recall, that a switch may cost."
        ),
    ] = 0.02,
    force: Annotated[
        bool, typer.Option("--force", help="Switch whatever the comparison says.")
    ] = False,
    prepare_only: Annotated[
        bool, typer.Option("--prepare-only", help="Make and compare the vectors; do not switch.")
    ] = False,
    timeout: Annotated[
        str,
        typer.Option("--timeout", metavar="TIME", help="Wait so long for a search index: 15m."),
    ] = "15m",
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Make the vectors that facts lack: missing, of a wrong length, or of another model.

    It tells the cost first, and asks if vectors of another model would be replaced. It may be
    stopped at any time; run again, it goes on where it was. A fact keeps its old vector until the
    new one is in.

    With --switch (or --model, --to, --to-profile) the new vectors are made beside the old ones,
    and searches go on by the old model. When all are there, also of what was learned meanwhile,
    the new model comes into force at one moment; with --compare only if recall does not fall by
    more than --max-loss. Then put the new model into the configuration: until 'embed switch
    drop-old', processes that use the old one are still served.

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
            raise UsageError("a switch is of the whole of memory, without --agent and --limit")
        wishes = Wishes(
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
        switch_model(run, wishes)
        return
    if compare is not None or force or prepare_only:
        raise UsageError("--compare, --force and --prepare-only go with --switch or --model")
    chosen = agent_id_of(run, agent)

    async def make_plan(service: MemoryService) -> BackfillPlan:
        return service.embeddings.backfiller.plan(agent_id=chosen, limit=limit)

    plan = run.serve(make_plan)
    run.service.embeddings.check_not_staged(plan.model)
    if dry_run:
        print_plan(run, plan)
        return
    _announce(run, plan)
    if plan.replaced and not confirm(f"Replace {plan.replaced:,} vectors?", yes=yes):
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
            f"{plan.facts:,} facts to embed with {plan.model}, about {plan.tokens:,} tokens, "
            f"{cost_of(plan.cost)}"
        )
    others = plan.status.total.others
    if plan.replaced and others:
        run.out.note(f"they have vectors of {', '.join(sorted(others))} until then")


@app.command("switch", cls=Command)
def switch_(
    ctx: typer.Context,
    action: Annotated[
        SwitchAction, typer.Argument(metavar="ACTION", help="back, drop-old or abandon.")
    ],
    timeout: Annotated[
        str,
        typer.Option("--timeout", metavar="TIME", help="Wait so long for a search index: 15m."),
    ] = "15m",
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Undo or end a switch to another embedding model, which 'embed backfill --switch' makes.

    back: the old model comes into force again, at one moment; the new vectors are kept.
    drop-old: the new vectors take the place of the old ones, for good. On MongoDB that is the
    field that the platform reads. abandon: take the new vectors away, before the switch.

    Each may be stopped and run again. No model is asked.

    \b
    edenmem embed switch back --yes
    edenmem embed switch drop-old
    """
    run = invocation(ctx)
    seconds = parse_duration(timeout, "--timeout").total_seconds()
    end_switch(run, action, patience=seconds, yes=yes, dry_run=dry_run)
