"""``edenmem embed use``: switch all memory to another embedding model."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from edenmem.cli.app import options
from edenmem.cli.app.failures import print_error
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.terminal.data import plan_data, to_data
from edenmem.cli.terminal.files import file_name, lines_of
from edenmem.cli.terminal.progress import show_progress
from edenmem.cli.terminal.prompts import confirm
from edenmem.cli.terminal.tables import Column, format_cost
from edenmem.cli.terminal.times import parse_duration
from edenmem.errors import EdenmemError, ExitCode, UsageError, line_place
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.engine.embeddings.backfill import BackfillPlan, BackfillReport
    from edenmem.engine.embeddings.status import VectorStatus
    from edenmem.engine.embeddings.switch import Progress, SwitchEnder, SwitchEnding, SwitchPlan
    from edenmem.engine.evaluation.queries import LabeledSet
    from edenmem.engine.evaluation.tuning import Comparison, RecipePair
    from edenmem.engine.service import MemoryService
    from edenmem.models.switch import SwitchPhase, VectorSwitch
    from edenmem.settings.schema import Settings


class SwitchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a switch."""

    changes: dict[str, str]
    profile: str | None
    compare: str | None
    max_loss: float
    force: bool
    prepare_only: bool
    concurrency: int
    patience: float
    yes: bool
    dry_run: bool


