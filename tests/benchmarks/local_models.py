"""``python -m tests.benchmarks.local_models``: both local models, in English and six languages.

Measures on the labeled sets, in SQLite stores that are removed afterwards, with the defaults. The
interval is of the mean difference: 10,000 resamples of the queries, 95 %. Processor time is that
of one thread, for the facts of the sets one by one.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from edenmem.embed.local import LocalEmbedder
from edenmem.embed.protocol import Embedder
from edenmem.engine.evaluation import Evaluator, LabeledQuery, read_queries
from edenmem.engine.factory import open_embedder
from edenmem.settings.schema import EmbeddingSettings, Settings
from edenmem.store.sqlite import SqliteStore
from tests.benchmarks import labels
from tests.support.evaluation import overall
from tests.support.intervals import paired_bootstrap
from tests.support.runtime import make_runtime

Model = Literal["all-MiniLM-L6-v2", "multilingual-e5-small"]
MODELS: tuple[Model, ...] = ("all-MiniLM-L6-v2", "multilingual-e5-small")
RECIPES = ("convex", "semantic")
_TIMED = 100


class QueryScores(NamedTuple):
    """The measures of one query."""

    ndcg: float
    recall: float


#: The scores of each query that has an answer, by kind and recipe, in the order of the queries.
Scores = Mapping[tuple[str, str], Sequence[QueryScores]]


async def score(data: labels.Labeled, embedder: Embedder, settings: Settings) -> Scores:
    """Measure each query of ``data`` alone."""
    with tempfile.TemporaryDirectory(prefix="edenmem-models-") as folder:
        store = SqliteStore(Path(folder) / "models.db")
        try:
            await labels.fill(store, data.facts, embedder)
            labeled = read_queries(store, data.lines())
            assert not labeled.unknown, labeled.unknown
            evaluator = Evaluator(
                make_runtime(store, settings, embedder=embedder, clock=lambda: labels.NOW)
            )
            return await _each(evaluator, [one for one in labeled.queries if one.relevant])
        finally:
            store.database.close()


async def _each(evaluator: Evaluator, queries: Sequence[LabeledQuery]) -> Scores:
    scores: dict[tuple[str, str], list[QueryScores]] = {}
    for query in queries:
        evaluation = await evaluator.evaluate([query], recipes=RECIPES, top_k=10)
        for found in overall(evaluation):
            scores.setdefault((query.kind, found.recipe), []).append(
                QueryScores(found.ndcg, found.recall)
            )
    return scores


def table(name: str, old: Scores, new: Scores, *, by_kind: bool) -> list[str]:
    """The rows of one set."""
    kinds = list(dict.fromkeys(kind for kind, _ in old)) if by_kind else []
    rows = []
    for recipe in RECIPES:
        for group in (*([kind] for kind in kinds), None):
            pairs = [
                pair
                for (kind, of), scores in old.items()
                if of == recipe and (group is None or kind in group)
                for pair in zip(scores, new[kind, of], strict=True)
            ]
            label = f"{name}: {group[0]}" if group else name
            rows.append(_row(label, recipe, pairs))
    return rows


def _row(label: str, recipe: str, pairs: Sequence[tuple[QueryScores, QueryScores]]) -> str:
    before, after = (np.mean([pair[side] for pair in pairs], axis=0) for side in (0, 1))
    low, high = paired_bootstrap([new.ndcg - old.ndcg for old, new in pairs])
    gain = after[0] - before[0]
    return (
        f"| {label} | {recipe} | {len(pairs)} | {before[0]:.3f} | {after[0]:.3f} "
        f"| {gain:+.3f} ({low:+.3f} to {high:+.3f}) | {before[1]:.3f} | {after[1]:.3f} |"
    )


async def processor_ms(embedder: LocalEmbedder, texts: Sequence[str]) -> float:
    """Milliseconds of processor time a text, the loading of the model left out."""
    await embedder.embed(texts[:2], role="passage")
    began = time.process_time()
    for text in texts:
        await embedder.embed([text], role="passage")
    return (time.process_time() - began) * 1000 / len(texts)


async def main() -> None:
    """Measure and print."""
    sets = {"English": labels.own(), "six languages": labels.languages()}
    texts = [data.facts[at].content for at in range(_TIMED // 2) for data in sets.values()]
    scores: dict[tuple[str, str], Scores] = {}
    times: list[str] = []
    for model in MODELS:
        settings = msgspec.structs.replace(
            Settings(), embedding=EmbeddingSettings(provider="local", local_model=model)
        )
        embedder = open_embedder(settings)
        assert isinstance(embedder, LocalEmbedder), f"{model} is not installed"
        single = LocalEmbedder(embedder._files, threads=1)
        times.append(f"{model} {await processor_ms(single, texts):.1f} ms")
        for name, data in sets.items():
            scores[name, model] = await score(data, single, settings)
        await single.close()
        await embedder.close()
    head = "set | recipe | queries | nDCG@10 MiniLM | E5 | difference (95 %) | recall@10 | E5"
    lines = [f"| {head} |", "| --- | --- |" + " ---: |" * 6]
    for name in sets:
        old, new = (scores[name, model] for model in MODELS)
        lines += table(name, old, new, by_kind=name != "English")
    lines += ["", f"Processor time a sentence: {', '.join(times)}."]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
