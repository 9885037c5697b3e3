"""``edenmem embed``: vectors of facts, and switches of the embedding model."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from edenmem.cli.app import options
from edenmem.cli.app.failures import print_error
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.terminal.data import plan_data, to_data
from edenmem.cli.terminal.output import show_progress
from edenmem.cli.terminal.tables import Column, format_cost
from edenmem.errors import ExitCode
from edenmem.models.embeddings import WAY_ON, SwitchPhase, VectorSwitch
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.engine.embeddings.backfill import BackfillReport
    from edenmem.engine.embeddings.status import VectorState, VectorStatus
    from edenmem.engine.embeddings.switch import (
        ModelSwitcher,
        Progress,
        SwitchEnder,
        SwitchEnding,
        SwitchPlan,
    )
    from edenmem.engine.service import MemoryService

T = TypeVar("T")

app = group("Create vectors for facts, and switch embedding models.")


@app.command("status", cls=Command)
def status(run: Invocation, agent: options.Agent = None) -> None:
    """Count facts by the model of their vector.

    Also shows a pending switch of the model. On MongoDB, this reads the length of every vector.

    \b
    edenmem embed status
    """
    chosen = options.agent_id_of(run, agent)
    found = run.with_models(lambda service: service.embeddings.backfiller.status(chosen))
    pending = run.service.embeddings.switch_status()
    switch = _switch_data(*pending) if pending else None
    data = to_data(found) | {"stale": found.total.stale, "switch": switch}
    if run.out.data([data], dict):
        return
    if pending:
        _print_switch(run, *pending)
    length = f" ({found.dimensions:,} dimensions)" if found.dimensions else ""
    run.out.fields([("model", f"{found.model}{length}")])
    known = run.service.scopes.labels([state.agent_id for state in found.agents])
    columns: list[Column[VectorState]] = [
        Column("agent", lambda s: known[s.agent_id] if s.agent_id else "all"),
        Column("facts", lambda s: s.facts, "number"),
        Column("current", lambda s: s.current, "number"),
        Column("missing", lambda s: s.missing, "number"),
        Column("wrong length", lambda s: s.wrong_length, "number"),
        Column("of other models", lambda s: _others(s)),
    ]
    run.out.listing([*found.agents, found.total], columns)
    if found.total.stale and not (pending and pending[0].model == found.model):
        run.out.note(
            f"{many(found.total.stale, 'fact')} not found by meaning; "
            + run.service.embeddings.advise(found.model, found.total.others)
        )


def _others(state: VectorState) -> list[str]:
    return [f"{name}: {count:,}" for name, count in sorted(state.others.items())]


@app.command("backfill", cls=Command)
def backfill(
    run: Invocation,
    agent: options.Agent = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, metavar="N", help="Maximum number of facts to embed."),
    ] = None,
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
    chosen = options.agent_id_of(run, agent)
    plan = run.with_models(
        lambda service: service.embeddings.backfiller.plan(agent_id=chosen, limit=limit)
    )
    run.service.embeddings.check_not_staged(plan.model)
    total = plan.status.total
    if dry_run:
        run.out.record(
            plan,
            [
                ("model", plan.model),
                ("would embed", many(plan.facts, "fact")),
                ("missing", total.missing or None),
                ("wrong length", total.wrong_length or None),
                ("other models", _others(total)),
                ("tokens", f"about {plan.tokens:,}"),
                ("cost", _cost(plan.cost)),
            ],
            data=plan_data,
        )
        return
    if plan.facts:
        run.out.note(
            f"{many(plan.facts, 'fact')} to embed with {plan.model}, about {plan.tokens:,} tokens, "
            f"{_cost(plan.cost)}"
        )
    if plan.replaced and total.others:
        run.out.note(f"until then, they keep their vectors of {', '.join(sorted(total.others))}")
    if plan.replaced:
        run.confirm(f"Replace {many(plan.replaced, 'vector')}?", yes=yes)
    with show_progress(run.out) as progress:
        report = run.serve(
            lambda service: service.embeddings.backfiller.run(
                agent_id=chosen,
                limit=limit,
                progress=lambda done: progress.step("embedding", done, plan.facts),
            )
        )
    _print_report(run, report)
    end_if(report.stopped_early, ExitCode.UNAVAILABLE)
    end_if(report.failed)


def _print_report(run: Invocation, report: BackfillReport) -> None:
    """Print the report of a backfill; failed batches go to stderr."""
    run.out.record(
        report,
        [
            ("model", report.model),
            ("embedded", many(report.embedded, "fact")),
            ("changed since", report.changed or None),
            ("failed", sum(len(batch.fact_ids) for batch in report.failed) or None),
            ("tokens", f"{report.tokens:,}"),
            ("cost", _cost(report.cost)),
            ("took", f"{report.seconds:.1f} s"),
        ],
        data=_report_data,
    )
    _print_failures(report)


def _report_data(report: BackfillReport) -> dict[str, Any]:
    return to_data(report) | {"tokens": report.tokens, "cost": report.cost}


def _print_failures(report: BackfillReport) -> None:
    """Print failed facts on stderr."""
    for batch in report.failed:
        first, count = batch.fact_ids[0], len(batch.fact_ids)
        others = f" and {count - 1} more" if count > 1 else ""
        print_error(f"{first}{others}: {batch.reason}", batch.hint)
    if report.stopped_early:
        print_error(f"stopped early: {report.stopped_early}", report.hint)


def _cost(cost: float | None) -> str:
    """Format the cost of embedding, with a hint if the price is unknown."""
    return format_cost(cost) + (" (set embedding.prices)" if cost is None else "")


# -- another model -------------------------------------------------------------------------------


@app.command("use", cls=Command)
def use(
    run: Invocation,
    model: Annotated[
        str | None,
        typer.Argument(metavar="[MODEL]", help="Model.  [default: the configured one]"),
    ] = None,
    back: Annotated[
        bool, typer.Option("--back", help="Switch back to the old model at once.")
    ] = False,
    drop_old: Annotated[
        bool, typer.Option("--drop-old", help="Complete the switch: drop the old vectors for good.")
    ] = False,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Remove the new vectors before the switch.")
    ] = False,
    timeout: Annotated[
        str,
        typer.Option("--timeout", metavar="TIME", help="Maximum time to wait for a search index."),
    ] = "15m",
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Switch all memory to another embedding model; revert or complete a switch.

    The new vectors are stored next to the old ones while searches use the old model. Once all facts
    have one, all searches switch to the new model. Then add it to the configuration. Processes with
    the old model keep working until --drop-old, which on MongoDB also replaces the field that the
    platform reads. To compare both models, run 'edenmem eval' before and after the switch.

    An interrupted command can be repeated. --back, --drop-old and --abandon call no model. Other
    settings of the new model come from --set or --profile.

    \b
    edenmem embed use text-embedding-3-large
    edenmem embed use --set embedding.local_model=multilingual-e5-small --dry-run
    edenmem embed use --back --yes
    edenmem embed use --drop-old
    """
    patience = options.parse_duration(timeout, "--timeout").total_seconds()
    endings = [end for end, given in zip(_ENDINGS, (back, drop_old, abandon), strict=True) if given]
    options.exclusive(
        {"MODEL": model, "--back": back, "--drop-old": drop_old, "--abandon": abandon}
    )
    if endings:
        _end(run, endings[0], patience=patience, yes=yes, dry_run=dry_run)
        return
    run.override({"embedding.model": ("MODEL", model)})
    plan = _switch(run, lambda switcher: switcher.plan())
    if dry_run:
        run.out.record(
            plan,
            [
                ("from", plan.switch.previous),
                ("to", f"{plan.switch.model} ({plan.switch.dimensions:,} dimensions)"),
                ("state", describe_switch(plan.switch) if plan.begun else "not started"),
                ("would embed", f"{many(plan.backfill.facts, 'fact')}, keeping old vectors"),
                ("tokens", f"about {plan.backfill.tokens:,}"),
                ("cost", _cost(plan.backfill.cost)),
            ],
            data=plan_data,
        )
        return
    if facts := plan.backfill.facts:
        run.out.note(
            f"{many(facts, 'fact')} to embed with {plan.switch.model}, about"
            f" {plan.backfill.tokens:,} tokens, {_cost(plan.backfill.cost)}"
        )
        if plan.switch.phase == "filling":
            run.out.note(f"searches use {plan.switch.in_force} until the switch")
        run.confirm(f"Create {many(facts, 'vector')} next to the existing ones?", yes=yes)
    else:
        run.out.note(f"all vectors of {plan.switch.model} exist")
    filled = _fill_vectors(run, plan)
    if plan.switch.phase == "filling":
        question = f"Switch from {plan.switch.previous} to {plan.switch.model}?"
        run.confirm(question, yes=yes, otherwise="prepared, but not switched")

    _switch(run, lambda switcher: switcher.commit(patience=patience))
    switch = _switch(run, lambda switcher: switcher.plan()).switch
    run.out.record(
        {
            "switch": to_data(switch),
            "in_force": switch.in_force,
            "filled": _report_data(filled),
        },
        [
            ("switch to", switch.model),
            ("  state", describe_switch(switch)),
            ("embedded", many(filled.embedded, "fact")),
            ("tokens", f"{filled.tokens:,}"),
            ("cost", _cost(filled.cost)),
            ("took", f"{filled.seconds:.1f} s"),
        ],
        data=dict,
    )
    _print_failures(filled)
    named = {key: value for key, value in run.overrides.items() if key.startswith("embedding.")}
    if commands := [
        f"'edenmem config set {key} {shlex.quote(value)}'" for key, value in named.items()
    ]:
        run.out.note(f"use the new model from now on: {', '.join(commands)}")
    run.out.note(
        f"processes with {plan.switch.previous} keep working until 'edenmem embed use --drop-old';"
        " 'edenmem embed use --back' reverts the switch"
    )


