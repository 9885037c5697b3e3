"""``edenmem embed backfill --switch``: the whole of memory to another embedding model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.commands.indexes.backfill_views import (
    cost_of,
    print_failures,
    print_report,
    progress_of,
    report_data,
)
from edenmem.cli.commands.indexes.switch_views import comparison_data, print_comparison, standing
from edenmem.cli.terminal.data import plan_data, to_data
from edenmem.cli.terminal.files import lines_of
from edenmem.cli.terminal.prompts import confirm
from edenmem.errors import EdenmemError, ExitCode, UsageError

if TYPE_CHECKING:
    from edenmem.engine.embeddings.backfill import BackfillReport
    from edenmem.engine.embeddings.switch import SwitchPlan
    from edenmem.engine.evaluation.queries import LabelledSet
    from edenmem.engine.evaluation.tuning import Comparison
    from edenmem.engine.service import MemoryService
    from edenmem.settings.schema import Settings


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the options of the command ask for."""

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


def changes_of(model: str | None, to: Sequence[str]) -> dict[str, str]:
    """The settings of the new model that differ from those in force, by dotted key.

    Raises:
        UsageError: one is not written as NAME=VALUE, or is a secret, which others could see.
    """
    from edenmem.settings.schema import SECRETS

    changes = {"embedding.model": model} if model else {}
    for text in to:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--to {text!r}: write NAME=VALUE, such as dimensions=1024")
        key = "embedding." + name.strip().removeprefix("embedding.")
        if key in SECRETS:
            raise UsageError(
                f"--to {name}: every user of this machine could see it",
                hint="write it into a profile of a configuration file that only you may read, and "
                "name that with --to-profile",
            )
        changes[key] = value
    if "embedding.local_model" in changes:  # nothing else that is configured is meant then
        changes = {"embedding.provider": "local", "embedding.local_path": "", **changes}
    return changes


def switch(run: Invocation, wishes: Wishes) -> None:
    """Prepare the switch, compare, and make it; each step as far as it is wanted."""
    settings = _settings_after(run, wishes)
    labelled = _read_labelled_set(run, wishes.compare)
    plan = _make_plan(run, settings)
    if wishes.dry_run:
        _print_plan(run, plan)
        return
    _announce(run, plan)
    if plan.backfill.facts and not confirm(
        f"Make {plan.backfill.facts:,} vectors beside those that are there?", yes=wishes.yes
    ):
        run.out.note("nothing was changed")
        return
    filled = _fill_vectors(run, settings, wishes, plan)
    comparison = _compare_models(run, settings, wishes, plan, labelled) if labelled else None
    if wishes.prepare_only:
        _print_outcome(run, plan, filled, comparison)
        run.out.note(f"{plan.switch.previous} is in force as before; the same command switches")
        return
    if comparison is not None:
        _refuse_loss(comparison, wishes)
    if plan.switch.phase == "filling" and not confirm(
        f"Switch from {plan.switch.previous} to {plan.switch.model}?", yes=wishes.yes
    ):
        run.out.note("all is prepared, and nothing was switched")
        return

    async def commit(service: MemoryService) -> None:
        async with service.embeddings.switching(settings) as switcher:
            await switcher.commit(concurrency=wishes.concurrency, patience=wishes.patience)

    run.serve(commit)
    after = _make_plan(run, settings)
    _print_outcome(run, after, filled, comparison)
    _print_configuration(run, after, wishes)


# -- the steps -----------------------------------------------------------------------------------


def _settings_after(run: Invocation, wishes: Wishes) -> Settings:
    if not wishes.changes and wishes.profile is None:
        return run.settings
    from edenmem.settings.load import load_settings

    kept = dict(run.overrides)
    if wishes.profile is not None:  # what --set says of the embedding is of the model in force
        kept = {key: value for key, value in kept.items() if not key.startswith("embedding.")}
    loaded = load_settings(
        config=Path(run.config) if run.config else None,
        profile=wishes.profile or run.profile,
        overrides={**kept, **wishes.changes},
    )
    return loaded.settings


def _make_plan(run: Invocation, settings: Settings) -> SwitchPlan:
    async def work(service: MemoryService) -> SwitchPlan:
        async with service.embeddings.switching(settings) as switcher:
            return await switcher.plan()

    return run.serve(work)


