"""``python -m tests.benchmarks.quality``: how well each recipe finds what it should.

Measures on a labeled set of our own (``--set``; "sources" has facts with source messages), or with
``--locomo PATH`` on LoCoMo's published file, with the local embedding model, in a temporary SQLite
store. With ``--rerank-path FOLDER``, or ``--rerank-url URL --rerank-model NAME`` (and a key in
``EDENMEM_SEARCH_RERANK_API_KEY``), also with a reranker.

``--save FILE`` keeps the nDCG of each query, and ``--against FILE`` compares with what an earlier
version kept: the difference of the means, with a confidence interval from a paired bootstrap.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from edenmem.engine.evaluation import (
    CUTOFF,
    Evaluation,
    Evaluator,
    LabeledQuery,
    LabeledSet,
    RecipeScore,
    read_queries,
)
from edenmem.engine.factory import open_embedder, open_reranker
from edenmem.search.metrics import ndcg
from edenmem.search.recipes import RECIPES, recipe
from edenmem.settings.schema import EmbeddingSettings, SearchSettings, Settings
from edenmem.store.sqlite import SqliteStore
from tests.benchmarks import labels, locomo
from tests.support.evaluation import overall
from tests.support.intervals import paired_bootstrap
from tests.support.runtime import make_runtime

#: The labeled sets of our own, by name.
SETS: dict[str, Callable[[], labels.Labeled]] = {
    "own": labels.own,
    "sources": labels.with_sources,
    "town": labels.town,
    "long": labels.long,
    "turns": partial(labels.long, "turns"),
}
SETTINGS = Settings(embedding=EmbeddingSettings(provider="local"))
#: Stages, each alone after the default fusion, and those that a reranker goes with.
STAGED = ("convex+recency", "convex+mmr")
#: With the words of source messages, and without, for comparison.
WITH_SOURCE = {"convex+source": "convex", "text+source": "text"}
RERANKED = ("convex+rerank", "rrf+rerank", "text+rerank")


class Measured(NamedTuple):
    """What came out. ``model`` is the embedding model, ``reranker`` empty if there was none;
    ``gains`` are nDCG@10 by fusion and query."""

    labeled: LabeledSet
    facts: int
    model: str
    reranker: str
    evaluation: Evaluation
    gains: dict[str, dict[str, float]]


async def measure(
    data: labels.Labeled,
    folder: Path,
    *,
    search: SearchSettings = SETTINGS.search,
) -> Measured:
    """Measure the fusions and the stages after them on ``data``; the store is made in ``folder``.

    The time is that at which the facts of the set are known.
    """
    settings = Settings(embedding=SETTINGS.embedding, search=search)
    embedder = open_embedder(settings)
    reranker = open_reranker(settings)
    has_sources = any(fact.sources for fact in data.facts)
    fusions = (*RECIPES, *(WITH_SOURCE if has_sources else ()))
    recipes = (*fusions, *STAGED, *(RERANKED if reranker else ()))
    store = SqliteStore(folder / "quality.db")
    try:
        await labels.fill(store, data.facts, embedder)
        labeled = read_queries(store, data.lines())
        assert not labeled.unknown, labeled.unknown
        evaluator = Evaluator(
            make_runtime(
                store, settings, embedder=embedder, reranker=reranker, clock=lambda: labels.NOW
            )
        )
        return Measured(
            labeled=labeled,
            facts=len(data.facts),
            model=embedder.model if embedder else "none",
            reranker=reranker.model if reranker else "",
            evaluation=await evaluator.evaluate(labeled.queries, recipes=recipes),
            gains=await _gains(evaluator, labeled.queries, fusions),
        )
    finally:
        store.database.close()
        for provider in (embedder, reranker):
            if provider is not None:
                await provider.close()


async def _gains(
    evaluator: Evaluator, queries: Sequence[LabeledQuery], fusions: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return the nDCG of each query that has an answer, by fusion."""
    gains: dict[str, dict[str, float]] = {}
    for name in fusions:
        reports = await evaluator.search(recipe(name), queries, top_k=CUTOFF)
        gains[name] = {
            # Two people may ask the same.
            f"{number} {query.query}": ndcg(
                [hit.fact.id for hit in report.hits], query.relevant, k=CUTOFF
            )
            for number, (query, report) in enumerate(zip(queries, reports, strict=True))
            if query.relevant
        }
    return gains


class Difference(NamedTuple):
    """By how much the mean grew over the same queries, and the interval that holds 95 % of the
    means of resampled queries."""

    before: float
    after: float
    gain: float
    low: float
    high: float