class _Ending(NamedTuple):
    """How to revert or complete a switch."""

    name: str
    phases: tuple[SwitchPhase, ...]
    question: str
    go: Callable[[SwitchEnder, Progress], SwitchEnding]


_ENDINGS = (
    _Ending("back", ("switched",), "Switch back to {old}?", lambda ender, progress: ender.back()),
    _Ending(
        "drop-old",
        ("switched", "settling", "clearing"),
        "Drop the vectors of {old} permanently?",
        lambda ender, progress: ender.drop_old(progress),
    ),
    _Ending(
        "abandon",
        ("filling", "abandoning"),
        "Remove the prepared vectors of {new}?",
        lambda ender, progress: ender.abandon(progress),
    ),
)


def _end(run: Invocation, way: _Ending, *, patience: float, yes: bool, dry_run: bool) -> None:
    """Confirm and end a switch; ``patience`` is the limit for a search index, in seconds."""
    ender = run.service.embeddings.ender(timeout=patience)
    switch = ender.expect(*way.phases)
    found = run.service.embeddings.switch_status() if dry_run else None
    if found is not None:
        if not run.out.data([{"dry_run": True, "action": way.name, **_switch_data(*found)}], dict):
            _print_switch(run, *found)
        return
    run.confirm(way.question.format(old=switch.previous, new=switch.model), yes=yes)
    with show_progress(run.out) as progress:
        ending = way.go(ender, progress.step)
    if run.out.data([ending]):
        return
    done = {"drop-old": "facts settled", "abandon": "vectors removed"}.get(ending.action)
    run.out.fields(
        [
            ("model", ending.in_force),
            (done or "facts", f"{ending.facts:,}" if done else None),
            ("stale", many(ending.stale, "fact") if ending.stale else None),
        ]
    )
    if ending.stale:
        run.out.note(
            f"{many(ending.stale, 'fact')} without a vector of {ending.in_force}: configure this"
            " model and run 'edenmem embed backfill'"
        )


