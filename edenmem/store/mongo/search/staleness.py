"""Facts that the configured embedding model has no vector of, by agent and model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bson.binary import Binary

from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.store.mongo.core import codec, vectors
from edenmem.store.mongo.core.collection import BATCH, Document
from edenmem.store.mongo.core.collections import STAGED
from edenmem.store.mongo.core.filters import Filter, fact_fields, group_filters, object_id
from edenmem.store.mongo.memory.overview import OverviewPart
from edenmem.store.mongo.search.slots import SlotPart, not_of_this_text, of_this_text, slot_of
from edenmem.store.protocol.vectors import VectorCount

_BY_ID = (("_id", 1),)
#: What a binary vector has before its numbers: its kind, and the bits that its last byte leaves.
_HEADER = 2
#: What can be seen to be a vector without reading all of it.
_PLAIN_VECTORS: tuple[Filter, ...] = (
    {"embedding.0": {"$nin": [None, 0]}},
    {"embedding": {"$type": "binData"}},
)


class StalenessPart(OverviewPart, SlotPart):
    """Walks the facts of each agent and model along `edenmem_fact_model`, in the order of ids."""

    def vector_model_names(self, scopes: Sequence[Scope]) -> tuple[str, ...]:
        """See `edenmem.store.protocol.store.Store.vector_model_names`."""
        found: set[str] = set()
        for owner in group_filters(scopes, fact_fields):
            names = self._facts.distinct("embedding_model", owner)
            for name in {name for name in names if isinstance(name, str) and name} - found:
                of_model = {**owner, "embedding_model": name}
                plain = any(
                    self._facts.find_one({**of_model, **vector}, {"_id": 1})
                    for vector in _PLAIN_VECTORS
                )
                # The first number of a vector may be 0 by chance, as all are after a failure.
                if plain or self._facts.count(of_model) > self._without_vector(of_model):
                    found.add(name)
        return tuple(sorted(found))

    def vector_counts(
        self, model: str, *, dimensions: int | None, agent_id: str | None = None
    ) -> list[VectorCount]:
        """See `edenmem.store.protocol.store.Store.vector_counts`."""
        counts: list[VectorCount] = []
        is_staged = slot_of(self.vector_switch(), model) is STAGED
        for agent in self._agents_with_facts(agent_id):
            found: dict[str, int] = {}
            wrong = 0
            for name in self._models_of(agent):
                of_model = {"embedding_model": name, "agent_id": agent}
                if is_staged:
                    done = self._facts.count({**of_model, **of_this_text(model)})
                    found[model] = found.get(model, 0) + done
                for part in _parts(of_model, model, is_staged=is_staged):
                    total = self._facts.count(part)
                    has_vectors = isinstance(name, str) and not (is_staged and name == model)
                    bare = self._without_vector(part) if has_vectors else total
                    found[""] = found.get("", 0) + bare
                    if total > bare:
                        found[name or ""] = found.get(name or "", 0) + total - bare
                if name == model and dimensions is not None and not is_staged:
                    wrong = sum(has for _, has in self._unfit(of_model, dimensions))
            counts += [
                VectorCount(
                    agent_id=str(agent),
                    model=name,
                    facts=facts,
                    wrong_length=wrong if name == model else 0,
                )
                for name, facts in sorted(found.items())
                if facts
            ]
        return counts

    def stale_facts(
        self, model: str, *, dimensions: int | None, agent_id: str | None = None
    ) -> Iterator[Fact]:
        """See `edenmem.store.protocol.store.Store.stale_facts`."""
        is_staged = slot_of(self.vector_switch(), model) is STAGED
        for agent in self._agents_with_facts(agent_id):
            for name in self._models_of(agent):
                of_model = {"embedding_model": name, "agent_id": agent}
                if name != model or is_staged:
                    for part in _parts(of_model, model, is_staged=is_staged):
                        for document in self._pages_by_id(part, codec.NO_VECTOR):
                            yield codec.fact_from(document)
                    continue
                for document, _ in self._unfit(of_model, dimensions):
                    yield codec.fact_from(document)

    def unsearchable(self, scopes: Sequence[Scope], *, model: str) -> int:
        """See `edenmem.store.protocol.store.Store.unsearchable`."""
        owners = group_filters(scopes, fact_fields)
        if slot_of(self._switch(), model) is STAGED:
            parts = [part for owner in owners for part in _parts(owner, model, is_staged=True)]
            return sum(map(self._facts.count, parts))
        return sum(
            self._facts.count({**owner, "embedding_model": {"$ne": model}}) for owner in owners
        )

    def _agents_with_facts(self, agent_id: str | None) -> list[Any]:
        if agent_id is not None:
            return [object_id(agent_id)]
        return sorted(self._facts.distinct("agent_id"), key=str)

    def _models_of(self, agent: Any) -> list[str | None]:
        found = self._facts.distinct("embedding_model", {"agent_id": agent})
        return [None, *sorted(name for name in found if isinstance(name, str))]

    def _unfit(self, of_model: Filter, dimensions: int | None) -> Iterator[tuple[Document, bool]]:
        """Documents that name the model without a fitting vector, and whether they have one."""
        for way in _not_of_length(dimensions):
            for document in self._pages_by_id({**of_model, **way}):
                vector = vectors.decode(document.get("embedding"))
                if vector is None or (dimensions and len(vector) != 4 * dimensions):
                    yield document, vector is not None

    def _pages_by_id(self, filter: Filter, projection: Filter | None = None) -> Iterator[Document]:
        """Documents by id, a page at a time: a cursor would not outlast the work on them."""
        page = list(self._facts.find(filter, projection, sort=_BY_ID, limit=BATCH))
        while page:
            yield from page
            if len(page) < BATCH:
                return
            after = {**filter, "_id": {"$gt": page[-1]["_id"]}}
            page = list(self._facts.find(after, projection, sort=_BY_ID, limit=BATCH))


def _parts(facts: Filter, model: str, *, is_staged: bool) -> list[Filter]:
    """Filters for all of the facts or, where vectors of the model are beside others, for those that
    have none there of their present text."""
    if not is_staged:
        return [facts]
    return [{**facts, **part} for part in not_of_this_text(model)]


def _not_of_length(dimensions: int | None) -> list[Filter]:
    """Filters, no two of which have a fact in common, for facts that may have no vector or one of
    another length; whoever reads them looks again.

    Binary values are ordered by their length first, so those below all of the length are shorter.
    """
    missing: Filter = {"embedding.0": None, "embedding": {"$not": {"$type": "binData"}}}
    if dimensions is None:
        return [missing, {"embedding.0": 0}]
    size = _HEADER + 4 * dimensions
    return [
        missing,
        {"embedding.0": 0, "embedding": {"$size": dimensions}},
        {"embedding.0": {"$ne": None}, "embedding": {"$not": {"$size": dimensions}}},
        {"embedding": {"$lt": Binary(bytes(size), 0)}},
        {"embedding": {"$gte": Binary(bytes(size + 1), 0)}},
    ]