def use(
    ctx: typer.Context,
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
    concurrency: options.Concurrency = 4,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Switch all memory to another embedding model; revert or complete a switch.

    The new vectors are stored next to the old ones while searches use the old model. Once all facts
    have one, all searches switch to the new model; with --compare, only if recall falls by at most
    --max-loss. Then add the new model to the configuration. Processes with the old model keep
    working until --drop-old, which on MongoDB also replaces the field that the platform reads.

    An interrupted command can be repeated. --back, --drop-old and --abandon call no model.

    \b
    edenmem embed use text-embedding-3-large --compare queries.jsonl
    edenmem embed use --to local_model=multilingual-e5-small --prepare-only
    edenmem embed use --back --yes
    edenmem embed use --drop-old
    """
    run = invocation(ctx)
    patience = parse_duration(timeout, "--timeout").total_seconds()
    changes = changes_of(model, to or ())
    endings = [end for end, given in zip(_ENDINGS, (back, drop_old, abandon), strict=True) if given]
    if len(endings) > 1 or (endings and (changes or to_profile)):
        raise UsageError("MODEL, --back, --drop-old and --abandon exclude each other")
    if endings:
        _end(run, endings[0], patience=patience, yes=yes, dry_run=dry_run)
        return
    chosen = SwitchOptions(
        changes=changes,
        profile=to_profile,
        compare=compare,
        max_loss=max_loss,
        force=force,
        prepare_only=prepare_only,
        concurrency=concurrency,
        patience=patience,
        yes=yes,
        dry_run=dry_run,
    )
    _switch(run, chosen)


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
    under_way = ender.expect(*way.phases)
    found = run.service.embeddings.switch_status() if dry_run else None
    if found is not None:
        data = {"dry_run": True, "action": way.name, **standing_data(*found)}
        run.out.report([data], partial(print_standing, run, *found), data=dict)
        return
    question = way.question.format(old=under_way.previous, new=under_way.model)
    if not confirm(question, yes=yes):
        run.out.note("nothing was changed")
        return
    with show_progress(run.out) as progress:
        ending = way.go(ender, progress.step)
    print_ending(run, ending)


def changes_of(model: str | None, to: Sequence[str]) -> dict[str, str]:
    """Return the settings of the new model by dotted key.

    Raises:
        UsageError: A setting is not NAME=VALUE, or is a secret.
    """
    from edenmem.settings.schema import SECRETS

    changes = {"embedding.model": model} if model else {}
    for text in to:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"invalid --to: {text!r}", hint="NAME=VALUE, such as dimensions=1024")
        key = "embedding." + name.strip().removeprefix("embedding.")
        if key in SECRETS:
            raise UsageError(
                f"--to {name} would expose a secret in the process list",
                hint="put the secret into a profile of a private configuration file, and pass"
                " --to-profile",
            )
        changes[key] = value
    if "embedding.local_model" in changes:  # overrides the configured provider
        changes = {"embedding.provider": "local", "embedding.local_path": "", **changes}
    return changes


def _switch(run: Invocation, chosen: SwitchOptions) -> None:
    """Prepare, compare and commit a switch, as far as the options ask for it."""
    settings = _settings_after(run, chosen)
    labeled = _read_labeled_set(run, chosen.compare)
    plan = _make_plan(run, settings)
    if chosen.dry_run:
        _print_plan(run, plan)
        return
    _announce(run, plan)
    if plan.backfill.facts and not confirm(
        f"Create {many(plan.backfill.facts, 'vector')} next to the existing ones?", yes=chosen.yes
    ):
        run.out.note("nothing was changed")
        return
    filled = _fill_vectors(run, settings, chosen, plan)
    comparison = _compare_models(run, settings, chosen, plan, labeled) if labeled else None
    if chosen.prepare_only:
        _print_outcome(run, plan, filled, comparison)
        run.out.note(
            f"{plan.switch.previous} is still in use; to switch, repeat the command without"
            " --prepare-only"
        )
        return
    if comparison is not None:
        _refuse_loss(comparison, chosen)
    if plan.switch.phase == "filling" and not confirm(
        f"Switch from {plan.switch.previous} to {plan.switch.model}?", yes=chosen.yes
    ):
        run.out.note("prepared, but not switched")
        return

    async def commit(service: MemoryService) -> None:
        async with service.embeddings.switching(settings) as switcher:
            await switcher.commit(concurrency=chosen.concurrency, patience=chosen.patience)

    run.serve(commit)
    after = _make_plan(run, settings)
    _print_outcome(run, after, filled, comparison)
    _print_configuration(run, after, chosen)


# -- the steps -----------------------------------------------------------------------------------


def _settings_after(run: Invocation, chosen: SwitchOptions) -> Settings:
    if not chosen.changes and chosen.profile is None:
        return run.settings
    from edenmem.settings.load import load_settings

    kept = dict(run.overrides)
    if chosen.profile is not None:  # --set embedding.* is about the current model
        kept = {key: value for key, value in kept.items() if not key.startswith("embedding.")}
    loaded = load_settings(
        config=Path(run.config) if run.config else None,
        profile=chosen.profile or run.profile,
        overrides={**kept, **chosen.changes},
        options=dict.fromkeys(chosen.changes, "--to"),
    )
    return loaded.settings


def _make_plan(run: Invocation, settings: Settings) -> SwitchPlan:
    async def work(service: MemoryService) -> SwitchPlan:
        async with service.embeddings.switching(settings) as switcher:
            return await switcher.plan()

    return run.serve(work)


def _read_labeled_set(run: Invocation, file: str | None) -> LabeledSet | None:
    if file is None:
        return None
    with lines_of(file) as lines:
        labeled = run.service.evaluation.read(lines)
    for unknown in labeled.unknown:
        run.out.note(f"{line_place(unknown.line, file_name(file))}: {unknown.why}")
    return labeled


def _fill_vectors(
    run: Invocation, settings: Settings, chosen: SwitchOptions, plan: SwitchPlan
) -> BackfillReport:
    from edenmem.engine.embeddings.switch import count_missing

    async def fill(service: MemoryService) -> BackfillReport:
        async with service.embeddings.switching(settings) as switcher:
            with progress_of(run, plan.backfill.facts) as show:
                return await switcher.fill(plan, concurrency=chosen.concurrency, progress=show)

    report = run.serve(fill)
    if report.stopped_early or count_missing(report):
        print_report(run, report)
        run.out.note(f"{plan.switch.in_force} is still in use; run the same command to continue")
        raise typer.Exit(ExitCode.UNAVAILABLE if report.stopped_early else ExitCode.SOME_FAILED)
    return report


def _compare_models(
    run: Invocation,
    settings: Settings,
    chosen: SwitchOptions,
    plan: SwitchPlan,
    labeled: LabeledSet,
) -> Comparison:
    async def compare(service: MemoryService) -> Comparison:
        async with service.embeddings.switching(settings) as switcher:
            await switcher.wait(patience=chosen.patience, progress=run.out.progress)
            return await service.embeddings.compare(switcher, plan, labeled.queries)

    comparison = run.serve(compare)
    if not run.out.is_data:
        print_comparison(run, comparison)
    return comparison


def _refuse_loss(comparison: Comparison, chosen: SwitchOptions) -> None:
    if comparison.loss <= chosen.max_loss or chosen.force:
        return
    pair = comparison.pairs[0]
    raise EdenmemError(
        f"with {comparison.new_model}, recall@{comparison.top_k} of recipe {pair.recipe!r} falls "
        f"from {pair.old.recall:.3f} to {pair.new.recall:.3f}, by more than {chosen.max_loss:g}; "
        f"{comparison.old_model} is still in use",
        hint="allow the loss with --max-loss or --force, or run 'edenmem embed use --abandon'",
    )


# -- printing ------------------------------------------------------------------------------------


def _announce(run: Invocation, plan: SwitchPlan) -> None:
    facts = plan.backfill.facts
    if not facts:
        run.out.note(f"all vectors of {plan.switch.model} exist")
        return
    run.out.note(
        f"{many(facts, 'fact')} to embed with {plan.switch.model}, about {plan.backfill.tokens:,} "
        f"tokens, {cost_of(plan.backfill.cost)}"
    )
    if plan.switch.phase == "filling":
        run.out.note(f"searches use {plan.switch.in_force} until the switch")


def _print_plan(run: Invocation, plan: SwitchPlan) -> None:
    backfill = plan.backfill
    run.out.record(
        plan,
        [
            ("from", plan.switch.previous),
            ("to", f"{plan.switch.model} ({plan.switch.dimensions:,} dimensions)"),
            ("state", standing(plan.switch) if plan.begun else "not started"),
            ("would embed", f"{many(backfill.facts, 'fact')}, keeping old vectors"),
            ("tokens", f"about {backfill.tokens:,}"),
            ("cost", cost_of(backfill.cost)),
        ],
        data=plan_data,
    )


def _print_outcome(
    run: Invocation, plan: SwitchPlan, filled: BackfillReport, comparison: Comparison | None
) -> None:
    run.out.record(
        {
            "switch": to_data(plan.switch),
            "in_force": plan.switch.in_force,
            "filled": report_data(filled),
            "comparison": comparison_data(comparison) if comparison else None,
        },
        [
            ("switch to", plan.switch.model),
            ("  state", standing(plan.switch)),
            ("embedded", many(filled.embedded, "fact")),
            ("tokens", f"{filled.tokens:,}"),
            ("cost", cost_of(filled.cost)),
            ("took", f"{filled.seconds:.1f} s"),
        ],
        data=dict,
    )
    print_failures(filled)


def _print_configuration(run: Invocation, plan: SwitchPlan, chosen: SwitchOptions) -> None:
    """Print the configuration for the new model."""
    if chosen.profile is not None:
        run.out.note(f"use profile {chosen.profile!r} from now on, or its [embedding] settings")
    settings = [
        f"'edenmem config set {key} {shlex.quote(value)}'" for key, value in chosen.changes.items()
    ]
    if settings:
        run.out.note(f"use the new model from now on: {', '.join(settings)}")
    run.out.note(
        f"processes with {plan.switch.previous} keep working until 'edenmem embed use --drop-old';"
        " 'edenmem embed use --back' reverts the switch"
    )


#: Phase → description.
_SAID = {
    "filling": "being prepared; {previous} is in use",
    "switched": "done; vectors of {previous} are kept and still searched",
    "settling": "done; vectors of {previous} are being dropped",
    "clearing": "done; vectors of {previous} are dropped, the rest is being cleared",
    "abandoning": "being abandoned; {previous} is in use",
}


def standing(switch: VectorSwitch) -> str:
    """Describe the phase of a switch."""
    return _SAID[switch.phase].format(previous=switch.previous)


def print_standing(run: Invocation, switch: VectorSwitch, status: VectorStatus) -> None:
    """Print a pending switch, and the next command on stderr."""
    from edenmem.models.switch import WAY_ON

    total = status.total
    run.out.fields(
        [
            ("switch to", f"{switch.model} ({switch.dimensions:,} dimensions)"),
            ("  state", standing(switch)),
            ("  vectors", f"{total.current:,} of {many(total.facts, 'fact')}"),
        ]
    )
    run.out.note(WAY_ON[switch.phase])


def standing_data(switch: VectorSwitch, status: VectorStatus) -> dict[str, Any]:
    """Return a pending switch as data."""
    return to_data(switch) | {"in_force": switch.in_force, "vectors": to_data(status.total)}


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as data."""
    return to_data(comparison) | {"loss": comparison.loss}


def print_comparison(run: Invocation, comparison: Comparison) -> None:
    """Print the scores of both models for each recipe."""
    run.out.fields([("old", comparison.old_model), ("new", comparison.new_model)])
    k = comparison.top_k
    columns: list[Column[RecipePair]] = [
        Column("recipe", lambda pair: pair.recipe),
        Column(f"recall@{k} old", lambda pair: pair.old.recall, "number"),
        Column("new", lambda pair: pair.new.recall, "number"),
        Column("MRR@10 old", lambda pair: pair.old.mrr, "number"),
        Column("new", lambda pair: pair.new.mrr, "number"),
        Column("nDCG@10 old", lambda pair: pair.old.ndcg, "number"),
        Column("new", lambda pair: pair.new.ndcg, "number"),
    ]
    run.out.listing(comparison.pairs, columns)


def print_ending(run: Invocation, ending: SwitchEnding) -> None:
    """Print the result of an action on a switch."""
    run.out.report([ending], lambda: _show_ending(run, ending))


def _show_ending(run: Invocation, ending: SwitchEnding) -> None:
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


def cost_of(cost: float | None) -> str:
    """Format the cost of embedding, with a hint if the price is unknown."""
    hint = " (set embedding.prices)" if cost is None else ""
    return format_cost(cost) + hint


def print_plan(run: Invocation, plan: BackfillPlan) -> None:
    """Print the plan of a backfill."""
    total = plan.status.total
    run.out.record(
        plan,
        [
            ("model", plan.model),
            ("would embed", many(plan.facts, "fact")),
            ("missing", total.missing or None),
            ("wrong length", total.wrong_length or None),
            (
                "other models",
                [f"{name}: {count:,}" for name, count in sorted(total.others.items())],
            ),
            ("tokens", f"about {plan.tokens:,}"),
            ("cost", cost_of(plan.cost)),
        ],
        data=plan_data,
    )


def print_report(run: Invocation, report: BackfillReport) -> None:
    """Print the report of a backfill; failed batches go to stderr."""
    run.out.record(
        report,
        [
            ("model", report.model),
            ("embedded", many(report.embedded, "fact")),
            ("changed since", report.changed or None),
            ("failed", sum(len(batch.fact_ids) for batch in report.failed) or None),
            ("tokens", f"{report.tokens:,}"),
            ("cost", cost_of(report.cost)),
            ("took", f"{report.seconds:.1f} s"),
        ],
        data=report_data,
    )
    print_failures(report)


def report_data(report: BackfillReport) -> dict[str, Any]:
    """Return the report of a backfill as data."""
    return to_data(report) | {"tokens": report.tokens, "cost": report.cost}


def print_failures(report: BackfillReport) -> None:
    """Print failed facts on stderr."""
    for batch in report.failed:
        first, count = batch.fact_ids[0], len(batch.fact_ids)
        others = f" and {count - 1} more" if count > 1 else ""
        print_error(f"{first}{others}: {batch.reason}", batch.hint)
    if report.stopped_early:
        print_error(f"stopped early: {report.stopped_early}", report.hint)


@contextmanager
def progress_of(run: Invocation, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows the number of embedded facts on a terminal."""
    with show_progress(run.out) as progress:
        yield lambda done: progress.step("embedding", done, total)
