"""``edenmem eval``: measure search quality on labeled queries."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app.invocation import Invocation, end_if, invocation
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.files import file_name, lines_of
from edenmem.cli.terminal.tables import Column
from edenmem.errors import line_location

if TYPE_CHECKING:
    from edenmem.engine.evaluation import Evaluation, RecipeScore


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
    """
    run = invocation(ctx)
    with lines_of(file) as lines:
        labeled = run.service.evaluation.read(lines)
    run.out.notes(
        f"{line_location(unknown.line, file_name(file))}: {unknown.why}"
        for unknown in labeled.unknown
    )
    queries, names = labeled.queries, list(recipes or ())
    if queries:
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
