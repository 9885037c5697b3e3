"""Search without search commands: read and compare every matching fact, up to a limit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from edenmem.errors import EmbeddingModelMismatch, StoreError
from edenmem.models.memory import Fact
from edenmem.models.search import Candidate, FactFilter, SearchAbility
from edenmem.search.text_ranking import Corpus, WeighedQuery
from edenmem.search.words import index_words
from edenmem.store.mongo.core import vectors as stored
from edenmem.store.mongo.core.collection import Collection
from edenmem.store.mongo.core.collections import OWN, VectorSlot
from edenmem.store.mongo.core.filters import Filter, fact_filters
from edenmem.store.mongo.search.nearest import Nearest

#: Queries whose weights are cached for missing scores.
_REMEMBERED = 64


class Scan:
    """Compares all matching facts exactly; refuses more than ``limit``."""

    def __init__(self, facts: Collection, limit: int) -> None:
        self._facts = facts
        self._limit = limit
        self._weighed: OrderedDict[tuple[FactFilter, str], WeighedQuery] = OrderedDict()

    def ability(self) -> SearchAbility:
        """Return the ability of an exact scan, with a notice of its limit."""
        return SearchAbility(
            kind="scan",
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
                (str(document["_id"]), stored.decode(document.get(slot.field)))
                for document in found
            )
        if not ranking.compared:
            self._check_models(filters, model, ranking)
        return ranking.best()

    def text(
        self, filter: FactFilter, queries: Sequence[str], *, limit: int
    ) -> list[list[Candidate]]:
        """Return the facts that contain any of the words."""
        if not queries:
            return []
        filters = fact_filters(filter)
        self._check_size(filters)
        corpus = Corpus(
            (str(document["_id"]), str(document.get("content") or ""))
            for admitted in filters
            for document in self._facts.find(admitted, {"content": 1})
        )
        lists = []
        for query in queries:
            weighed = self._weighed[filter, query] = corpus.weigh(query)
            self._weighed.move_to_end((filter, query))
            found = corpus.best(weighed, limit)
            lists.append([Candidate(fact_id, score) for fact_id, score in found])
        while len(self._weighed) > _REMEMBERED:
            self._weighed.popitem(last=False)
        return lists

    def text_scores(
        self, filter: FactFilter, query: str, facts: Sequence[Fact]
    ) -> dict[str, float]:
        """Return the scores that `text` gives to these facts; those without a match are left out.

        Reuses the weights of the last list for this query, if there is one.
        """
        if not facts:
            return {}
        weighed = self._weigh(filter, query)
        words = zip(facts, index_words(fact.content for fact in facts), strict=True)
        scores = {fact.id: weighed.score(each) for fact, each in words}
        return {fact_id: score for fact_id, score in scores.items() if score}

    def reach(self, filter: FactFilter, query: str) -> float:
        """Return the score of a full match; see `WeighedQuery`."""
        return self._weigh(filter, query).reach

    def _weigh(self, filter: FactFilter, query: str) -> WeighedQuery:
        if (filter, query) not in self._weighed:
            self.text(filter, [query], limit=1)
        return self._weighed[filter, query]

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
            if stored.decode(document.get("embedding")) is not None:
                raise EmbeddingModelMismatch(stored=str(document["embedding_model"]), current=model)
