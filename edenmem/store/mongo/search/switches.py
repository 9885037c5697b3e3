"""Switch between embedding models: the switch document, the new index and its vectors.

The old vectors stay in the platform's field, ``embedding``, until the new ones replace them. Until
then the new ones are in a separate field with a separate search index.
"""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from pymongo import UpdateOne
from pymongo.errors import DuplicateKeyError

from edenmem.models.embeddings import VectorSwitch
from edenmem.models.indexes import IndexState
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.collections import OWN, STAGED, STAGED_HASH
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import Filter
from edenmem.store.mongo.search.search import SearchChoice, finds_vector_of
from edenmem.store.mongo.search.search_definitions import state_of
from edenmem.store.mongo.search.slots import (
    STAGED_FIELDS,
    Slots,
    of_this_text,
    switch_document,
    vector_in,
)
from edenmem.store.mongo.search.vectors import by_agent_and_model, pages_by_id
from edenmem.store.protocol.store import batched

#: Vectors moved in one write.
_PAGE = 100
_VECTORS = {OWN.field: 1, OWN.model: 1, STAGED.field: 1, STAGED.model: 1, STAGED_HASH: 1, "hash": 1}

#: The only model with which the platform embeds facts and queries.
_PLATFORM_MODEL = "text-embedding-3-small"


class MongoSwitches:
    """Implements `edenmem.store.protocol.search.ModelSwitches`."""

    def __init__(self, db: Connection, slots: Slots, choice: SearchChoice) -> None:
        self._db = db
        self._slots = slots
        self._choice = choice

    # -- the switch ------------------------------------------------------------------------

    def platform_model(self, model: str) -> str:
        if self._db.settings.other_model_beside_platform or model == _PLATFORM_MODEL:
            return ""
        return _PLATFORM_MODEL if self._slots.is_beside_platform() else ""

    def vector_switch(self) -> VectorSwitch | None:
        return self._slots.read_switch()

    def move_switch(self, before: VectorSwitch | None, after: VectorSwitch | None) -> bool:
        self._slots.forget_switch()
        if before is not None:
            same = switch_document(before)
            if after is None:
                return self._db.switches.delete_one(same)
            return self._db.switches.update_one(same, {"$set": switch_document(after)}) > 0
        if after is not None:
            with suppress(DuplicateKeyError):
                self._db.switches.insert_one(switch_document(after))
                return True
        return False

    # -- the search index ------------------------------------------------------------------

    def switch_index(self) -> IndexState | None:
        switch = self._slots.read_switch()
        if switch is None or not switch.is_staged(switch.model):
            return None
        if not self._db.facts.answers_search():
            return None
        wanted = names.vector_index(dimensions=switch.dimensions, slot=STAGED)
        return state_of(wanted, self._staged_index())

    def _staged_index(self) -> Document | None:
        return self._db.facts.search_indexes().get(STAGED.index)

    def drop_switch_index(self) -> bool:
        found = self._staged_index() if self._db.facts.answers_search() else None
        if found is not None and str(found.get("status") or "").upper() != "DELETING":
            self._db.facts.drop_search_index(STAGED.index)
            found = self._staged_index()
        return found is None

    def finds_vectors(self, model: str) -> bool:
        search, switch = self._choice.atlas(), self._slots.read_switch()
        if search is None or switch is None:
            return True
        slot = OWN if switch.phase in ("settling", "clearing") else STAGED
        there = {STAGED.model: {"$ne": None}} if slot is STAGED else {}
        latest = (  # the facts whose vectors a backfill writes last
            document
            for of_model in by_agent_and_model(self._db)
            for document in self._db.facts.find({**of_model, **there}, sort=[("_id", -1)], limit=1)
        )
        return all(finds_vector_of(search, document, model, slot) for document in latest)

    # -- the vectors -----------------------------------------------------------------------

    def vectors_of(self, fact_ids: Sequence[str], *, model: str) -> dict[str, bytes]:
        found = {
            str(document["_id"]): vector_in(document, model)
            for document in self._db.find_by_ids(self._db.facts, fact_ids, _VECTORS)
        }
        return {fact_id: vector for fact_id, vector in found.items() if vector is not None}

    def settle_vectors(self) -> Iterator[int]:
        switch = self._slots.read_switch()
        if switch is not None and switch.phase in ("settling", "clearing"):
            for page in self._pages(of_this_text(switch.model), _VECTORS, but=switch.model):
                yield self._db.facts.bulk([_settle_vector(document) for document in page])[0]

    def clear_staged(self) -> Iterator[int]:
        switch = self._slots.read_switch()
        if switch is not None and switch.phase in ("clearing", "abandoning"):
            for page in self._pages({STAGED.model: {"$ne": None}}, {"_id": 1}):
                ids = {"$in": [document["_id"] for document in page]}
                yield self._db.facts.update_many({"_id": ids}, {"$unset": STAGED_FIELDS})

    def _pages(
        self, staged: Filter, fields: Filter, *, but: str | None = None
    ) -> Iterator[list[Document]]:
        for of_model in by_agent_and_model(self._db):
            if but is None or of_model[OWN.model] != but:
                documents = pages_by_id(self._db.facts, {**of_model, **staged}, fields)
                yield from batched(documents, _PAGE)


def _settle_vector(document: Document) -> UpdateOne:
    """Return an update that activates a staged vector, unless the text has changed."""
    same: dict[str, Any] = {"hash": document["hash"], STAGED_HASH: document["hash"]}
    vector = {OWN.field: document[STAGED.field], OWN.model: document[STAGED.model]}
    return UpdateOne({"_id": document["_id"], **same}, {"$set": vector})
