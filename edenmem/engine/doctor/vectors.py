"""Find vectors that do not match the text of their fact, without network access.

Facts with different words but equal vectors indicate a copied or shifted write. If a local model
made the vectors, a sample is compared with new ones. Unusable vectors and facts whose hash does not
match their text are left to other checks.
"""

from __future__ import annotations

import hashlib
import heapq
import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

from edenmem.embed.protocol import Embedder
from edenmem.engine.doctor.context import DoctorContext
from edenmem.engine.doctor.report import CheckFinding
from edenmem.engine.factory import embedder_kind
from edenmem.models.backup import RecordKind, Selection
from edenmem.models.integrity import Finding
from edenmem.models.memory import Fact, content_hash

#: Minimum cosine of two vectors of the same text.
_SAME_TEXT = 0.98
#: Number of facts whose vectors are compared with new ones.
_SAMPLE = 50
#: Number of characters compared; models read little more of a long text.
_READ = 1000
_WORDS = re.compile(r"\w+")


class Vectors:
    """Digests of vectors and texts, 16 bytes per fact, and a sample of the facts."""

    def __init__(self) -> None:
        self._vectors = array("Q")
        self._words = array("Q")
        self._sample: list[tuple[int, str, Fact]] = []

    def __len__(self) -> int:
        return len(self._vectors)

    def add(self, fact: Fact) -> None:
        """Add a fact, if its vector can be compared."""
        if not _is_comparable(fact):
            return
        self._vectors.append(_mark_of_vector(fact))
        self._words.append(_mark_of_words(fact.content))
        # A pseudorandom sample that is the same each time.
        drawn = (-_digest(fact.id.encode("utf-8", "surrogatepass")), fact.id, fact)
        push = heapq.heappush if len(self._sample) < _SAMPLE else heapq.heappushpop
        push(self._sample, drawn)

    def sample(self, model: str) -> list[Fact]:
        """Return the sampled facts with vectors of a model."""
        return [fact for *_, fact in self._sample if fact.embedding_model == model]

    def shared(self) -> frozenset[int]:
        """Return the digests of vectors shared by facts with different words."""
        import numpy as np

        vectors = np.frombuffer(self._vectors, dtype=np.uint64)
        words = np.frombuffer(self._words, dtype=np.uint64)
        order = np.lexsort((words, vectors))
        same = vectors[order][1:] == vectors[order][:-1]
        other = words[order][1:] != words[order][:-1]
        return frozenset(vectors[order][1:][same & other].tolist())


def _is_comparable(fact: Fact) -> bool:
    """Return whether a fact has a vector other than zeros, and a text that matches its hash."""
    is_right = fact.hash == content_hash(fact.content, fact.key)
    return is_right and any(fact.embedding or b"")


def _mark_of_vector(fact: Fact) -> int:
    return _digest(f"{fact.embedding_model} ".encode() + (fact.embedding or b""))


def _mark_of_words(content: str) -> int:
    """Return the 8-byte digest of the words, ignoring case, accents and punctuation."""
    plain = unicodedata.normalize("NFKD", content[:_READ].casefold())
    bare = "".join(each for each in plain if not unicodedata.combining(each))
    return _digest(" ".join(_WORDS.findall(bare)).encode("utf-8", "surrogatepass"))


def find_misfits(
    vectors: Vectors, read: Callable[[], Iterable[Fact]], embedder: Embedder | None
) -> Iterator[tuple[Fact, str]]:
    """Yield facts whose vectors are of other texts, with the reason. Blocks.

    Args:
        vectors: The vectors.
        read: Reads the facts again, with their vectors.
        embedder: A local model.

    Raises:
        ProviderError: the model cannot be used.
    """
    named = set[str]()
    for facts in _find_sharing(vectors, read):
        wrong: Sequence[Fact] = facts
        if embedder is not None and facts[0].embedding_model == embedder.model:
            wrong = _find_wrong(facts, embedder)  # the model may give both the same vector
        if wrong:
            other = next(each.id for each in facts if each.id != wrong[0].id)
            named.add(wrong[0].id)
            yield wrong[0], f"fact {other} has the same vector, but other words"
    if embedder is not None and (sample := vectors.sample(embedder.model)):
        for fact in _find_wrong(sample, embedder):
            if fact.id not in named:
                yield fact, f"{embedder.model} produces another vector for the text"


def foreign_vectors(context: DoctorContext) -> Iterator[CheckFinding]:
    """Yield facts with the vector of another text; a sample is compared with a local model."""
    agents = () if context.agent_id is None else (context.agent_id,)

    def read() -> Iterator[Fact]:
        selection = Selection(agent_ids=agents)
        walk = context.store.walk.documents((RecordKind.FACT,), selection, with_vectors=True)
        return (each.record for each in walk if isinstance(each.record, Fact))

    vectors = Vectors()
    for fact in read():
        vectors.add(fact)
    embedder = context.providers.embedder
    if embedder is not None and embedder_kind(context.settings.embedding) != "local":
        embedder = None  # it would cost calls
    for fact, why in find_misfits(vectors, read, embedder):
        yield CheckFinding(
            "vector-damage",
            Finding(target_type="fact", target_id=fact.id, agent_id=fact.agent_id, detail=why),
        )


def _digest(raw: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "big")


def _find_sharing(vectors: Vectors, read: Callable[[], Iterable[Fact]]) -> list[list[Fact]]:
    """Return groups of facts with different words that share a vector."""
    shared = vectors.shared()
    groups: dict[int, list[Fact]] = {}
    if shared:
        for fact in read():
            if _is_comparable(fact) and (own := _mark_of_vector(fact)) in shared:
                groups.setdefault(own, []).append(fact)
    return [facts for facts in groups.values() if len(facts) > 1]


def _find_wrong(facts: Sequence[Fact], embedder: Embedder) -> list[Fact]:
    """Return the facts whose vectors differ from those the model produces.

    Vectors of another length are left to other checks.
    """
    import asyncio

    import numpy as np

    made = asyncio.run(embedder.embed([fact.content for fact in facts], role="passage")).vectors
    wrong = []
    for fact, vector in zip(facts, made, strict=True):
        if fact.embedding is None or len(fact.embedding) != len(vector):
            continue
        own, new = (np.frombuffer(raw, dtype="<f4") for raw in (fact.embedding, vector))
        if float(own @ new) < _SAME_TEXT:
            wrong.append(fact)
    return wrong
