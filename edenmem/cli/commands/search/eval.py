"""``edenmem eval``: measure search quality on labeled queries."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app.invocation import Invocation, end_if, invocation
from edenmem.cli.app.views import read_labeled_set
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.tables import Column
from edenmem.errors import UsageError

if TYPE_CHECKING:
    from edenmem.engine.evaluation.evaluator import Evaluation, RecipeScore
    from edenmem.engine.evaluation.tuning import Tuning


def eval(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="QUERIES", help="JSON Lines (- = stdin).")],
    recipes: Annotated[
        list[str] | None,
        typer.Option(
            "--recipe",
            metavar="NAME",
            help="Recipe to measure, such as convex+mmr (repeatable).  [default: all fusions]",
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", "-k", min=1, max=100, metavar="N", help="The k in recall@k."),
    ] = None,
    by_kind: Annotated[
        bool, typer.Option("--by-kind", help="Also measure each 'kind' of query.")
    ] = False,
    tune: Annotated[
        bool, typer.Option("--tune", help="Search for better settings and print them.")
    ] = False,
) -> None:
    """Measure search recipes on labeled queries.

    Each line holds a query, its options as in 'edenmem search', and the relevant facts by ID or
    exact text, or an empty list if nothing answers the query. No accesses are counted.

    \b
    {"query": "when does the walk start", "agent": "mira", "user": "lena",
     "relevant": ["It starts at 17:30."], "kind": "date"}

    \b
    edenmem eval queries.jsonl
    edenmem eval queries.jsonl --recipe convex --recipe convex+rerank --top-k 5
    edenmem eval queries.jsonl --tune
    """
    run = invocation(ctx)
    if tune and (top_k is not None or by_kind):
        raise UsageError("--tune optimizes nDCG@10; run it without --top-k and --by-kind")
    labeled = read_labeled_set(run, file)
    queries, names = labeled.queries, list(recipes or ())
    if queries and tune:
        run.out.progress("trying settings …")
        tuning = run.serve(lambda service: service.evaluation.tune(queries, recipes=names))
        print_tuning(run, tuning)
    elif queries:
        evaluation = run.serve(
            lambda service: service.evaluation.evaluate(queries, recipes=names, top_k=top_k)
        )
        _print_evaluation(run, evaluation, by_kind=by_kind)
    answered = len(queries) - labeled.unanswerable
    parts = [f"{answered} answerable {'query' if answered == 1 else 'queries'}"]
    if labeled.unanswerable:
        parts.append(f"{labeled.unanswerable} unanswerable (silent: no results)")
    if labeled.lost:
        parts.append(f"{len(labeled.lost)} skipped without a known label")
    run.out.note(", ".join(parts))
    end_if(labeled.unknown)


def _print_evaluation(run: Invocation, evaluation: Evaluation, *, by_kind: bool) -> None:
    """Print the scores of each recipe."""
    run.out.notes(evaluation.notices)
    scores = evaluation.scores if by_kind else evaluation.overall()
    columns: list[Column[RecipeScore]] = [
        Column("recipe", lambda score: score.recipe),
        Column("kind", lambda score: (score.kind or "all") if by_kind else None),
        Column(f"recall@{evaluation.top_k}", lambda score: _figure(score.recall), "number"),
        Column("MRR@10", lambda score: _figure(score.mrr), "number"),
        Column("nDCG@10", lambda score: _figure(score.ndcg), "number"),
        Column("queries", lambda score: score.queries, "number"),
        Column(
            "silent",
            lambda s: f"{s.silent} of {s.unanswerable}" if s.unanswerable else None,
            "number",
        ),
    ]
    run.out.listing(
        scores, columns, data=lambda score: to_data(score) | {"top_k": evaluation.top_k}
    )


def _figure(value: float) -> float | None:
    return None if math.isnan(value) else value


def print_tuning(run: Invocation, tuning: Tuning) -> None:
    """Print the result of tuning, and the commands that set the best settings."""
    out, commands = run.out, list[str]()
    if not tuning.is_noise:
        changes = tuning.changes.items()
        commands = [f"edenmem config set search.{name} {value}" for name, value in changes]
    data = to_data(tuning) | {"is_noise": tuning.is_noise, "commands": commands}
    if out.data([data], dict):
        return
    out.fields(
        [
            ("queries", tuning.queries),
            ("settings tried", tuning.tried),
            ("current", _format_settings(tuning.current)),
            ("  nDCG@10", f"{tuning.current_ndcg:.3f}"),
            ("best", _format_settings(tuning.best)),
            ("  nDCG@10", f"{tuning.best_ndcg:.3f} on the queries used for tuning"),
            ("held out", f"{tuning.held_out_ndcg:.3f} on held-out queries"),
            ("gain", f"{tuning.gain:+.3f} ± {tuning.spread:.3f} (standard error)"),
            ("agreement", f"{tuning.folds_agree:.0%} of folds chose these settings"),
        ]
    )
    if not tuning.changes:
        out.line("\nthe current settings are the best of those tried")
    elif tuning.is_noise:
        out.line("\nthe gain is within noise: keep the settings, or label more queries")
    else:
        out.safe("\n".join(["\nto use the best settings:\n", *commands]))


def _format_settings(settings: dict[str, str | float]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())
