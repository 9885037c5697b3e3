"""Vectors of facts by embedding model, and facts without a vector.

Facts of each agent and model are read along `edenmem_fact_model`, by ID.
"""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from bson.binary import Binary
from pymongo import UpdateOne

from edenmem.models.embeddings import is_staged
from edenmem.models.integrity import Finding
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import BATCH, Collection, Document
from edenmem.store.mongo.core.collections import STAGED
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    Filter,
    after,
    fact_fields,
    group_filters,
    id_parts,
    object_id,
)
from edenmem.store.mongo.search.slots import (
    Slots,
    not_of_this_text,
    of_this_text,
    place_vector,
    slot_of,
)
from edenmem.store.protocol.search import VectorCount
from edenmem.store.protocol.store import batched

_BY_ID = (("_id", 1),)

#: The header of a binary vector: its type, and the number of unused bits in its last byte.
_HEADER = 2

#: Filters that recognize a vector without reading all of it.
_PLAIN_VECTORS: tuple[Filter, ...] = (
    {"embedding.0": {"$nin": [None, 0]}},
    {"embedding": {"$type": "binData"}},
)

#: Vectors per write.
_VECTORS = 1000


class MongoVectors:
    """Implements `edenmem.store.protocol.search.Vectors`."""

    def __init__(self, db: Connection, slots: Slots) -> None:
        self._db = db
        self._slots = slots

    def set_vectors(
        self, vectors: Mapping[str, tuple[str, bytes]], *, model: str, staged: bool = False
    ) -> int:
        written = 0
        for batch in batched(vectors.items(), _VECTORS):
            switch = self._slots.read_switch()
            is_staged(switch, model, must=staged)
            operations = [
                UpdateOne(
                    {"_id": object_id(fact_id), "hash": hash},
                    {"$set": place_vector(fields, hash, switch)},
                )
                for fact_id, (hash, vector) in batch
                if (fields := codec.vector_fields(vector, model, self._slots.storage()))
            ]
            written += self._db.facts.bulk(operations)[0]
        return written

    def vector_model_names(self, scopes: Sequence[Scope]) -> tuple[str, ...]:
        found: set[str] = set()
        for owner in group_filters(scopes, fact_fields):
            names = self._db.facts.distinct("embedding_model", owner)
            for name in {name for name in names if isinstance(name, str) and name} - found:
                of_model = {**owner, "embedding_model": name}
                # The first number of a valid vector can be 0; all are 0 after a failed embedding.
                if any(
                    self._db.facts.find_one({**of_model, **vector}, {"_id": 1})
                    for vector in _PLAIN_VECTORS
                ) or self._db.facts.count(of_model) > sum(
                    1 for _ in _without_vector(self._db, of_model)
                ):
                    found.add(name)
        return tuple(sorted(found))

    def first_vector_model(self) -> str:
        has_model: Filter = {"embedding_model": {"$gt": ""}}
        # The index on models tells quickly that there are none; by ID, all facts would be read.
        if self._db.facts.find_one(has_model, {"_id": 1}) is None:
            return ""
        first = self._db.facts.find_one(has_model, {"embedding_model": 1}, sort=_BY_ID)
        return "" if first is None else str(first["embedding_model"])

    def vector_counts(
        self, model: str, *, dimensions: int | None, agent_id: str | None = None
    ) -> list[VectorCount]:
        owner: Filter = {} if agent_id is None else {"agent_id": object_id(agent_id)}
        is_staged = slot_of(self._slots.read_switch(), model) is STAGED
        parts = not_of_this_text(model) if is_staged else [{}]
        found = _count_models(self._db, owner, parts)
        wrong = Counter[Any]()
        if is_staged:  # only facts with a staged vector count
            for agent, name in list(found):
                if name == model:
                    found[agent, ""] += found.pop((agent, name))
            for name in _models_of(self._db, owner):
                of_text = {**owner, "embedding_model": name, **of_this_text(model)}
                for row in self._db.facts.aggregate([{"$match": of_text}, {"$group": _BY_MODEL}]):
                    found[row["_id"]["agent"], model] += row["facts"]
        elif dimensions is not None:
            of_model = {**owner, "embedding_model": model}
            wrong.update(
                document.get("agent_id")
                for document, has_one in _unfit(self._db, of_model, dimensions)
                if has_one
            )
        return [
            VectorCount(
                agent_id=str(agent),
                model=name,
                facts=facts,
                wrong_length=wrong[agent] if name == model else 0,
            )
            for (agent, name), facts in sorted(found.items(), key=str)
            if facts
        ]

    def stale_facts(
        self, model: str, *, dimensions: int | None, agent_id: str | None = None
    ) -> Iterator[Fact]:
        is_staged = slot_of(self._slots.read_switch(), model) is STAGED
        parts = not_of_this_text(model) if is_staged else [{}]
        for of_model in by_agent_and_model(self._db, agent_id):
            if of_model["embedding_model"] == model and not is_staged:
                unfit = (document for document, _ in _unfit(self._db, of_model, dimensions))
                yield from codec.read_owned(codec.fact_from, unfit)
                continue
            for part in parts:
                found = pages_by_id(self._db.facts, {**of_model, **part}, codec.NO_VECTOR)
                yield from codec.read_owned(codec.fact_from, found)

    def vector_faults(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        for of_model in by_agent_and_model(self._db, agent_id):
            if of_model["embedding_model"] is None:
                continue
            for document, has_one in _unfit(self._db, of_model, None):
                if not has_one:
                    yield _finding_of(document, of_model["embedding_model"])

    def drop_vectors(self, fact_ids: Sequence[str]) -> int:
        fields = {"embedding": "", "embedding_model": ""}
        return sum(
            self._db.facts.update_many({"_id": {"$in": part}}, {"$unset": fields})
            for part in id_parts(fact_ids)
        )


_BY_MODEL: Document = {
    "_id": {"agent": "$agent_id", "model": "$embedding_model"},
    "facts": {"$sum": 1},
}


def _count_models(
    db: Connection, filter: Filter, parts: Sequence[Filter]
) -> Counter[tuple[Any, str]]:
    """Count facts by agent and the model of their vector; "" counts those without a vector."""
    found = Counter[tuple[Any, str]]()
    for model, part in product(_models_of(db, filter), parts):
        of_model = {**filter, "embedding_model": model, **part}
        for row in db.facts.aggregate([{"$match": of_model}, {"$group": _BY_MODEL}]):
            found[row["_id"]["agent"], row["_id"].get("model") or ""] += row["facts"]
    names = {name for _, name in found if name}
    for name, part in product(names, parts):
        for document in _without_vector(db, {**filter, "embedding_model": name, **part}):
            found[document.get("agent_id"), name] -= 1
            found[document.get("agent_id"), ""] += 1
    return +found


def _models_of(db: Connection, filter: Filter) -> Sequence[Any]:
    """Return conditions for facts without a model, and for the others: each is one index range."""
    if not filter:
        return None, {"$gte": ""}
    found = db.facts.distinct("embedding_model", filter)
    return [None, *sorted(name for name in found if isinstance(name, str))]


def by_agent_and_model(db: Connection, agent_id: str | None = None) -> Iterator[Filter]:
    """Yield filters for the facts of each agent and model; None means no model."""
    every = [] if agent_id else sorted(db.facts.distinct("agent_id"), key=str)
    for agent in [object_id(agent_id)] if agent_id else every:
        for name in _models_of(db, {"agent_id": agent}):
            yield {"embedding_model": name, "agent_id": agent}


def _without_vector(db: Connection, filter: Filter) -> Iterator[Document]:
    """Yield facts without a vector, or with zeros from a failed embedding."""
    fields = {"agent_id": 1, "embedding": 1}
    for way in _not_of_length(None):
        for document in db.facts.find({**filter, **way}, fields):
            if codec.decode_vector(document.get("embedding")) is None:
                yield document


def _unfit(
    db: Connection, of_model: Filter, dimensions: int | None
) -> Iterator[tuple[Document, bool]]:
    """Yield documents that name the model without a valid vector, and if they have a vector."""
    for way in _not_of_length(dimensions):
        for document in pages_by_id(db.facts, {**of_model, **way}):
            vector = codec.decode_vector(document.get("embedding"))
            if vector is None or (dimensions and len(vector) != 4 * dimensions):
                yield document, vector is not None


def pages_by_id(
    collection: Collection, filter: Filter, projection: Filter | None = None
) -> Iterator[Document]:
    """Yield documents by ID, page by page: a cursor could expire while the caller works."""
    page = list(collection.find(filter, projection, sort=_BY_ID, limit=BATCH))
    while page:
        yield from page
        if len(page) < BATCH:
            return
        later = {**filter, **after("_id", page[-1]["_id"])}
        page = list(collection.find(later, projection, sort=_BY_ID, limit=BATCH))


def _not_of_length(dimensions: int | None) -> list[Filter]:
    """Return disjoint filters for candidates without a vector of this length; the caller checks.

    A binary vector has no element 0 either, so its type is checked. Binary values sort by length
    first, so a smaller binary value than any of the length is shorter.
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


def _finding_of(document: Document, model: str) -> Finding:
    fact = codec.readable_fact(document)
    has_zeros = document.get("embedding")
    return Finding(
        target_type="fact",
        target_id=str(document["_id"]),
        detail=f"has no usable vector of {model}: {'zeros' if has_zeros else 'missing'}",
        agent_id=str(document.get("agent_id") or ""),
        scope=None if fact is None else fact.home,
        text=codec.text(document.get("content")),
    )
