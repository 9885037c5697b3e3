"""``edenmem embed``: the vectors of facts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli import options
from edenmem.cli.asking import confirm
from edenmem.cli.data import to_data
from edenmem.cli.failures import tell
from edenmem.cli.framework import Command, group
from edenmem.cli.invocation import Invocation, invocation
from edenmem.cli.tables import Column
from edenmem.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from edenmem.embed.protocol import Embedder
    from edenmem.engine.backfilling import Backfiller, BackfillPlan, BackfillReport
    from edenmem.engine.vector_status import VectorState
    from edenmem.llm.protocol import LLM

app = group("Vectors of facts: status, backfill.")


def _backfiller(run: Invocation, embedder: Embedder | None) -> Backfiller:
    from edenmem.engine.backfilling import Backfiller
    from edenmem.engine.factory import EMBEDDER_HINT

    if embedder is None:
        raise ConfigError("there is no embedding model", hint=EMBEDDER_HINT)
    return Backfiller(run.store, run.settings, embedder=embedder)


def _agent_id(run: Invocation, agent: str | None) -> str | None:
    return run.resolver.agent(agent).id if agent else None


@app.command("status", cls=Command)
def status(ctx: typer.Context, agent: options.Agent = None) -> None:
    """How many facts have a vector of the configured model, none, or one of another model.

    On MongoDB this reads every vector's length once.

    \b
    edenmem embed status
    """
    run = invocation(ctx)
    chosen = _agent_id(run, agent)

    async def main(model: LLM | None, embedder: Embedder | None) -> None:
        found = _backfiller(run, embedder).status(chosen)
        if run.out.is_data:
            run.out.objects([to_data(found) | {"stale": found.total.stale}])
            return
        length = f" ({found.dimensions:,} dimensions)" if found.dimensions else ""
        run.out.fields([("model", f"{found.model}{length}")])
        run.out.listing([*found.agents, found.total], _columns(run, found.agents))
        if found.total.stale:
            run.out.note(
                f"{found.total.stale:,} facts are not found by meaning; 'edenmem embed backfill' "
                "makes their vectors"
            )

    run.with_models(main)


def _columns(run: Invocation, agents: tuple[VectorState, ...]) -> list[Column[VectorState]]:
    from edenmem.engine.overview import names

    known = names(run.store, [state.agent_id for state in agents])
    return [
        Column("agent", lambda s: known.get(s.agent_id, s.agent_id) if s.agent_id else "all"),
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
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Make the vectors that facts lack: missing, of a wrong length, or of another model.

    It tells the cost first, and asks if vectors of another model would be replaced. It may be
    stopped at any time; run again, it goes on where it was. A fact keeps its old vector until the
    new one is in. While a change of model is under way, meaning finds the facts that are done and
    words find all: a switch of the whole collection at one moment, with the new vectors beside
    the old ones until then, is not part of this version.

    \b
    edenmem embed backfill --dry-run
    edenmem embed backfill --agent mira --yes
    """
    run = invocation(ctx)
    chosen = _agent_id(run, agent)

    async def planned(model: LLM | None, embedder: Embedder | None) -> BackfillPlan:
        return _backfiller(run, embedder).plan(agent_id=chosen, limit=limit)

    plan = run.with_models(planned)
    if dry_run:
        tell_plan(run, plan)
        return
    _announce(run, plan)
    if plan.replaced and not confirm(f"Replace {plan.replaced:,} vectors?", yes=yes):
        run.out.note("nothing was changed")
        return

    async def filled(model: LLM | None, embedder: Embedder | None) -> BackfillReport:
        with _progress(run, plan.facts) as show:
            return await _backfiller(run, embedder).run(
                agent_id=chosen, limit=limit, concurrency=concurrency, tell=show
            )

    report = run.with_models(filled)
    tell_report(run, report)
    if report.stopped_early:
        raise typer.Exit(ExitCode.UNAVAILABLE)
    if report.failed:
        raise typer.Exit(ExitCode.SOME_FAILED)


def _announce(run: Invocation, plan: BackfillPlan) -> None:
    if plan.facts:
        run.out.note(
            f"{plan.facts:,} facts to embed with {plan.model}, about {plan.tokens:,} tokens, "
            f"{_cost(plan.cost)}"
        )
    others = plan.status.total.others
    if plan.replaced and others:
        run.out.note(f"they have vectors of {', '.join(sorted(others))} until then")


def _cost(cost: float | None) -> str:
    if cost is None:
        return "cost unknown (embedding.prices has no price of it)"
    return f"${cost:.4f}" if cost else "no cost"


def tell_plan(run: Invocation, plan: BackfillPlan) -> None:
    """Print what a backfill would do."""
    if run.out.is_data:
        run.out.objects([{"dry_run": True, **to_data(plan)}])
        return
    total = plan.status.total
    run.out.fields(
        [
            ("model", plan.model),
            ("would embed", f"{plan.facts:,} facts"),
            ("missing", total.missing or None),
            ("wrong length", total.wrong_length or None),
            (
                "other models",
                [f"{name}: {count:,}" for name, count in sorted(total.others.items())],
            ),
            ("tokens", f"about {plan.tokens:,}"),
            ("cost", _cost(plan.cost)),
        ]
    )


def tell_report(run: Invocation, report: BackfillReport) -> None:
    """Print what a backfill did; failed batches are told on stderr."""
    if run.out.is_data:
        extra = {"tokens": report.tokens, "cost": report.cost}
        run.out.objects([to_data(report) | extra])
    else:
        run.out.fields(
            [
                ("model", report.model),
                ("embedded", f"{report.embedded:,} facts"),
                ("changed meanwhile", report.changed or None),
                ("failed", sum(len(batch.fact_ids) for batch in report.failed) or None),
                ("tokens", f"{report.tokens:,}"),
                ("cost", _cost(report.cost)),
                ("took", f"{report.seconds:.1f} s"),
            ]
        )
    for batch in report.failed:
        first, count = batch.fact_ids[0], len(batch.fact_ids)
        others = f" and {count - 1} others" if count > 1 else ""
        tell(f"{first}{others}: {batch.reason}", batch.hint)
    if report.stopped_early:
        tell(f"stopped early: {report.stopped_early}", report.hint)


@contextmanager
def _progress(run: Invocation, total: int) -> Iterator[Callable[[int], None]]:
    """What to call with the facts gone through; a terminal shows them, a pipe nothing."""
    if run.quiet or not total or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("embedding"), BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True, no_color=not run.out.colored(sys.stderr))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("embedding", total=total)
        yield lambda done: progress.update(task, completed=done)
