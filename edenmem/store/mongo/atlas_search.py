"""Search by the search indexes of Atlas, or of a server that answers the same commands.

An index that is missing, building or of another shape would answer with nothing, so it is looked
at before it is believed. Results are ids and scores; no vector is ever sent back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Literal

from edenmem.errors import StoreError
from edenmem.models.memory import Fact
from edenmem.models.search import Candidate, FactFilter, SearchAbility
from edenmem.store.mongo import collections as names
from edenmem.store.mongo import vectors as stored
from edenmem.store.mongo.atlas_filters import text_filter, vector_filter
from edenmem.store.mongo.collection import Collection, Document
from edenmem.store.mongo.collections import OWN, VectorSlot
from edenmem.store.mongo.filters import fact_filters
from edenmem.store.mongo.indexed import as_it_is
from edenmem.store.mongo.scan import check_models
from edenmem.store.mongo.search_definitions import differences_of, vector_field
from edenmem.text import clean

#: The most that Atlas considers, and so the most that it returns.
_MOST = 10_000
#: So many neighbours are considered for each result; MongoDB advises 20.
_OVERSAMPLING = 20
#: Seconds for which an index that was found to be right is believed.
_BELIEVED = 60.0
#: Words of a query that are asked for. Lucene refuses more than 1,024 clauses, and each word may
#: become several.
_MOST_WORDS = 64
#: The score of a vector with itself, but for rounding.
_SAME = 0.9999

Together = Callable[[Sequence[Callable[[], list[Candidate]]]], list[list[Candidate]]]


class AtlasSearch:
    """Candidates by ``$vectorSearch`` and ``$search``.

    Args:
        facts: The collection.
        together: Runs calls at the same time.
        storage: The form in which query vectors are sent, which is that of the stored ones.
        max_seconds: The server gives up a query after this.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        facts: Collection,
        together: Together,
        *,
        storage: Literal["array", "bindata"],
        max_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._facts = facts
        self._together = together
        self._storage = storage
        self._max_seconds = max_seconds
        self._clock = clock
        self._believed: dict[str, tuple[float, Document]] = {}

    def ability(self) -> SearchAbility:
        """Lucene's scores, so its floor applies."""
        return SearchAbility(kind="atlas", text_floor=True)

    # -- vectors -----------------------------------------------------------------------------

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
        """The nearest facts, exactly or nearly so, by the vectors of ``slot``.

        Raises:
            StoreError: the index cannot be used; the hint names the command.
        """
        if not vectors or not filter.scopes or limit < 1:
            return [[] for _ in vectors]
        self._check_vectors(vectors, slot)
        admitted = vector_filter(filter, model, slot)
        calls = [
            partial(self._nearest, admitted, vector, min(limit, _MOST), exact, slot)
            for vector in vectors
        ]
        lists = self._together(calls)
        if not any(lists):
            self._check_vectors(vectors, slot, again=True)
            self._check_models(filter, model, slot)
        return lists

    def _check_models(self, filter: FactFilter, model: str, slot: VectorSlot) -> None:
        """Nothing was found: since nothing is indexed yet, or since all is of another model?"""
        filters = fact_filters(filter)
        if not any(self._facts.count({**f, slot.model: model}, limit=1) for f in filters):
            check_models(self._facts, filters, model)

    def _nearest(
        self, admitted: Document, vector: bytes, limit: int, exact: bool, slot: VectorSlot
    ) -> list[Candidate]:
        stage: Document = {
            "index": slot.index,
            "path": slot.field,
            "queryVector": stored.encode(vector, self._storage),
            "filter": admitted,
            "limit": limit,
        }
        if exact:
            stage["exact"] = True
        else:
            stage["numCandidates"] = min(limit * _OVERSAMPLING, _MOST)
        return self._asked([{"$vectorSearch": stage}], "vectorSearchScore")

    # -- text --------------------------------------------------------------------------------

    def text(
        self, filter: FactFilter, queries: Sequence[str], *, limit: int
    ) -> list[list[Candidate]]:
        """The facts that have any of the words, or one that is an edit away.

        Raises:
            StoreError: the index cannot be used; the hint names the command.
        """
        if not queries or not filter.scopes or limit < 1:
            return [[] for _ in queries]
        self._check_text()
        clauses = text_filter(filter)
        lists = self._together(
            [partial(self._matching, clauses, query, min(limit, _MOST)) for query in queries]
        )
        if not any(lists):
            self._check_text(again=True)
        return lists

    def _matching(self, clauses: Sequence[Document], query: str, limit: int) -> list[Candidate]:
        words = _words(query)
        if not words:
            return []
        matching = {
            "text": {"query": words, "path": "content", "fuzzy": {"maxEdits": 1}},
        }
        compound = {"must": [matching], "filter": list(clauses)}
        return self._searched(compound, limit)

    def _searched(self, compound: Document, limit: int) -> list[Candidate]:
        stage = {"index": names.TEXT_INDEX, "compound": compound}
        return self._asked([{"$search": stage}, {"$limit": limit}], "searchScore")

    def _asked(self, pipeline: list[Document], score: str) -> list[Candidate]:
        """Ids and scores, best first; the server promises no order of equal ones."""
        project = {"$project": {"_id": 1, "score": {"$meta": score}}}
        found = self._facts.aggregate([*pipeline, project], max_seconds=self._max_seconds)
        candidates = [Candidate(str(hit["_id"]), float(hit["score"])) for hit in found]
        return sorted(candidates, key=lambda one: (-one.score, one.fact_id))

    # -- what was just written ---------------------------------------------------------------

    def finds(self, fact: Fact) -> bool:
        """Whether both indexes have the fact as it is now: they follow a little later."""
        moment = _moment_of(fact)
        self._check_text()
        by_text = self._searched(as_it_is(fact, text_filter(moment)), _MOST)
        if fact.id not in {one.fact_id for one in by_text}:
            return False
        if fact.embedding is None or fact.embedding_model is None:
            return True
        return self.finds_vector(fact, fact.embedding, fact.embedding_model, OWN)

    def finds_vector(self, fact: Fact, vector: bytes, model: str, slot: VectorSlot) -> bool:
        """Whether the index of ``slot`` has this vector of the fact, and not an earlier one."""
        self._check_vectors([vector], slot)
        admitted = vector_filter(_moment_of(fact), model, slot)
        found = self._nearest(admitted, vector, _MOST, True, slot)
        return any(one.fact_id == fact.id and one.score >= _SAME for one in found)

    # -- the indexes -------------------------------------------------------------------------

    def _check_vectors(
        self, vectors: Sequence[bytes], slot: VectorSlot, *, again: bool = False
    ) -> None:
        """See that the vector index can be believed, and is of the vectors' length."""
        definition = self._believable(names.vector_index(dimensions=0, slot=slot), again=again)
        field = vector_field(definition, slot.field) or {}
        lengths = {len(vector) // 4 for vector in vectors} - {field.get("numDimensions")}
        if lengths and not again:  # it may have been changed since it was looked at
            self._check_vectors(vectors, slot, again=True)
        elif lengths:
            raise StoreError(
                f"the search index {slot.index} has vectors of "
                f"{field.get('numDimensions')} dimensions, the query's has {min(lengths)}",
                hint="'edenmem index update' changes it to the configured embedding model",
            )

    def _check_text(self, *, again: bool = False) -> None:
        self._believable(names.text_index(), again=again)

    def _believable(self, wanted: names.SearchIndex, *, again: bool) -> dict[str, Any]:
        """The definition of an index that answers, and has all that queries need.

        An index that was right is believed for a while; ``again``: look all the same, since it
        found nothing, which is also what one that is gone would find.

        Raises:
            StoreError: it is missing, does not answer yet, or is of another shape.
        """
        now = self._clock()
        known = self._believed.get(wanted.name)
        if known is not None and not again and now - known[0] <= _BELIEVED:
            return dict(known[1])
        self._believed.pop(wanted.name, None)
        there = {str(index.get("name")): index for index in self._facts.search_indexes()}
        definition = _checked(wanted, there.get(wanted.name))
        self._believed[wanted.name] = (now, definition)
        return definition


def _checked(wanted: names.SearchIndex, found: Document | None) -> Document:
    """The definition of what was found, if it can be searched."""
    if found is None:
        raise StoreError(
            f"the search index {wanted.name} on {wanted.collection} does not exist",
            hint="'edenmem index create' makes it",
        )
    fatal = [
        one.text
        for one in differences_of(wanted, found)
        # Which dimensions are wanted is known from the query.
        if one.fatal and "numDimensions" not in one.text
    ]
    if fatal:
        raise StoreError(
            f"the search index {wanted.name} is not as it has to be: {'; '.join(fatal)}",
            hint="'edenmem index update' changes it",
        )
    if found.get("queryable") is not True:
        why = found.get("message") or str(found.get("status") or "not ready").lower()
        raise StoreError(
            f"the search index {wanted.name} cannot be queried yet ({why})",
            hint="'edenmem index status --wait' waits until it can",
        )
    return dict(found.get("latestDefinition") or {})


def _moment_of(fact: Fact) -> FactFilter:
    """What admits a fact, and few others."""
    return FactFilter(
        scopes=(fact.home,),
        since=fact.formed_at,
        until=fact.formed_at + timedelta(milliseconds=1),
    )


def _words(query: str) -> str:
    """The words of a query, each once, as many as a query may have; empty if it has none."""
    words = [word for word in clean(query).split() if any(map(str.isalnum, word))]
    return " ".join(list(dict.fromkeys(words))[:_MOST_WORDS])
