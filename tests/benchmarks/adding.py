"""Adding one fact, all indexes kept, committed to the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import msgspec

from edenmem.embed.protocol import Embedding, Role
from edenmem.models.memory import Fact
from edenmem.store.sqlite import SqliteStore
from tests.benchmarks import data, plain
from tests.benchmarks.measure import Bench, Row, Target, interleaved, median
from tests.benchmarks.world import adding, plain_row
from tests.support.editing import AwaitedEditor
from tests.support.runtime import make_runtime

_PLAIN = "same rows by sqlite3, same synchronous mode"


class ReadyVectors:
    """An embedder that takes no time: it hands out vectors that were made before."""

    model = data.MODEL
    dimensions = data.DIMENSIONS

    def __init__(self, vectors: Sequence[bytes]) -> None:
        self._vectors = vectors
        self._next = 0
        self.calls = 0

    async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Embedding:
        """As many vectors as there are texts, in turn."""
        self.calls += 1
        places = range(self._next, self._next + len(texts))
        self._next += len(texts)
        return Embedding(
            vectors=tuple(self._vectors[place % len(self._vectors)] for place in places)
        )

    async def close(self) -> None:
        """Nothing to let go of."""


def measure(bench: Bench) -> list[Row]:
    """Through the store, and the whole way of ``fact add``: checks, vector, audit, report."""
    count = bench.times(150)
    fresh = [_revised(fact) for fact in data.facts(3 * (count + 1), start=bench.size + 1000)]
    store = SqliteStore(bench.world.edenmem)
    hand = plain.connect(bench.world.plain)
    by_store, by_hand, by_editor = (iter(fresh[part::3]) for part in range(3))
    embedder = ReadyVectors([fact.embedding or b"" for fact in fresh])
    editor = AwaitedEditor(
        make_runtime(store, embedder=embedder, actor=data.ACTOR, clock=data.clock)
    )
    before = store.database.info().counts["facts"]
    with asyncio.Runner() as runner:

        def edit(facts: Iterator[Fact]) -> None:
            fact = next(facts)
            runner.run(editor.add_fact(fact.home, fact.content, allow_long=True))

        taken = interleaved(
            {
                "plain": lambda: plain.add(hand, [plain_row(next(by_hand))]),
                "store": lambda: store.changes.apply(adding([next(by_store)])),
                "editor": lambda: edit(by_editor),
            },
            count,
        )
    agrees = store.database.info().counts["facts"] == before + 2 * (count + 1)
    store.database.close()
    hand.close()
    baseline = median(taken["plain"])
    subject = f"add one fact to {bench.size:,}, committed"
    return [
        Row(subject, "ms", median(taken["store"]), _PLAIN, baseline, Target("figure", 2), agrees),
        Row(
            f"{subject}, by the editor with its checks",
            "ms",
            median(taken["editor"]),
            _PLAIN,
            baseline,
            agrees=agrees,
        ),
    ]


def _revised(fact: Fact) -> Fact:
    """A fact that its session's row is not needed for."""
    return msgspec.structs.replace(fact, session_id=None)
