"""Test a server's search on a scratch collection, with the code that searches facts."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from pymongo.errors import OperationFailure

from edenmem.errors import StoreError
from edenmem.models.ids import new_id, utc_now
from edenmem.models.indexes import IndexState, IndexWish
from edenmem.models.memory import Fact
from edenmem.models.search import Candidate, FactFilter
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import Collection
from edenmem.store.mongo.search.atlas_search import AtlasSearch, RunAll
from edenmem.store.mongo.search.search_definitions import state_of

_PREFIX = "edenmem_trial_"


class Trial:
    """Implements `edenmem.store.protocol.indexes.SearchTrial`."""

    def __init__(
        self, collection: Callable[[str], Collection], run_all: RunAll, *, max_seconds: float
    ) -> None:
        self._name = _PREFIX + new_id()
        self._collection = collection(self._name)
        forms: tuple[Literal["array", "bindata"], ...] = ("array", "bindata")
        self._searches = {
            form: AtlasSearch(self._collection, run_all, storage=form, max_seconds=max_seconds)
            for form in forms
        }
        self._made = False
        self._dimensions = 1

    @property
    def name(self) -> str:
        return self._name

    def prepare(self, wish: IndexWish) -> None:
        self._made = True
        self._dimensions = wish.dimensions or 1
        self._collection.create()
        for index in self._define_indexes(wish):
            self._collection.create_search_index(index.name, index.type, index.definition)

    def states(self, wish: IndexWish) -> list[IndexState]:
        there = {index.get("name"): index for index in self._collection.search_indexes()}
        return [state_of(index, there.get(index.name)) for index in self._define_indexes(wish)]

    def _define_indexes(self, wish: IndexWish) -> tuple[names.SearchIndex, names.SearchIndex]:
        return (
            names.vector_index(
                dimensions=wish.dimensions or 1, similarity=wish.similarity, collection=self._name
            ),
            names.text_index(analyzer=wish.analyzer, collection=self._name),
        )

    def add(self, facts: Sequence[Fact], *, storage: Literal["array", "bindata"]) -> None:
        now = utc_now()
        documents = [codec.fact_document(fact, at=now, storage=storage) for fact in facts]
        self._collection.insert_new(documents)

    def semantic(
        self,
        filter: FactFilter,
        vectors: Sequence[bytes],
        *,
        model: str,
        limit: int,
        exact: bool = False,
        storage: Literal["array", "bindata"] = "array",
    ) -> list[list[Candidate]]:
        search = self._searches[storage]
        return search.semantic(filter, vectors, model=model, limit=limit, exact=exact)

    def text(
        self, filter: FactFilter, queries: Sequence[str], *, limit: int
    ) -> list[list[Candidate]]:
        return self._searches["array"].text(filter, queries, limit=limit)

    def refusal(self, stage: Literal["vector", "text"]) -> str:
        asked: dict[str, Any] = (
            {
                "$search": {
                    "index": names.TEXT_INDEX,
                    "compound": {"must": [{"text": {"query": "any", "path": "content"}}]},
                    "noSuchOption": 1,
                }
            }
            if stage == "text"
            else {
                "$vectorSearch": {
                    "index": names.VECTOR_INDEX,
                    "path": "embedding",
                    "queryVector": [1.0] * self._dimensions,
                    "limit": 1,
                    "numCandidates": 1,
                    "noSuchOption": 1,
                }
            }
        )
        try:
            list(self._collection.aggregate([asked, {"$project": {"_id": 1}}]))
        except StoreError as error:
            if isinstance(error.__cause__, OperationFailure):
                return error.message
            raise  # an outage is not a refusal
        return ""

    def remove(self) -> None:
        if self._made:
            self._collection.drop()