def compare(before: Mapping[str, float], after: Mapping[str, float]) -> Difference:
    """Compare by the paired bootstrap, over queries that both have."""
    both = sorted(before.keys() & after.keys())
    one, other = (np.array([each[query] for query in both]) for each in (before, after))
    gains = other - one
    low, high = paired_bootstrap(gains.tolist())
    return Difference(float(one.mean()), float(other.mean()), float(gains.mean()), low, high)


def _compared(
    before: Mapping[str, Mapping[str, float]], after: Mapping[str, Mapping[str, float]]
) -> str:
    rows = []
    for name in after:
        if name in before:
            rows.append([name, *_difference(compare(before[name], after[name]))])
    return _table(["nDCG@10", *_DIFFERENCE], rows)


_DIFFERENCE = ("before", "after", "difference", "95 %")


def _difference(found: Difference) -> list[str]:
    interval = f"{found.low:+.3f} to {found.high:+.3f}"
    return [_figure(found.before), _figure(found.after), f"{found.gain:+.3f}", interval]


def report(measured: Measured) -> str:
    """All that was measured, in Markdown."""
    evaluation, labeled = measured.evaluation, measured.labeled
    answered = len(labeled.queries) - labeled.unanswerable
    parts = [
        f"{measured.facts:,} facts, {answered:,} queries with an answer, "
        f"{labeled.unanswerable:,} without one; embedding model {measured.model}"
        f"{f', reranker {measured.reranker}' if measured.reranker else ''}. "
        "Silent: queries without an answer for which nothing was found.",
        _overall(evaluation),
        f"nDCG@10 by kind of query:\n\n{_by_kind(evaluation)}",
    ]
    compared = [
        [name, *_difference(compare(measured.gains[plain], measured.gains[name]))]
        for name, plain in WITH_SOURCE.items()
        if name in measured.gains
    ]
    if compared:
        parts.append(_table(["with the words of the source", *_DIFFERENCE], compared))
    return "\n\n".join(parts)


def _overall(evaluation: Evaluation) -> str:
    rows = [
        [
            score.recipe,
            *map(_figure, (score.recall, score.mrr, score.ndcg)),
            f"{score.silent} of {score.unanswerable}",
        ]
        for score in overall(evaluation)
    ]
    return _table(["recipe", f"recall@{evaluation.top_k}", "MRR@10", "nDCG@10", "silent"], rows)


def _by_kind(evaluation: Evaluation) -> str:
    recipes = [score.recipe for score in overall(evaluation)]
    kinds: dict[str, dict[str, RecipeScore]] = {}
    for score in evaluation.scores:
        if score.kind and score.queries:
            kinds.setdefault(score.kind, {})[score.recipe] = score
    rows = [
        [kind, str(of[recipes[0]].queries), *(_figure(of[recipe].ndcg) for recipe in recipes)]
        for kind, of in kinds.items()
    ]
    return _table(["kind", "queries", *recipes], rows)


def _figure(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3f}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in header[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.quality", description="Measure the recipes of search."
    )
    parser.add_argument("--locomo", type=Path, metavar="PATH", help="LoCoMo's JSON file")
    parser.add_argument(
        "--unit",
        choices=["observations", "turns"],
        default="observations",
        help="what is a fact in LoCoMo (default: observations)",
    )
    parser.add_argument("--set", choices=SETS, default="own", help="the labeled set (default: own)")
    parser.add_argument(
        "--source-weight", type=float, default=None, metavar="W", help="search.source_weight"
    )
    parser.add_argument("--rerank-path", type=Path, metavar="FOLDER", help="an ONNX cross-encoder")
    parser.add_argument("--rerank-url", default="", metavar="URL", help="or an endpoint of one")
    parser.add_argument("--rerank-model", default="", metavar="NAME", help="and its model")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the nDCG of each query")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with what was kept")
    options = parser.parse_args(arguments)
    search = SearchSettings(
        rerank_path=str(options.rerank_path or ""),
        rerank_url=options.rerank_url,
        rerank_model=options.rerank_model,
        rerank_api_key=os.environ.get("EDENMEM_SEARCH_RERANK_API_KEY", ""),
    )
    if options.source_weight is not None:
        search = msgspec.structs.replace(search, source_weight=options.source_weight)
    try:
        chosen = SETS[options.set]
        data = locomo.load(options.locomo, unit=options.unit) if options.locomo else chosen()
    except (OSError, locomo.LocomoError) as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="edenmem-quality-") as folder:
        measured = asyncio.run(measure(data, Path(folder), search=search))
    sys.stdout.write(report(measured) + "\n")
    if options.save:
        options.save.write_text(json.dumps(measured.gains))
    if options.against:
        sys.stdout.write(
            f"\n{_compared(json.loads(options.against.read_text()), measured.gains)}\n"
        )


if __name__ == "__main__":
    main()
