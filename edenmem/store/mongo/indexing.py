"""Indexes on request: what there is, and making, changing and dropping it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from pymongo.errors import DuplicateKeyError

from edenmem.errors import ConflictError, NotFoundError, StoreError
from edenmem.models.indexes import IndexState, IndexWish
from edenmem.store.mongo import collections as names
from edenmem.store.mongo.collections import BESIDE, Index, SearchIndex
from edenmem.store.mongo.schema import SchemaPart, has_keys, obstacle
from edenmem.store.mongo.search_definitions import state_of
from edenmem.store.mongo.slots import SlotPart
from edenmem.store.mongo.trial import Trial

NO_SEARCH = "this MongoDB answers no search commands (Atlas does), so search is an exact scan"


class IndexPart(SchemaPart, SlotPart):
    """Tells of indexes and changes them, one at a time."""

    def indexes(self, wish: IndexWish) -> list[IndexState]:
        """See `edenmem.store.index_protocol.Indexes.indexes`."""
        return [*self._ordinary_states(), *self._search_states(wish)]

    def create_index(self, name: str, wish: IndexWish) -> None:
        """See `edenmem.store.index_protocol.Indexes.create_index`."""
        ordinary = self._ordinary().get(name)
        if ordinary is not None:
            self._build(ordinary, ordinary.name)
            return
        wanted = self._search_index(name, wish)
        if self._found(wanted) is None:
            self._facts.create_search_index(wanted.name, wanted.type, wanted.definition)

    def update_index(self, name: str, wish: IndexWish) -> None:
        """See `edenmem.store.index_protocol.Indexes.update_index`."""
        ordinary = self._ordinary().get(name)
        if ordinary is not None:
            self._rebuild(ordinary)
            return
        wanted = self._search_index(name, wish)
        found = self._found(wanted)
        if found is None:
            raise _no_such(name)
        if str(found.get("type") or "search") != wanted.type:
            raise ConflictError(
                f"the search index {name} is of another type, which cannot be changed",
                hint=f"'edenmem index drop {name}', then 'edenmem index create'",
            )
        self._facts.update_search_index(wanted.name, wanted.definition)

    def drop_index(self, name: str) -> None:
        """See `edenmem.store.index_protocol.Indexes.drop_index`."""
        ordinary = self._ordinary().get(name)
        if ordinary is not None:
            if ordinary.unique:
                raise ConflictError(
                    f"{name} keeps {ordinary.collection} free of duplicates and is not dropped"
                )
            collection = self._collection(ordinary.collection)
            if name not in collection.indexes():
                raise _no_such(name)
            collection.drop_index(name)
            return
        if name == BESIDE.index and self._beside_wish() is not None:
            raise ConflictError(
                f"{name} belongs to the switch of the embedding model that is under way",
                hint="'edenmem embed switch' has 'drop-old', 'back' and 'abandon'",
            )
        if name not in (names.VECTOR_INDEX, names.TEXT_INDEX):
            raise _no_such(name)
        self._need_search()
        if name not in {index.get("name") for index in self._facts.search_indexes()}:
            raise _no_such(name)
        self._facts.drop_search_index(name)

    def search_trial(self) -> Trial:
        """See `edenmem.store.index_protocol.Indexes.search_trial`."""
        self._need_search()
        return Trial(
            self._collection, self._together, max_seconds=self._settings.search_timeout_seconds
        )

    # -- ordinary ones -----------------------------------------------------------------------

    def _ordinary(self) -> dict[str, Index]:
        every = (*names.MEMORY_INDEXES, *names.host_indexes(self._settings))
        return {index.name: index for index in every}

    def _ordinary_states(self) -> Iterator[IndexState]:
        ordinary = self._ordinary().values()
        collections = dict.fromkeys(index.collection for index in ordinary)
        existing = dict(
            zip(
                collections,
                self._together([self._collection(name).indexes for name in collections]),
                strict=True,
            )
        )
        for index in ordinary:
            yield _ordinary_state(index, existing[index.collection])

    def _build(self, index: Index, name: str) -> None:
        collection = self._collection(index.collection)
        try:
            collection.create_index(index.keys, **{**index.options(), "name": name})
        except DuplicateKeyError as error:
            raise StoreError(
                obstacle(collection, index), hint="remove or change the duplicates, then try again"
            ) from error

    def _rebuild(self, index: Index) -> None:
        """Drop and make anew; a unique one stands under another name before the old one goes."""
        collection = self._collection(index.collection)
        existing = collection.indexes()
        if index.name not in existing:
            raise _no_such(index.name)
        if tuple(existing[index.name]["key"]) == index.keys and index.unique:
            raise ConflictError(
                f"{index.name} keeps {index.collection} free of duplicates, and a second index of "
                "the same fields cannot stand beside it; it stays as it is"
            )
        if index.unique:
            self._build(index, f"{index.name}_2")
            collection.drop_index(index.name)
        else:
            collection.drop_index(index.name)
            self._build(index, index.name)

    # -- those for search --------------------------------------------------------------------

    def _search_states(self, wish: IndexWish) -> Iterator[IndexState]:
        vector = names.vector_index(dimensions=wish.dimensions or 1, similarity=wish.similarity)
        text = names.text_index(analyzer=wish.analyzer)
        answers = self._facts.answers_search()
        there = {i.get("name"): i for i in self._facts.search_indexes()} if answers else {}
        beside = self._beside_wish() if answers else None
        for wanted in (vector, text, *([beside] if beside else [])):
            state = state_of(wanted, there.get(wanted.name))
            if not answers:
                yield _replaced(state, status="unavailable", wanted=None, note=NO_SEARCH)
            elif wanted is vector and wish.dimensions is None:
                # Without a model nothing is known of what it should be.
                status = "unwanted" if state.found is None or state.differences else state.status
                note = "there is no embedding model"
                yield _replaced(state, status=status, wanted=None, differences=(), note=note)
            else:
                yield state

    def _search_index(self, name: str, wish: IndexWish) -> SearchIndex:
        if name == names.TEXT_INDEX:
            self._need_search()
            return names.text_index(analyzer=wish.analyzer)
        beside = self._beside_wish() if name == BESIDE.index else None
        if beside is not None:
            return beside
        if name != names.VECTOR_INDEX:
            raise _no_such(name)
        self._need_search()
        if wish.dimensions is None:
            raise StoreError(
                f"without an embedding model the dimensions of {name} are not known",
                hint="set one up (see 'edenmem config show'), or leave this index out",
            )
        return names.vector_index(dimensions=wish.dimensions, similarity=wish.similarity)

    def _beside_wish(self) -> SearchIndex | None:
        """The index that the new vectors of a switch need."""
        switch = self.vector_switch()
        if switch is None or not switch.is_beside(switch.model):
            return None
        return names.vector_index(dimensions=switch.dimensions, slot=BESIDE)

    def _found(self, wanted: SearchIndex) -> Mapping[str, Any] | None:
        for index in self._facts.search_indexes():
            if index.get("name") == wanted.name:
                return index
        return None

    def _need_search(self) -> None:
        if not self._facts.answers_search():
            raise StoreError(NO_SEARCH, hint="there are no search indexes to work on here")


def _no_such(name: str) -> NotFoundError:
    return NotFoundError(f"there is no index {name}", hint="'edenmem index list' names them")


def _replaced(state: IndexState, **fields: Any) -> IndexState:
    return msgspec.structs.replace(state, **fields)


def _ordinary_state(index: Index, existing: Mapping[str, Any]) -> IndexState:
    state = IndexState(
        name=index.name,
        kind="ordinary",
        collection=index.collection,
        status="missing",
        unique=index.unique,
        wanted=_described(index.keys, index.unique, index.partial),
    )
    found = existing.get(index.name)
    if found is None:
        if not has_keys(existing, index):
            return state
        return _replaced(state, status="ready", queryable=True, note="under another name")
    there = _described(
        found["key"], bool(found.get("unique")), found.get("partialFilterExpression")
    )
    wanted = state.wanted or {}
    differences = tuple(
        f"{field}: is {there[field]}, wanted {wanted[field]}"
        for field in wanted
        if there[field] != wanted[field]
    )
    return _replaced(
        state,
        status="different" if differences else "ready",
        queryable=True,
        found=there,
        differences=differences,
    )


def _described(keys: Any, unique: bool, partial: Any) -> dict[str, Any]:
    shown = {field: int(order) for field, order in keys}
    return {"keys": shown, "unique": unique, "partial": dict(partial) if partial else None}
