"""Views of a backfill: plan, progress and report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from edenmem.cli.app.failures import print_error
from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.data import plan_data, to_data
from edenmem.cli.terminal.money import format_cost
from edenmem.cli.terminal.progress import show_progress
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.engine.embeddings.backfill import BackfillPlan, BackfillReport


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
