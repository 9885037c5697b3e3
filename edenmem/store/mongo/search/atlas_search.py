"""Search by the search indexes of Atlas, or of a server that answers the same commands.

An index that is missing, building or of another shape would answer with nothing, so it is looked
at before it is believed. Results are ids and scores; no vector is ever sent back.

The settings may name indexes that edenmem did not define, such as the platform's. One of those is
used for the queries that it suffices for; for others edenmem's own is needed. What an index cannot
filter by is never filtered out of its results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import msgspec

from edenmem.errors import SearchIndexUnusable
from edenmem.models.memory import Fact
from edenmem.models.search import Candidate, FactFilter, SearchAbility
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core import vectors as stored
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.collections import OWN, VectorSlot
from edenmem.store.mongo.core.filters import Filter, fact_filters, object_ids
from edenmem.store.mongo.search.indexed import as_it_is
from edenmem.store.mongo.search.scan import check_models
from edenmem.store.mongo.search.search_definitions import differences_of, filter_paths, vector_field
from edenmem.text import clean

_BOUNDS = {"$gt": "gt", "$gte": "gte", "$lt": "lt", "$lte": "lte"}


def _build_owner_filters(filter: FactFilter) -> list[Filter]:
    return [
        {field: value for field, value in owner.items() if value is not None}
        for owner in fact_filters(filter)
    ]


def vector_filter(filter: FactFilter, model: str | None, slot: VectorSlot = OWN) -> Filter:
    """The pre-filter of ``$vectorSearch``: vectors of ``model`` in one of the scopes. None: of
    any model."""
    of_model: Filter = {} if model is None else {slot.model: model}
    owners = _build_owner_filters(filter)
    if len(owners) == 1:
        return {**owners[0], **of_model}
    return {"$and": [of_model, {"$or": owners}]} if of_model else {"$or": owners}


def vector_paths(filter: Filter) -> tuple[str, ...]:
    """The fields that a pre-filter needs in the index."""
    paths: dict[str, None] = {}
    for path, value in filter.items():
        if path in ("$and", "$or"):
            paths |= dict.fromkeys(each for part in value for each in vector_paths(part))
        else:
            paths[path] = None
    return tuple(paths)


def text_paths(clauses: Sequence[Filter]) -> tuple[str, ...]:
    """The fields that clauses under ``compound.filter`` need in the index."""
    paths: dict[str, None] = {}
    for clause in clauses:
        for operator, inside in clause.items():
            if operator == "compound":
                parts = [*inside.get("filter", ()), *inside.get("should", ())]
                paths |= dict.fromkeys(text_paths(parts))
            else:
                paths[inside["path"]] = None
    return tuple(paths)


def text_filter(filter: FactFilter) -> list[Filter]:
    """The clauses under ``compound.filter`` of ``$search``."""
    owners = [
        [_clause(path, value) for path, value in one.items()]
        for one in _build_owner_filters(filter)
    ]
    if len(owners) == 1:
        return owners[0]
    any_of = [{"compound": {"filter": clauses}} for clauses in owners]
    return [{"compound": {"should": any_of, "minimumShouldMatch": 1}}]


def _clause(path: str, value: Any) -> Filter:
    if not isinstance(value, Mapping):
        return {"equals": {"path": path, "value": value}}
    if "$in" in value:
        return {"in": {"path": path, "value": list(value["$in"])}}
    return {"range": {"path": path, **{_BOUNDS[sign]: bound for sign, bound in value.items()}}}


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

RunAll = Callable[[Sequence[Callable[[], list[Candidate]]]], list[list[Candidate]]]


class _Index(msgspec.Struct, frozen=True):
    """The vector index that answers a query, and the filter to give it."""

    name: str
    admitted: Document


class AtlasSearch:
    """Candidates by ``$vectorSearch`` and ``$search``.

    Args:
        facts: The collection.
        run_all: Runs calls at the same time.
        storage: The form in which query vectors are sent, which is that of the stored ones.
        max_seconds: The server gives up a query after this.
        vector_index: The name of the index of facts by meaning.
        text_index: The name of the index of facts by words.
        fuzzy_expansions: How many variants of a word are searched.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        facts: Collection,
        run_all: RunAll,
        *,
        storage: Literal["array", "bindata"],
        max_seconds: float,
        vector_index: str = names.VECTOR_INDEX,
        text_index: str = names.TEXT_INDEX,
        fuzzy_expansions: int = 15,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._facts = facts
        self._run_all = run_all
        self._storage = storage
        self._max_seconds = max_seconds
        self._vector_index = vector_index
        self._text_index = text_index
        self._fuzzy = {"maxEdits": 1, "maxExpansions": fuzzy_expansions}
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
        lengths = {len(vector) // 4 for vector in vectors}
        index = self._index_for_vectors(filter, model, lengths, slot)
        calls = [
            partial(self._nearest, index, vector, min(limit, _MOST), exact, slot)
            for vector in vectors
        ]
        lists = self._run_all(calls)
        if not any(lists):
            self._index_for_vectors(filter, model, lengths, slot, again=True)
            self._check_models(filter, model, slot)
        return lists

    def require_vectors(
        self, filter: FactFilter, *, model: str, dimensions: int | None, slot: VectorSlot = OWN
    ) -> None:
        """Demand that `semantic` would be answered.

        Raises:
            StoreError: the index cannot be used; the hint names the command.
        """
        lengths = set() if dimensions is None else {dimensions}
        self._index_for_vectors(filter, model, lengths, slot)

    def _check_models(self, filter: FactFilter, model: str, slot: VectorSlot) -> None:
        """Nothing was found: since nothing is indexed yet, or since all is of another model?"""
        filters = fact_filters(filter)
        if not any(self._facts.count({**f, slot.model: model}, limit=1) for f in filters):
            check_models(self._facts, filters, model)

    def _nearest(
        self, index: _Index, vector: bytes, limit: int, exact: bool, slot: VectorSlot
    ) -> list[Candidate]:
        stage: Document = {
            "index": index.name,
            "path": slot.field,
            "queryVector": stored.encode(vector, self._storage),
            "filter": index.admitted,
            "limit": limit,
        }
        if exact:
            stage["exact"] = True
        else:
            stage["numCandidates"] = min(limit * _OVERSAMPLING, _MOST)
        return self._run_pipeline([{"$vectorSearch": stage}], "vectorSearchScore")

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
        clauses = text_filter(filter)
        index = self._index_for_text(clauses)
        lists = self._run_all(
            [partial(self._matching, index, clauses, query, min(limit, _MOST)) for query in queries]
        )
        if not any(lists):
            self._index_for_text(clauses, again=True)
        return lists

    def text_scores(
        self, filter: FactFilter, query: str, facts: Sequence[Fact]
    ) -> dict[str, float]:
        """None: Lucene scores only what it searches, and one more search is not worth it."""
        return {}

    def reach(self, filter: FactFilter, query: str) -> float:
        """0: Lucene's weights are not known here."""
        return 0.0

    def _matching(
        self, index: str, clauses: Sequence[Document], query: str, limit: int
    ) -> list[Candidate]:
        words = _words(query)
        if not words:
            return []
        matching = {"text": {"query": words, "path": "content", "fuzzy": self._fuzzy}}
        compound = {"must": [matching], "filter": list(clauses)}
        return self._run_text_search(index, compound, limit)

    def _run_text_search(self, index: str, compound: Document, limit: int) -> list[Candidate]:
        stage = {"index": index, "compound": compound}
        return self._run_pipeline([{"$search": stage}, {"$limit": limit}], "searchScore")

    def _run_pipeline(self, pipeline: list[Document], score: str) -> list[Candidate]:
        """Ids and scores, best first; the server promises no order of equal ones."""
        project = {"$project": {"_id": 1, "score": {"$meta": score}}}
        found = self._facts.aggregate([*pipeline, project], max_seconds=self._max_seconds)
        candidates = [Candidate(str(hit["_id"]), float(hit["score"])) for hit in found]
        return sorted(candidates, key=lambda one: (-one.score, one.fact_id))

    # -- what was just written ---------------------------------------------------------------

    def finds(self, fact: Fact) -> bool:
        """Whether both indexes have the fact as it is now: they follow a little later."""
        clauses = text_filter(_moment_of(fact, self._text_index == names.TEXT_INDEX))
        index = self._index_for_text(clauses)
        by_text = self._run_text_search(index, as_it_is(fact, clauses), _MOST)
        if fact.id not in {one.fact_id for one in by_text}:
            return False
        if fact.embedding is None or fact.embedding_model is None:
            return True
        return self.finds_vector(fact, fact.embedding, fact.embedding_model, OWN)

    def finds_vector(self, fact: Fact, vector: bytes, model: str, slot: VectorSlot) -> bool:
        """Whether the index of ``slot`` has this vector of the fact, and not an earlier one."""
        moment = _moment_of(fact, slot is not OWN or self._vector_index == names.VECTOR_INDEX)
        index = self._index_for_vectors(moment, model, {len(vector) // 4}, slot)
        found = self._nearest(index, vector, _MOST, True, slot)
        return any(one.fact_id == fact.id and one.score >= _SAME for one in found)

    # -- the indexes -------------------------------------------------------------------------

    def _index_for_vectors(
        self,
        filter: FactFilter,
        model: str,
        lengths: set[int],
        slot: VectorSlot,
        *,
        again: bool = False,
    ) -> _Index:
        """The index that answers a query with this filter and vectors of these lengths."""
        own = names.vector_index(dimensions=0, slot=slot)
        admitted = vector_filter(filter, model, slot)
        if slot is not OWN or self._vector_index == own.name:
            return self._own_for_vectors(own, admitted, lengths, slot, again=again)
        found = self._look(self._vector_index, again=again)
        if found and slot.model not in filter_paths(found) and self._has_one_model(filter, model):
            # Every vector in question is of this model, so that filter would keep all of them.
            admitted = vector_filter(filter, None, slot)
        wanted = names.vector_index(
            dimensions=max(lengths, default=_dimensions_in(found, slot)),
            slot=slot,
            name=self._vector_index,
            filters=vector_paths(admitted),
        )
        if self._suffices(wanted, found, own, again=again):
            return _Index(wanted.name, admitted)
        admitted = vector_filter(filter, model, slot)
        return self._own_for_vectors(own, admitted, lengths, slot, again=again)

    def _own_for_vectors(
        self,
        own: names.SearchIndex,
        admitted: Document,
        lengths: set[int],
        slot: VectorSlot,
        *,
        again: bool,
    ) -> _Index:
        found = self._look(own.name, again=again)
        # Which dimensions are wanted is known from the query.
        _demand_usable(own, found, but="numDimensions")
        dimensions = _dimensions_in(found, slot)
        others = lengths - {dimensions}
        if others and not again:  # it may have been changed since it was looked at
            return self._own_for_vectors(own, admitted, lengths, slot, again=True)
        if others:
            raise SearchIndexUnusable(
                f"the search index {own.name} has vectors of "
                f"{dimensions} dimensions, the query's has {min(others)}",
                hint="'edenmem index update' changes it to the configured embedding model",
            )
        return _Index(own.name, admitted)

    def _index_for_text(self, clauses: Sequence[Document], *, again: bool = False) -> str:
        """The name of the index that answers a query with these clauses."""
        own = names.text_index()
        if self._text_index != own.name:
            found = self._look(self._text_index, again=again)
            wanted = names.text_index(name=self._text_index, filters=text_paths(clauses))
            if self._suffices(wanted, found, own, again=again):
                return wanted.name
        _demand_usable(own, self._look(own.name, again=again))
        return own.name

    def _suffices(
        self,
        wanted: names.SearchIndex,
        found: Document | None,
        own: names.SearchIndex,
        *,
        again: bool,
    ) -> bool:
        """Whether an index that edenmem did not define suffices; False: its own is there.

        Raises:
            StoreError: it does not suffice, and its own index is missing.
        """
        lacking = [] if found is None else _lacking(wanted, found)
        if not lacking:
            _demand_usable(wanted, found)
            return True
        if self._look(own.name, again=again) is None:
            raise SearchIndexUnusable(
                f"the search index {wanted.name} does not suffice for this: {'; '.join(lacking)}",
                hint=f"'edenmem index create {own.name}' creates edenmem's own beside it",
            )
        return False

    def _look(self, name: str, *, again: bool) -> Document | None:
        """What the server says of an index.

        One that can be queried is believed for a while; ``again``: look all the same, since it
        found nothing, which is also what one that is gone would find.
        """
        now = self._clock()
        known = self._believed.get(name)
        if known is not None and not again and now - known[0] <= _BELIEVED:
            return known[1]
        self._believed.pop(name, None)
        there = {str(index.get("name")): index for index in self._facts.search_indexes()}
        found = there.get(name)
        if found is not None and found.get("queryable") is True:
            self._believed[name] = (now, found)
        return found

    def _has_one_model(self, filter: FactFilter, model: str) -> bool:
        """Whether no fact of the agents in question has a vector of another model."""
        agents = object_ids(sorted({scope.agent_id for scope in filter.scopes}))
        others: list[Document] = [
            {"embedding_model": {"$nin": [model, None]}},
            {"embedding_model": None, "embedding.0": {"$exists": True}},
        ]
        return not any(
            self._facts.count({"agent_id": {"$in": agents}, **other}, limit=1) for other in others
        )


def _dimensions_in(found: Document | None, slot: VectorSlot) -> int:
    field = vector_field((found or {}).get("latestDefinition") or {}, slot.field) or {}
    return int(field.get("numDimensions") or 0)


def _lacking(wanted: names.SearchIndex, found: Document, but: str = "") -> list[str]:
    """What an index lacks to answer queries."""
    return [
        one.text
        for one in differences_of(wanted, found)
        if one.fatal and not (but and but in one.text)
    ]


def _demand_usable(wanted: names.SearchIndex, found: Document | None, *, but: str = "") -> None:
    """Demand that an index answers, and has all that queries need.

    Raises:
        StoreError: it is missing, does not answer yet, or is of another shape.
    """
    if found is None:
        raise SearchIndexUnusable(
            f"the search index {wanted.name} on {wanted.collection} does not exist",
            hint="'edenmem index create' makes it",
        )
    if lacking := _lacking(wanted, found, but):
        raise SearchIndexUnusable(
            f"the search index {wanted.name} is not as it has to be: {'; '.join(lacking)}",
            hint="'edenmem index update' changes it",
        )
    if found.get("queryable") is not True:
        why = found.get("message") or str(found.get("status") or "not ready").lower()
        raise SearchIndexUnusable(
            f"the search index {wanted.name} cannot be queried yet ({why})",
            hint="'edenmem index status --wait' waits until it can",
        )


def _moment_of(fact: Fact, by_time: bool) -> FactFilter:
    """What admits a fact, and few others; its whole scope, if an index knows no times."""
    if not by_time:
        return FactFilter(scopes=(fact.home,))
    return FactFilter(
        scopes=(fact.home,), since=fact.formed_at, until=fact.formed_at + timedelta(milliseconds=1)
    )


def _words(query: str) -> str:
    """The words of a query, each once, as many as a query may have; empty if it has none."""
    words = [word for word in clean(query).split() if any(map(str.isalnum, word))]
    return " ".join(list(dict.fromkeys(words))[:_MOST_WORDS])
