"""What the first pass loses: its ten nearest beside those of an exact scan."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from edenmem.models.memory import Fact, content_hash
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import batched
from edenmem.store.sqlite import SqliteStore
from tests.benchmarks.data import DIMENSIONS, MODEL, NOW, Floats, agent_id, questions, unit
from tests.benchmarks.measure import Bench, Row, Target, interleaved, median
from tests.benchmarks.vocabulary import question, sentence
from tests.benchmarks.world import BATCH, adding

_SCAN = "exact scan, numpy float32"
_TEN = 10
_MOST_REAL = 10_000
_TARGET = Target("figure", 0.995, at_least=True)


def measure(bench: Bench) -> list[Row]:
    """On the vectors of real sentences, if the local model is installed, and on synthetic ones."""
    return [*_real(bench), *synthetic(bench)]


def _real(bench: Bench) -> list[Row]:
    from edenmem.embed.local import LocalEmbedder
    from edenmem.embed.model_files import find_bundled_model
    from edenmem.onnx import has_runtime

    files = find_bundled_model() if has_runtime() else None
    if files is None:
        bench.note("the local model is not installed (extra `local`): no recall on real vectors")
        return []
    count = min(bench.size, _MOST_REAL)
    texts = [sentence(index) for index in range(count)]
    asked = [question(texts[index % count], index) for index in range(bench.times(200))]

    async def embed() -> tuple[bytes, ...]:
        embedder = LocalEmbedder(files)
        facts = await embedder.embed(texts, role="passage")
        queries = await embedder.embed(asked, role="query")
        await embedder.close()
        return (*facts.vectors, *queries.vectors)

    vectors = asyncio.run(embed())
    store = SqliteStore(bench.folder / "real.db")
    store.database.initialize()
    facts = (_fact(number, text, vectors[number]) for number, text in enumerate(texts))
    for batch in batched(facts, BATCH):
        store.changes.apply(adding(batch))
    whole = np.frombuffer(b"".join(vectors[:count]), np.float32).reshape(count, -1)
    rows = _compare(
        bench,
        store,
        f"recall@10, {count:,} MiniLM vectors",
        (Scope.agent(agent_id(0)),),
        "MiniLM",
        whole,
        vectors[count:],
    )
    store.database.close()
    return rows


def _fact(number: int, text: str, vector: bytes) -> Fact:
    return Fact(
        id=f"{number:024x}",
        scope=Scope.agent(agent_id(0)).kind,
        agent_id=agent_id(0),
        content=text,
        hash=content_hash(text),
        formed_at=NOW,
        embedding=vector,
        embedding_model="MiniLM",
    )


def synthetic(bench: Bench) -> list[Row]:
    """On the vectors of the biggest scope of the data."""
    store = SqliteStore(bench.world.edenmem)
    scope = Scope.agent(agent_id(0))
    filter = FactFilter(scopes=(scope,))
    stored = store.memory.facts(filter, with_vectors=True)
    whole = np.empty((sum(1 for _ in store.memory.facts(filter)), DIMENSIONS), np.float32)
    for row, fact in zip(whole, stored, strict=True):  # one copy of the vectors at a time
        row[:] = np.frombuffer(fact.embedding or b"", np.float32)
    asked = [one.vector for one in questions(bench.times(200), bench.size)]
    name = f"recall@10, {len(whole):,} synthetic vectors of {DIMENSIONS:,}"
    rows = _compare(bench, store, name, (scope,), MODEL, whole, asked)
    store.database.close()
    return rows


def _compare(
    bench: Bench,
    store: SqliteStore,
    subject: str,
    scopes: tuple[Scope, ...],
    model: str,
    whole: Floats,
    asked: Sequence[bytes],
) -> list[Row]:
    """Recall of ten candidates alone, which is harder than of the first ten of a hundred, and
    the time of both ways. A neighbor as near as the tenth counts as found."""
    filter = FactFilter(scopes=scopes)
    whole = unit(whole)
    found = 0.0

    def ours(vector: bytes) -> list[float]:
        [list_] = store.search.semantic_candidates(filter, [vector], model=model, limit=_TEN)
        return [candidate.score for candidate in list_]

    def theirs(vector: bytes) -> Floats:
        scores = (1 + whole @ unit(np.frombuffer(vector, np.float32))) / 2
        return np.sort(np.partition(scores, len(scores) - _TEN)[-_TEN:])

    for vector in asked:
        bar = float(theirs(vector)[0]) - 1e-5
        found += sum(score >= bar for score in ours(vector)) / _TEN
    taken = interleaved(
        {
            "ours": lambda: [ours(vector) for vector in asked[:20]],
            "theirs": lambda: [theirs(vector) for vector in asked[:20]],
        },
        bench.times(5),
    )
    each = {name: median(ms) / len(asked[:20]) for name, ms in taken.items()}
    return [
        Row(subject, "share", found / len(asked), _SCAN, 1.0, _TARGET),
        Row(f"{subject}: time", "ms", each["ours"], _SCAN, each["theirs"]),
    ]
