"""Search with the indexes of Atlas Search, or of a server with the same commands.

A query on an index that is missing, building or has another definition returns nothing, so the
index is checked first. Results are IDs and scores, never vectors.

The settings may name indexes that edenmem did not define, such as the platform's. These are used
for the queries that they cover, edenmem's own for the others. Results are never filtered
afterwards.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec

from edenmem.errors import SearchIndexUnusable, StoreError
from edenmem.models.memory import Fact
from edenmem.models.search import Candidate, FactFilter, ListScores, SearchAbility
from edenmem.search.text_ranking import coverage
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.collections import OWN, VectorSlot
from edenmem.store.mongo.core.filters import EPOCH, Filter, fact_filters, object_ids
from edenmem.store.mongo.search.scan import check_models
from edenmem.store.mongo.search.search_definitions import differences_of, filter_paths, vector_field
from edenmem.text import clean

#: The clauses of ``compound`` that restrict results.
_CLAUSES = ("filter", "should", "mustNot")
_BOUNDS = {"$gt": "gt", "$gte": "gte", "$lt": "lt", "$lte": "lte"}


#: A range of all times, by which search indexes find a field that is missing.
_EVER: Filter = {"$gt": EPOCH}


def _build_owner_filters(filter: FactFilter) -> list[Filter]:
    """Return filters without empty fields: facts without ``said_at`` have none of any time."""
    found = []
    for owner in fact_filters(filter):
        unsaid = [{"said_at": _EVER}] if owner.get("said_at", _EVER) is None else []
        excluded = [*owner.pop("$nor", ()), *unsaid]
        present = {field: value for field, value in owner.items() if value is not None}
        found.append({**present, **({"$nor": excluded} if excluded else {})})
    return found


def vector_filter(filter: FactFilter, model: str | None, slot: VectorSlot = OWN) -> Filter:
    """Return the pre-filter of ``$vectorSearch``; ``model`` None: vectors of any model."""
    of_model: Filter = {} if model is None else {slot.model: model}
    owners = _build_owner_filters(filter)
    if len(owners) == 1:
        return {**owners[0], **of_model}
    return {"$and": [of_model, {"$or": owners}]} if of_model else {"$or": owners}


def vector_paths(filter: Filter) -> tuple[str, ...]:
    """Return the fields that a pre-filter needs in the index."""
    paths: dict[str, None] = {}
    for path, value in filter.items():
        if path in ("$and", "$or", "$nor"):
            paths |= dict.fromkeys(each for part in value for each in vector_paths(part))
        else:
            paths[path] = None
    return tuple(paths)


def text_paths(clauses: Sequence[Filter]) -> tuple[str, ...]:
    """Return the fields that clauses under ``compound.filter`` need in the index."""
    paths: dict[str, None] = {}
    for clause in clauses:
        for operator, inside in clause.items():
            if operator == "compound":
                parts = [part for name in _CLAUSES for part in inside.get(name, ())]
                paths |= dict.fromkeys(text_paths(parts))
            else:
                paths[inside["path"]] = None
    return tuple(paths)


def text_filter(filter: FactFilter) -> list[Filter]:
    """Return the clauses under ``compound.filter`` of ``$search``; see `vector_filter`."""
    owners: list[dict[str, list[Filter]]] = [
        {
            "filter": _clauses(owner),
            **({"mustNot": excluded} if (excluded := _clauses(*owner.get("$nor", ()))) else {}),
        }
        for owner in _build_owner_filters(filter)
    ]
    if len(owners) == 1 and "mustNot" not in owners[0]:
        return owners[0]["filter"]
    any_of = [{"compound": owner} for owner in owners]
    return [{"compound": {"should": any_of, "minimumShouldMatch": 1}}]


def _clauses(*filters: Filter) -> list[Filter]:
    """Return the clauses of filters, without what they exclude."""
    return [
        clause
        for filter in filters
        for path, value in filter.items()
        if path != "$nor"
        for clause in (_clauses(*value) if path == "$and" else [_clause(path, value)])
    ]


def _served(filter: FactFilter, found: Document | None) -> FactFilter:
    """Return the part of a filter that an index can answer; the rest is read from the facts."""
    paths = filter_paths(found) if found is not None else frozenset()
    return msgspec.structs.replace(
        filter,
        live_at=filter.live_at if "expires_at" in paths else None,
        tags=filter.tags if "tags" in paths else (),
        key=filter.key if "key" in paths else None,
    )


def _clause(path: str, value: Any) -> Filter:
    if not isinstance(value, Mapping):
        return {"equals": {"path": path, "value": value}}
    if "$in" in value:
        return {"in": {"path": path, "value": list(value["$in"])}}
    return {"range": {"path": path, **{_BOUNDS[sign]: bound for sign, bound in value.items()}}}


#: The maximum number of candidates, and so of results, on Atlas.
_MAX_CANDIDATES = 10_000
#: Neighbors considered per result; MongoDB recommends 20.
_OVERSAMPLING = 20
#: Seconds for which a usable index is not checked again.
_CACHE_SECONDS = 60.0
#: Maximum number of words in a query. Lucene refuses more than 1,024 clauses, and fuzzy matching
#: expands each word to several.
_MAX_WORDS = 64
_WORD = re.compile(r"[^\W_]+")
#: Analyzers may drop words up to this length, and stem words with this many common letters to the
#: same term.
_SHORT, _STEM = 5, 3
#: The score of a vector with itself, allowing for rounding.
_SAME_SCORE = 0.9999

RunAll = Callable[[Sequence[Callable[[], list[Candidate]]]], list[list[Candidate]]]


class _Index(NamedTuple):
    """The vector index for a query, and the filter to use with it."""

    name: str
    admitted: Document


class AtlasSearch:
    """Candidates by ``$vectorSearch`` and ``$search``.

    Args:
        facts: The collection of facts.
        run_all: Runs calls concurrently.
        storage: The stored form of vectors, also used for query vectors.
        max_seconds: Time limit of a query on the server.
        vector_index: The name of the vector index of facts.
        text_index: The name of the text index of facts.
        fuzzy_expansions: Maximum number of variants per word.
        clock: A monotonic clock, in seconds.
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
        self._cached: dict[str, tuple[float, Document]] = {}

    def ability(self) -> SearchAbility:
        """Return Lucene's ability: its scores have a floor."""
        return SearchAbility(kind="atlas", text_floor=True)

    # -- vectors ---------------------------------------------------------------------------

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
        """Return the nearest facts by the vectors of ``slot``, exact or approximate.

        Raises:
            StoreError: the index is not usable; the hint names the command.
        """
        if not vectors or not filter.scopes or limit < 1:
            return [[] for _ in vectors]
        lengths = {len(vector) // 4 for vector in vectors}
        index = self._index_for_vectors(filter, model, lengths, slot)
        calls = [
            partial(self._nearest, index, vector, min(limit, _MAX_CANDIDATES), exact, slot)
            for vector in vectors
        ]
        lists = self._run_all(calls)
        if not any(lists):
            self._index_for_vectors(filter, model, lengths, slot, again=True)
            filters = fact_filters(filter)
            if not any(self._facts.count({**f, slot.model: model}, limit=1) for f in filters):
                check_models(self._facts, filters, model)
        return lists

    def require_vectors(
        self, filter: FactFilter, *, model: str, dimensions: int | None, slot: VectorSlot = OWN
    ) -> None:
        """Raise if `semantic` cannot be answered.

        Raises:
            StoreError: the index is not usable; the hint names the command.
        """
        lengths = set() if dimensions is None else {dimensions}
        self._index_for_vectors(filter, model, lengths, slot)

    def _nearest(
        self, index: _Index, vector: bytes, limit: int, exact: bool, slot: VectorSlot
    ) -> list[Candidate]:
        stage: Document = {
            "index": index.name,
            "path": slot.field,
            "queryVector": codec.encode_vector(vector, self._storage),
            "filter": index.admitted,
            "limit": limit,
        }
        if exact:
            stage["exact"] = True
        else:
            stage["numCandidates"] = min(limit * _OVERSAMPLING, _MAX_CANDIDATES)
        return self._run_pipeline([{"$vectorSearch": stage}], "vectorSearchScore")

    # -- text ------------------------------------------------------------------------------

    def text(
        self, filter: FactFilter, queries: Sequence[str], *, limit: int, source: bool = False
    ) -> list[list[Candidate]]:
        """Return the facts that contain any of the words, or one an edit away.

        Raises:
            StoreError: the index is not usable; the hint names the command.
        """
        if source:
            raise StoreError("the words of source messages are not in the search index of Atlas")
        if not queries or not filter.scopes or limit < 1:
            return [[] for _ in queries]
        index, clauses = self._index_for_text(filter)
        lists = self._run_all(
            [
                partial(self._matching, index, clauses, query, min(limit, _MAX_CANDIDATES))
                for query in queries
            ]
        )
        if not any(lists):
            self._index_for_text(filter, again=True)
        return lists

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
        """Return a text list with the share of the query's words that each fact has.

        Lucene's weights are unknown here, and other scores would take another search.
        """
        texts = {id: facts[id].content for id in found if id in facts}
        return ListScores(found, coverage=coverage(query, texts))

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
        """Return IDs and scores, best first; the server leaves ties unordered."""
        project = {"$project": {"_id": 1, "score": {"$meta": score}}}
        found = self._facts.aggregate([*pipeline, project], max_seconds=self._max_seconds)
        candidates = [Candidate(str(hit["_id"]), float(hit["score"])) for hit in found]
        return sorted(candidates, key=lambda one: (one.score, one.fact_id), reverse=True)

    # -- consistency -----------------------------------------------------------------------

    def finds(self, fact: Fact) -> bool:
        """Return whether the indexes have the current state of the fact.

        An edit that adds no long word is recognized by its vector only.
        """
        moment = _moment_of(fact, self._text_index == names.TEXT_INDEX)
        index, clauses = self._index_for_text(moment)
        added = _added_words(fact)
        having = [{"text": {"query": " ".join(added), "path": "content"}}] if added else []
        compound = {"filter": clauses, **({"must": having} if having else {})}
        by_text = self._run_text_search(index, compound, _MAX_CANDIDATES)
        if fact.id not in {one.fact_id for one in by_text}:
            return False
        if fact.embedding is None or fact.embedding_model is None:
            return True
        return self.finds_vector(fact, fact.embedding, fact.embedding_model, OWN)

    def finds_vector(self, fact: Fact, vector: bytes, model: str, slot: VectorSlot) -> bool:
        """Return whether the index of ``slot`` has this vector of the fact, not an earlier one."""
        moment = _moment_of(fact, slot is not OWN or self._vector_index == names.VECTOR_INDEX)
        index = self._index_for_vectors(moment, model, {len(vector) // 4}, slot)
        found = self._nearest(index, vector, _MAX_CANDIDATES, True, slot)
        return any(one.fact_id == fact.id and one.score >= _SAME_SCORE for one in found)

    # -- the indexes -----------------------------------------------------------------------

    def _index_for_vectors(
        self,
        filter: FactFilter,
        model: str,
        lengths: set[int],
        slot: VectorSlot,
        *,
        again: bool = False,
    ) -> _Index:
        """Return the index for a query with this filter and vectors of these lengths."""
        own = names.vector_index(dimensions=0, slot=slot)
        if slot is OWN and self._vector_index != own.name:
            found = self._look(self._vector_index, again=again)
            served = _served(filter, found)
            admitted = vector_filter(served, model, slot)
            has_no_model = found is not None and slot.model not in filter_paths(found)
            if has_no_model and self._has_one_model(filter, model):
                # All vectors searched are of this model, so the filter on the model is redundant.
                admitted = vector_filter(served, None, slot)
            wanted = names.vector_index(
                dimensions=max(lengths, default=_dimensions_in(found, slot)),
                slot=slot,
                name=self._vector_index,
                filters=vector_paths(admitted),
            )
            if self._suffices(wanted, found, own, again=again):
                return _Index(wanted.name, admitted)
        found = self._look(own.name, again=again)
        if found is not None and lengths - {_dimensions_in(found, slot)}:
            found = self._look(own.name, again=True)  # the cached definition may be outdated
        # The query decides the dimensions.
        _require_usable(own, found, but=("numDimensions", *names.OPTIONAL_FILTERS))
        dimensions = _dimensions_in(found, slot)
        if others := lengths - {dimensions}:
            raise SearchIndexUnusable(
                f"search index has {dimensions} dimensions, the query {min(others)}: {own.name}",
                hint="'edenmem index create --update' rebuilds it for the embedding model",
            )
        return _Index(own.name, vector_filter(_served(filter, found), model, slot))

    def _index_for_text(
        self, filter: FactFilter, *, again: bool = False
    ) -> tuple[str, list[Document]]:
        """Return the name of the index for a query with this filter, and the query's clauses."""
        own = names.text_index()
        if self._text_index != own.name:
            found = self._look(self._text_index, again=again)
            clauses = text_filter(_served(filter, found))
            wanted = names.text_index(name=self._text_index, filters=text_paths(clauses))
            if self._suffices(wanted, found, own, again=again):
                return wanted.name, clauses
        found = self._look(own.name, again=again)
        _require_usable(own, found, but=names.OPTIONAL_FILTERS)
        return own.name, text_filter(_served(filter, found))

    def notices(self, filter: FactFilter) -> tuple[str, ...]:
        """Name the indexes without a field that the filter of a search asks for."""
        wanted = {name for name in ("tags", "key") if getattr(filter, name)}
        return tuple(
            f"search index cannot filter by {', '.join(lacking)}, so that matches may be missing: "
            f"{name}; 'edenmem index create --update' adds the fields"
            for name in ((self._vector_index, self._text_index) if wanted else ())
            if (found := self._look(name, again=False)) is not None
            and (lacking := sorted(wanted - filter_paths(found)))
        )

    def _suffices(
        self,
        wanted: names.SearchIndex,
        found: Document | None,
        own: names.SearchIndex,
        *,
        again: bool,
    ) -> bool:
        """Return whether a configured index covers the query; False: edenmem's own index exists.

        Raises:
            StoreError: the configured index does not, and edenmem's own is missing.
        """
        lacking = [] if found is None else _lacking(wanted, found)
        if not lacking:
            _require_usable(wanted, found)
            return True
        if self._look(own.name, again=again) is None:
            raise SearchIndexUnusable(
                f"search index does not cover this query: {wanted.name} ({'; '.join(lacking)})",
                hint=f"'edenmem index create {own.name}' creates edenmem's own index",
            )
        return False

    def _look(self, name: str, *, again: bool) -> Document | None:
        """Return the server's description of an index.

        A queryable index is cached for a while. ``again`` bypasses the cache after an empty result,
        which a deleted index also gives.
        """
        now = self._clock()
        known = self._cached.get(name)
        if known is not None and not again and now - known[0] <= _CACHE_SECONDS:
            return known[1]
        self._cached.pop(name, None)
        found = self._facts.search_indexes().get(name)
        if found is not None and found.get("queryable") is True:
            self._cached[name] = (now, found)
        return found

    def _has_one_model(self, filter: FactFilter, model: str) -> bool:
        """Return whether no fact of the agents has a vector of another model."""
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


def _lacking(wanted: names.SearchIndex, found: Document, but: Sequence[str] = ()) -> list[str]:
    """Return what an index lacks to answer queries."""
    return [
        one.text
        for one in differences_of(wanted, found)
        if one.fatal and not any(each in one.text.partition(": ")[0].split(".") for each in but)
    ]


def _require_usable(
    wanted: names.SearchIndex, found: Document | None, *, but: Sequence[str] = ()
) -> None:
    """Raise if an index cannot answer queries.

    Raises:
        StoreError: it is missing, not queryable yet, or has the wrong definition.
    """
    if found is None:
        raise SearchIndexUnusable(
            f"search index does not exist: {wanted.name} on {wanted.collection}",
            hint="'edenmem index create' creates it",
        )
    if lacking := _lacking(wanted, found, but):
        raise SearchIndexUnusable(
            f"search index has the wrong definition: {wanted.name} ({'; '.join(lacking)})",
            hint="'edenmem index create --update' updates it",
        )
    if found.get("queryable") is not True:
        why = found.get("message") or str(found.get("status") or "not ready").lower()
        raise SearchIndexUnusable(
            f"search index cannot be queried yet: {wanted.name} ({why})",
            hint="'edenmem index list --check --wait' waits until it can",
        )


def _moment_of(fact: Fact, by_time: bool) -> FactFilter:
    """Return a filter for a fact and few others; for its whole scope without a time filter."""
    if not by_time:
        return FactFilter(scopes=(fact.home,))
    return FactFilter(
        scopes=(fact.home,), since=fact.dated_at, until=fact.dated_at + timedelta(milliseconds=1)
    )


def _added_words(fact: Fact) -> list[str]:
    """Return the words that the last edit added, which are no stop words or forms of others."""
    before = (fact.previous_content or fact.content).casefold()
    found = _WORD.findall(fact.content.casefold())
    return [word for word in found if len(word) > _SHORT and word[:_STEM] not in before][
        :_MAX_WORDS
    ]


def _words(query: str) -> str:
    """Return the distinct words of a query, up to the limit; empty if there are none."""
    words = [word for word in clean(query).split() if any(map(str.isalnum, word))]
    return " ".join(list(dict.fromkeys(words))[:_MAX_WORDS])
