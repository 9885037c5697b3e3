"""Look for vectors that belong to another text than their fact's, without asking a network.

All vectors are searched for those that facts in different words share, as a copy or a shifted write
leaves them. Where a model of this machine made the vectors, a sample is compared with new ones.
"""

from __future__ import annotations

import heapq
import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Sequence

from edenmem.embed.protocol import Embedder
from edenmem.engine.history.trails import digest
from edenmem.engine.migration.reports import Difference, VectorCheck
from edenmem.models.memory import Fact

#: The cosine of two vectors of one text is at least this.
_ALIKE = 0.98
#: Facts whose vectors are compared with new ones.
_SAMPLE = 200
#: Characters by which texts are told apart; models read little more of a long text.
_READ = 1000
_WORDS = re.compile(r"\w+")


class Vectors:
    """The vectors of facts, as 16 bytes for each, and a sample of the facts themselves."""

    def __init__(self) -> None:
        self._vectors = array("Q")
        self._words = array("Q")
        self._sample: list[tuple[int, str, Fact]] = []

    def __len__(self) -> int:
        return len(self._vectors)

    def add(self, fact: Fact) -> None:
        """Note a fact that has a vector."""
        if fact.embedding is None:
            return
        self._vectors.append(_mark_of_vector(fact))
        self._words.append(_mark_of_words(fact.content))
        # The same facts each time, and as good as chosen by chance.
        drawn = (-digest(fact.id.encode("utf-8", "surrogatepass")), fact.id, fact)
        push = heapq.heappush if len(self._sample) < _SAMPLE else heapq.heappushpop
        push(self._sample, drawn)

    def sample(self, model: str) -> list[Fact]:
        """Return the facts of the sample whose vectors are of a model."""
        return [fact for *_, fact in self._sample if fact.embedding_model == model]

    def shared(self) -> frozenset[int]:
        """Return the marks of vectors that belong to facts in different words."""
        import numpy as np

        vectors = np.frombuffer(self._vectors, dtype=np.uint64)
        words = np.frombuffer(self._words, dtype=np.uint64)
        order = np.lexsort((words, vectors))
        same = vectors[order][1:] == vectors[order][:-1]
        other = words[order][1:] != words[order][:-1]
        return frozenset(vectors[order][1:][same & other].tolist())


def _mark_of_vector(fact: Fact) -> int:
    return digest(f"{fact.embedding_model} ".encode() + (fact.embedding or b""))


def _mark_of_words(content: str) -> int:
    """Return 8 bytes that stand for words, whatever their case, accents and signs: models may read
    texts that differ in these alike."""
    plain = unicodedata.normalize("NFKD", content[:_READ].casefold())
    bare = "".join(each for each in plain if not unicodedata.combining(each))
    return digest(" ".join(_WORDS.findall(bare)).encode("utf-8", "surrogatepass"))


def check_vectors(
    vectors: Vectors, read: Callable[[], Iterable[Fact]], embedder: Embedder | None
) -> tuple[VectorCheck, list[Difference]]:
    """Return how far vectors were checked, and those of other texts. Blocks.

    Args:
        vectors: Those that there are.
        read: Reads the facts again, with their vectors.
        embedder: A model of this machine.

    Raises:
        ProviderError: the model cannot be used.
    """
    model = "" if embedder is None else embedder.model
    found = []
    for facts in _find_sharing(vectors, read):
        wrong: Sequence[Fact] = facts
        if embedder is not None and facts[0].embedding_model == model:
            wrong = _find_wrong(facts, embedder)  # the model may read them alike
        if wrong:
            other = next(each.id for each in facts if each.id != wrong[0].id)
            found.append(_describe(wrong[0], f"fact {other} has the same vector, in other words"))
    sample = vectors.sample(model) if embedder is not None else []
    if embedder is not None and sample:
        reason = f"{model} makes another vector of the text"
        named = {each.target_id for each in found}
        wrong = [each for each in _find_wrong(sample, embedder) if each.id not in named]
        found += [_describe(fact, reason) for fact in wrong]
    return VectorCheck(
        facts=len(vectors),
        compared=len(sample),
        model=model if sample else "",
        reason="" if sample or not len(vectors) else "their model is not the one that runs here",
    ), found


def _find_sharing(vectors: Vectors, read: Callable[[], Iterable[Fact]]) -> list[list[Fact]]:
    """Read the facts in different words that share a vector, in groups."""
    shared = vectors.shared()
    groups: dict[int, list[Fact]] = {}
    if shared:
        for fact in read():
            if fact.embedding is not None and (own := _mark_of_vector(fact)) in shared:
                groups.setdefault(own, []).append(fact)
    return [facts for facts in groups.values() if len(facts) > 1]


def _find_wrong(facts: Sequence[Fact], embedder: Embedder) -> list[Fact]:
    """Return the facts whose vectors are not those that the model makes of their texts."""
    import asyncio

    import numpy as np

    made = asyncio.run(embedder.embed([fact.content for fact in facts], role="passage")).vectors
    wrong = []
    for fact, vector in zip(facts, made, strict=True):
        own, new = (np.frombuffer(raw or b"", dtype="<f4") for raw in (fact.embedding, vector))
        if len(own) != len(new) or float(own @ new) < _ALIKE:
            wrong.append(fact)
    return wrong


def _describe(fact: Fact, reason: str) -> Difference:
    return Difference(
        kind="changed",
        target_type="fact",
        target_id=fact.id,
        scope=fact.home.key,
        source="",
        field="embedding",
        expected="the vector of its text",
        found="the vector of another text",
        reason=reason,
    )
