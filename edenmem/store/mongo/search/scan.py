"""Search without search commands: read and compare every matching fact, up to a limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edenmem.errors import EmbeddingModelMismatch, StoreError
from edenmem.models.memory import Fact
from edenmem.models.search import (
    SCORE_DECIMALS,
    Candidate,
    FactFilter,
    ListScores,
    SearchAbility,
)
from edenmem.search.text_ranking import Corpus, WeighedQuery
from edenmem.search.words import MOST_SOURCES, index_words, source_text
from edenmem.store.common.cache import BoundedCache
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Collection
from edenmem.store.mongo.core.collections import OWN, VectorSlot
from edenmem.store.mongo.core.filters import Filter, fact_filters, id_parts
from edenmem.store.protocol.store import batched

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Queries whose weights are cached for missing scores.
_REMEMBERED = 64


class Scan:
    """Compares all matching facts exactly; refuses more than ``limit``."""

    def __init__(
        self, facts: Collection, messages: Collection, forgotten: Collection, limit: int
    ) -> None:
        self._facts = facts
        self._messages = messages
        self._forgotten = forgotten
        self._limit = limit
        self._weighed: BoundedCache[tuple[FactFilter, str, bool], WeighedQuery] = BoundedCache(
            _REMEMBERED
        )

    def ability(self) -> SearchAbility:
        """Return the ability of an exact scan, with a notice of its limit."""
        return SearchAbility(
            kind="scan",
            source_words=True,
            notice="this MongoDB has no search commands: searching by an exact scan of at most "
            f"{self._limit:,} facts",
        )

    def semantic(
        self,
        filter: FactFilter,
        vectors: Sequence[bytes],
        *,
        model: str,
        limit: int,
        exact: bool = False,
        slot: VectorSlot = OWN,
    ) -> list[list[Candidate]]:
        """Return the nearest facts with vectors of ``model`` in ``slot``; always exact."""
        if not vectors:
            return []
        filters = fact_filters(filter)
        of_model = [{**admitted, slot.model: model} for admitted in filters]
        self._check_size(of_model)
        ranking = Nearest(vectors, limit)
        for admitted in of_model:
            found = self._facts.find(admitted, {slot.field: 1})
            ranking.add(
                (str(document["_id"]), codec.decode_vector(document.get(slot.field)))
                for document in found
            )
        if not ranking.compared:
            self._check_models(filters, model, ranking)
        return ranking.best()

    def text(
        self, filter: FactFilter, queries: Sequence[str], *, limit: int, source: bool = False
    ) -> list[list[Candidate]]:
        """Find the facts that have any of the words, with ``source`` in their source messages."""
        if not queries:
            return []
        corpus = self._read_corpus(filter, source)
        lists = []
        for query in queries:
            weighed = corpus.weigh(query)
            self._weighed.put((filter, query, source), weighed)
            found = corpus.best(weighed, limit)
            lists.append([Candidate(fact_id, score) for fact_id, score in found])
        return lists

    def _read_corpus(self, filter: FactFilter, source: bool) -> Corpus:
        filters = fact_filters(filter)
        self._check_size(filters)
        field = "source_message_ids" if source else "content"
        documents = (
            document for admitted in filters for document in self._facts.find(admitted, {field: 1})
        )
        return Corpus(
            self._source_texts(
                (str(one["_id"]), codec.text_ids(one.get(field))) for one in documents
            )
            if source
            else ((str(one["_id"]), str(one.get(field) or "")) for one in documents)
        )

    def complete(
        self,
        filter: FactFilter,
        query: str,
        found: Mapping[str, float],
        lacking: Sequence[str],
        facts: Mapping[str, Fact],
        *,
        source: bool = False,
    ) -> ListScores:
        """Return a text list with the scores of the facts that it lacks.

        Reuses the weights of the last list for this query, if there is one.
        """
        weighed = self._weigh(filter, query, source)
        texts = (
            self._source_texts((id, facts[id].source_message_ids) for id in lacking)
            if source
            else [(id, facts[id].content) for id in lacking]
        )
        words = zip(texts, index_words(text for _, text in texts), strict=True)
        scores = {fact_id: weighed.score(each) for (fact_id, _), each in words}
        return ListScores(found, {id: each for id, each in scores.items() if each}, weighed.whole)

    def _weigh(self, filter: FactFilter, query: str, source: bool) -> WeighedQuery:
        weighed = self._weighed.get((filter, query, source))
        if weighed is None:
            weighed = self._read_corpus(filter, source).weigh(query)
            self._weighed.put((filter, query, source), weighed)
        return weighed

    def _source_texts(self, sources: Iterable[tuple[str, Sequence[str]]]) -> list[tuple[str, str]]:
        """Read the source messages of facts; facts with too many or none are left out."""
        known = {id: found for id, found in sources if 1 <= len(found) <= MOST_SOURCES}
        contents: dict[str, str] = {}
        wanted = dict.fromkeys(message for found in known.values() for message in found)
        for part in id_parts(wanted):
            forgotten = {one["_id"] for one in self._forgotten.find({"_id": {"$in": part}})}
            left = [id for id in part if id not in forgotten]
            for message in self._messages.find({"_id": {"$in": left}}, {"content": 1}):
                contents[str(message["_id"])] = codec.text(message.get("content"))
        texts = {
            id: source_text(contents.get(each, "") for each in found) for id, found in known.items()
        }
        return [(id, text) for id, text in texts.items() if text]

    def _check_size(self, filters: Sequence[Filter]) -> None:
        """Count on the index before reading anything."""
        total = 0
        for admitted in filters:
            total += self._facts.count(admitted, limit=self._limit + 1 - total)
            if total > self._limit:
                raise StoreError(
                    f"search without search indexes exceeds its limit of {self._limit:,} facts",
                    hint="narrow the search by scope or time, raise search.scan_limit, or use a "
                    "MongoDB with Atlas Search",
                )

    def _check_models(self, filters: Sequence[Filter], model: str, ranking: Nearest) -> None:
        if ranking.other_lengths:
            lengths = ", ".join(f"{length:,}" for length in sorted(ranking.other_lengths))
            raise EmbeddingModelMismatch(
                stored=f"{model} ({lengths} dimensions)",
                current=f"{model} ({ranking.length:,} dimensions)",
            )
        check_models(self._facts, filters, model)

    def finds(self, fact: Fact) -> bool:
        """Return True: a scan reads the stored state."""
        return True


def check_models(facts: Collection, filters: Sequence[Filter], model: str) -> None:
    """Raise if facts without vectors of ``model`` have vectors of another model.

    Raises:
        EmbeddingModelMismatch: a fact has a vector of another model.
    """
    for admitted in filters:
        # Stop at the first fact with a vector.
        others = {**admitted, "embedding_model": {"$nin": [model, None]}}
        for document in facts.find(others, {"embedding": 1, "embedding_model": 1}):
            if codec.decode_vector(document.get("embedding")) is not None:
                raise EmbeddingModelMismatch(stored=str(document["embedding_model"]), current=model)


#: Vectors compared at once: 3 MB of doubles at 1,536 dimensions.
_STEP = 256


class Nearest:
    """The best candidates so far for each query vector; holds one batch of vectors at a time."""

    def __init__(self, vectors: Sequence[bytes], limit: int) -> None:
        import numpy as np

        self._queries = _normalize(np.stack([np.frombuffer(v, dtype="<f4") for v in vectors]))
        self._limit = limit
        #: Scores with IDs, best first.
        self._best: list[list[tuple[float, str]]] = [[] for _ in vectors]
        self.length = self._queries.shape[1]
        self.other_lengths: set[int] = set()
        self.compared = 0

    def add(self, found: Iterable[tuple[str, bytes | None]]) -> None:
        """Compare the vectors of facts, given with their IDs."""
        given = ((key, vector) for key, vector in found if vector is not None)
        for batch in batched(given, _STEP):
            self.other_lengths |= {len(vector) // 4 for _, vector in batch} - {self.length}
            usable = [(key, one) for key, one in batch if len(one) == self.length * 4]
            if usable:
                self._compare([key for key, _ in usable], [vector for _, vector in usable])

    def _compare(self, keys: list[str], vectors: list[bytes]) -> None:
        import numpy as np

        matrix = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(keys), self.length)
        # The last bits of doubles depend on the position in the batch.
        scores = np.round((1.0 + self._queries @ _normalize(matrix).T) / 2.0, SCORE_DECIMALS)
        self.compared += len(keys)
        for place, row in enumerate(scores.tolist()):
            both = sorted([*self._best[place], *zip(row, keys, strict=True)], reverse=True)
            self._best[place] = both[: self._limit]

    def best(self) -> list[list[Candidate]]:
        """Return the candidates of each query, best first, of equal scores the newest."""
        return [[Candidate(key, score) for score, key in best] for best in self._best]


def _normalize(matrix: NDArray[Any]) -> NDArray[np.float64]:
    import numpy as np

    wide = matrix.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    normalized: NDArray[np.float64] = wide / np.where(lengths == 0, 1.0, lengths)
    return normalized
