"""``edenmem embed``: vectors of facts, and switches of the embedding model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import agent_id_of
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.commands.indexes.embed_use import (
    cost_of,
    print_plan,
    print_report,
    print_standing,
    progress_of,
    standing_data,
    use,
)
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.prompts import confirm
from edenmem.cli.terminal.tables import Column
from edenmem.errors import ExitCode
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.engine.embeddings.backfill import BackfillPlan
    from edenmem.engine.embeddings.status import VectorState, VectorStatus
    from edenmem.engine.service import MemoryService


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
    concurrency: options.Concurrency = 4,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Create missing vectors of facts, and replace invalid ones.

    Vectors of another model are replaced too.

    Shows the cost first, and asks before replacing vectors of another model. An interrupted run
    continues when repeated. A fact keeps its old vector until the new one is stored.

    To switch all memory to another model without a gap, see 'edenmem embed use'.

    \b
    edenmem embed backfill --dry-run
    edenmem embed backfill --agent mira --yes
    """
    run = invocation(ctx)
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


app.command("use", cls=Command)(use)
