"""The switch to another model: its document, the index of the new vectors, and their settling.

The old vectors stay in the field that the platform reads, ``embedding``, until the new ones take
their place there; meanwhile these are in a field of their own with a search index of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from pymongo import UpdateOne
from pymongo.errors import DuplicateKeyError

from edenmem.models.indexes import IndexState
from edenmem.models.switch import SwitchPhase, VectorSwitch, continue_switch
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.collections import OWN, STAGED, STAGED_HASH, SearchIndex, VectorSlot
from edenmem.store.mongo.core.filters import Filter, id_parts, object_id
from edenmem.store.mongo.indexes.search_definitions import state_of
from edenmem.store.mongo.search.atlas_search import AtlasSearch
from edenmem.store.mongo.search.search import SearchPart
from edenmem.store.mongo.search.slots import (
    STAGED_FIELDS,
    SWITCH_ID,
    of_this_text,
    switch_document,
    vector_in,
)
from edenmem.store.mongo.search.staleness import StalenessPart
from edenmem.store.protocol.store import batched

#: Vectors that are moved in one write.
_PAGE = 100
_VECTORS = {OWN.field: 1, OWN.model: 1, STAGED.field: 1, STAGED.model: 1, STAGED_HASH: 1, "hash": 1}


class SwitchPart(SearchPart, StalenessPart):
    """See `edenmem.store.protocol.vectors.ModelSwitches`."""

    # -- where it stands ---------------------------------------------------------------------

    @property
    def _switches(self) -> Collection:
        return self._collection(names.SWITCH)

    def begin_switch(self, switch: VectorSwitch) -> VectorSwitch:
        """See `edenmem.store.protocol.vectors.ModelSwitches.begin_switch`."""
        try:
            self._switches.insert_one(switch_document(switch))
        except DuplicateKeyError:
            there = self.vector_switch()
            if there is None:  # it was ended at this moment
                return self.begin_switch(switch)
            switch = continue_switch(there, switch)
        self._known_switch = None
        self._make_index(switch)
        return switch

    def _make_index(self, switch: VectorSwitch) -> None:
        if not self._facts.answers_search():
            return
        wanted = _index_of(switch)
        found = self._staged_index()
        if found is None:
            self._facts.create_search_index(wanted.name, wanted.type, wanted.definition)
        elif state_of(wanted, found).differences:  # left by another switch
            self._facts.update_search_index(wanted.name, wanted.definition)

    def _staged_index(self) -> Document | None:
        for index in self._facts.search_indexes():
            if index.get("name") == STAGED.index:
                return index
        return None

    def move_switch(
        self, model: str, *, before: SwitchPhase, after: SwitchPhase, at: datetime
    ) -> bool:
        """See `edenmem.store.protocol.vectors.ModelSwitches.move_switch`."""
        fields: Document = {"phase": after}
        if after == "switched":
            fields["switched_at"] = at
        self._known_switch = None
        there = {"_id": SWITCH_ID, "model": model, "phase": before}
        return self._switches.update_one(there, {"$set": fields}) > 0

    def end_switch(self, model: str) -> bool:
        """See `edenmem.store.protocol.vectors.ModelSwitches.end_switch`."""
        self._known_switch = None
        ended = {"$in": ["clearing", "abandoning"]}
        return self._switches.delete_one({"_id": SWITCH_ID, "model": model, "phase": ended})

    # -- its index ---------------------------------------------------------------------------

    def switch_index(self) -> IndexState | None:
        """See `edenmem.store.protocol.vectors.ModelSwitches.switch_index`."""
        switch = self.vector_switch()
        if switch is None or not switch.is_staged(switch.model):
            return None
        if not self._facts.answers_search():
            return None
        return state_of(_index_of(switch), self._staged_index())

    def drop_switch_index(self) -> bool:
        """See `edenmem.store.protocol.vectors.ModelSwitches.drop_switch_index`."""
        if not self._facts.answers_search():
            return True
        found = self._staged_index()
        if found is None:
            return True
        if str(found.get("status") or "").upper() != "DELETING":
            self._facts.drop_search_index(STAGED.index)
        return self._staged_index() is None

    def finds_vectors(self, model: str) -> bool:
        """See `edenmem.store.protocol.vectors.ModelSwitches.finds_vectors`."""
        search, switch = self._search, self.vector_switch()
        if not isinstance(search, AtlasSearch) or switch is None:
            return True
        slot = OWN if switch.phase in ("settling", "clearing") else STAGED
        return all(self._finds(search, document, model, slot) for document in self._latest(slot))

    def is_searchable(self, fact_id: str) -> bool:
        """See `edenmem.store.protocol.indexes.Indexes.is_searchable`; also by a vector of a new
        model, which has an index of its own."""
        if not super().is_searchable(fact_id):
            return False
        search, switch = self._search, self.vector_switch()
        if not isinstance(search, AtlasSearch) or switch is None or switch.phase != "switched":
            return True
        there = {"_id": object_id(fact_id), STAGED.model: switch.model}
        return all(
            self._finds(search, document, switch.model, STAGED)
            for document in self._facts.find(there)
        )

    def _finds(self, search: AtlasSearch, document: Document, model: str, slot: VectorSlot) -> bool:
        vector = vector_in(document, model)
        return vector is None or search.finds_vector(codec.fact_from(document), vector, model, slot)

    def _latest(self, slot: VectorSlot) -> Iterator[Document]:
        """Facts whose vectors were the last to be written, by this process or in the order in
        which a backfill goes."""
        known = self._last_written.get(slot.index)
        if known is not None:
            yield from self._facts.find({"_id": {"$in": known}})
            return
        for of_model in self._all_models():
            there = {STAGED.model: {"$ne": None}} if slot is STAGED else {}
            yield from self._facts.find({**of_model, **there}, sort=[("_id", -1)], limit=1)

    # -- its vectors -------------------------------------------------------------------------

    def vectors_of(self, fact_ids: Sequence[str], *, model: str) -> dict[str, bytes]:
        """See `edenmem.store.protocol.vectors.ModelSwitches.vectors_of`."""
        filters = [{"_id": {"$in": part}} for part in id_parts(fact_ids)]
        found = {
            str(document["_id"]): vector_in(document, model)
            for document in self._find_all(self._facts, filters, _VECTORS)
        }
        return {fact_id: vector for fact_id, vector in found.items() if vector is not None}

    def settle_vectors(self) -> Iterator[int]:
        """See `edenmem.store.protocol.vectors.ModelSwitches.settle_vectors`."""
        switch = self.vector_switch()
        if switch is None or switch.phase not in ("settling", "clearing"):
            return
        for of_model in self._all_models(but=switch.model):
            documents = self._pages_by_id({**of_model, **of_this_text(switch.model)}, _VECTORS)
            for page in batched(documents, _PAGE):
                yield self._facts.bulk([_settle_vector(document) for document in page])[0]
                self._last_written[OWN.index] = [page[-1]["_id"]]

    def clear_staged(self) -> Iterator[int]:
        """See `edenmem.store.protocol.vectors.ModelSwitches.clear_staged`."""
        switch = self.vector_switch()
        if switch is None or switch.phase not in ("clearing", "abandoning"):
            return
        for of_model in self._all_models():
            documents = self._pages_by_id({**of_model, STAGED.model: {"$ne": None}}, {"_id": 1})
            for page in batched(documents, _PAGE):
                ids = {"$in": [document["_id"] for document in page]}
                yield self._facts.update_many({"_id": ids}, {"$unset": STAGED_FIELDS})

    def _all_models(self, *, but: str | None = None) -> Iterator[Filter]:
        """Filters for the facts of each agent and model, along an index."""
        for agent in self._agents_with_facts(None):
            for name in self._models_of(agent):
                if but is None or name != but:
                    yield {OWN.model: name, "agent_id": agent}


def _index_of(switch: VectorSwitch) -> SearchIndex:
    return names.vector_index(dimensions=switch.dimensions, slot=STAGED)


def _settle_vector(document: Document) -> UpdateOne:
    """The vector beside, in the place of the fact's own, unless the text was changed meanwhile."""
    same: dict[str, Any] = {"hash": document["hash"], STAGED_HASH: document["hash"]}
    vector = {OWN.field: document[STAGED.field], OWN.model: document[STAGED.model]}
    return UpdateOne({"_id": document["_id"], **same}, {"$set": vector})