def _switch(run: Invocation, work: Callable[[ModelSwitcher], Awaitable[T]]) -> T:
    """Run work on the switch to the configured model."""

    async def switch(service: MemoryService) -> T:
        async with service.embeddings.switching(run.settings) as switcher:
            return await work(switcher)

    return run.serve(switch)


def _fill_vectors(run: Invocation, plan: SwitchPlan) -> BackfillReport:
    """Create the new vectors; end the command if some are missing."""
    from edenmem.engine.embeddings.switch import count_missing

    with show_progress(run.out) as progress:
        report = _switch(
            run,
            lambda switcher: switcher.fill(
                plan, progress=lambda done: progress.step("embedding", done, plan.backfill.facts)
            ),
        )
    if report.stopped_early or count_missing(report):
        _print_report(run, report)
        run.out.note(f"{plan.switch.in_force} is still in use; run the same command to continue")
        raise typer.Exit(ExitCode.UNAVAILABLE if report.stopped_early else ExitCode.SOME_FAILED)
    return report


#: Phase → description.
_PHASES = {
    "filling": "being prepared; {previous} is in use",
    "switched": "done; vectors of {previous} are kept and still searched",
    "settling": "done; vectors of {previous} are being dropped",
    "clearing": "done; vectors of {previous} are dropped, the rest is being cleared",
    "abandoning": "being abandoned; {previous} is in use",
}


def describe_switch(switch: VectorSwitch) -> str:
    """Describe the phase of a switch."""
    return _PHASES[switch.phase].format(previous=switch.previous)


def _print_switch(run: Invocation, switch: VectorSwitch, status: VectorStatus) -> None:
    """Print a pending switch, and the next command on stderr."""
    total = status.total
    run.out.fields(
        [
            ("switch to", f"{switch.model} ({switch.dimensions:,} dimensions)"),
            ("  state", describe_switch(switch)),
            ("  vectors", f"{total.current:,} of {many(total.facts, 'fact')}"),
        ]
    )
    run.out.note(WAY_ON[switch.phase])


def _switch_data(switch: VectorSwitch, status: VectorStatus) -> dict[str, Any]:
    return to_data(switch) | {"in_force": switch.in_force, "vectors": to_data(status.total)}