def _read_labelled_set(run: Invocation, file: str | None) -> LabelledSet | None:
    if file is None:
        return None
    with lines_of(file) as lines:
        labelled = run.service.evaluation.read(lines)
    for unknown in labelled.unknown:
        run.out.note(f"line {unknown.line}: {unknown.why}")
    return labelled


def _fill_vectors(
    run: Invocation, settings: Settings, wishes: Wishes, plan: SwitchPlan
) -> BackfillReport:
    from edenmem.engine.embeddings.switch import count_missing

    async def fill(service: MemoryService) -> BackfillReport:
        async with service.embeddings.switching(settings) as switcher:
            with progress_of(run, plan.backfill.facts) as show:
                return await switcher.fill(plan, concurrency=wishes.concurrency, progress=show)

    report = run.serve(fill)
    if report.stopped_early or count_missing(report):
        print_report(run, report)
        run.out.note(f"{plan.switch.in_force} is in force as before; run the same command to go on")
        raise typer.Exit(ExitCode.UNAVAILABLE if report.stopped_early else ExitCode.SOME_FAILED)
    return report


def _compare_models(
    run: Invocation, settings: Settings, wishes: Wishes, plan: SwitchPlan, labelled: LabelledSet
) -> Comparison:
    async def compare(service: MemoryService) -> Comparison:
        async with service.embeddings.switching(settings) as switcher:
            await switcher.wait(patience=wishes.patience, progress=run.out.progress)
            return await service.embeddings.compare(switcher, plan, labelled.queries)

    comparison = run.serve(compare)
    if not run.out.is_data:
        print_comparison(run, comparison)
    return comparison


def _refuse_loss(comparison: Comparison, wishes: Wishes) -> None:
    if comparison.loss <= wishes.max_loss or wishes.force:
        return
    pair = comparison.pairs[0]
    raise EdenmemError(
        f"with {comparison.new_model} recall@{comparison.top_k} of recipe {pair.recipe!r} falls "
        f"from {pair.old.recall:.3f} to {pair.new.recall:.3f}, by more than {wishes.max_loss:g}; "
        f"{comparison.old_model} stays in force",
        hint="allow it with --max-loss or --force, or take all back with 'edenmem embed switch "
        "abandon'",
    )


# -- printing ------------------------------------------------------------------------------------


def _announce(run: Invocation, plan: SwitchPlan) -> None:
    facts = plan.backfill.facts
    if not facts:
        run.out.note(f"all vectors of {plan.switch.model} are there")
        return
    run.out.note(
        f"{facts:,} facts to embed with {plan.switch.model}, about {plan.backfill.tokens:,} "
        f"tokens, {cost_of(plan.backfill.cost)}"
    )
    if plan.switch.phase == "filling":
        run.out.note(f"searches go by {plan.switch.in_force} until the switch")


def _print_plan(run: Invocation, plan: SwitchPlan) -> None:
    backfill = plan.backfill
    run.out.record(
        plan,
        [
            ("from", plan.switch.previous),
            ("to", f"{plan.switch.model} ({plan.switch.dimensions:,} dimensions)"),
            ("begun", standing(plan.switch) if plan.begun else "not yet"),
            ("would embed", f"{backfill.facts:,} facts, beside the vectors that they have"),
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
            ("  is", standing(plan.switch)),
            ("embedded", f"{filled.embedded:,} facts"),
            ("tokens", f"{filled.tokens:,}"),
            ("cost", cost_of(filled.cost)),
            ("took", f"{filled.seconds:.1f} s"),
        ],
        data=dict,
    )
    print_failures(filled)


def _print_configuration(run: Invocation, plan: SwitchPlan, wishes: Wishes) -> None:
    """What to write down, so that other processes follow."""
    values = ", ".join(
        f"{key.partition('.')[2]} = {_toml(value)}" for key, value in wishes.changes.items()
    )
    if wishes.profile is not None:
        run.out.note(f"now use profile {wishes.profile!r}, or what it says under [embedding]")
    if values:
        run.out.note(f"now put under [embedding] into edenmem.toml: {values}")
    run.out.note(
        f"processes that still use {plan.switch.previous} are served until 'edenmem embed switch "
        "drop-old'; 'edenmem embed switch back' undoes the switch"
    )


def _toml(value: str) -> str:
    import json

    return value if value.isdigit() else json.dumps(value, ensure_ascii=False)
