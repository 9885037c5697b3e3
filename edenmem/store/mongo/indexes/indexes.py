"""List, create, rebuild, drop and replace indexes on request."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from pymongo.errors import DuplicateKeyError

from edenmem.errors import ConflictError, NotFoundError, StoreError
from edenmem.models.indexes import IndexState, IndexWish, SearchTrial
from edenmem.models.integrity import Finding
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import Collection
from edenmem.store.mongo.core.collections import (
    FACT_KEY,
    PLATFORM_FILTERS,
    STAGED,
    TEMPORARY_FACT_KEY,
    Index,
    SearchIndex,
)
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.migrations import lease_schema
from edenmem.store.mongo.core.readiness import (
    REPLACE,
    FactKeys,
    fact_keys,
    foreign_note,
    has_keys,
    key_note,
    obstacle,
    read_fact_keys,
    require_writable,
)
from edenmem.store.mongo.indexes.trial import Trial
from edenmem.store.mongo.search.search_definitions import describe_service, state_of
from edenmem.store.mongo.search.slots import Slots

_CREATES_OWN = "'edenmem index create' with its name creates it"
#: Maximum number of attempts if the platform recreates its index.
_ROUNDS = 5
NO_SEARCH = "this MongoDB has no search commands (Atlas does), so search is an exact scan"


class MongoIndexes:
    """Implements `edenmem.store.protocol.database.Indexes`."""

    def __init__(self, db: Connection, slots: Slots) -> None:
        self._db = db
        self._slots = slots

    def list_indexes(self, wish: IndexWish) -> list[IndexState]:
        return [*self._ordinary_states(), *self._search_states(wish)]

    def create_index(self, name: str, wish: IndexWish) -> None:
        ordinary = self._ordinary().get(name)
        if ordinary is not None:
            if ordinary is FACT_KEY and read_fact_keys(self._db).obsolete:
                raise _to_replace(name)
            build(self._db, ordinary)
            return
        wanted = self._search_index(name, wish)
        if wanted.name not in self._db.facts.search_indexes():
            self._db.facts.create_search_index(wanted.name, wanted.type, wanted.definition)

    def update_index(self, name: str, wish: IndexWish) -> None:
        ordinary = self._ordinary().get(name)
        if ordinary is not None:
            self._rebuild(ordinary)
            return
        self._require_own(name)
        wanted = self._search_index(name, wish)
        found = self._db.facts.search_indexes().get(wanted.name)
        if found is None:
            raise _no_such(name)
        if str(found.get("type") or "search") != wanted.type:
            raise ConflictError(
                f"search index has another type, which cannot be changed: {name}",
                hint=f"'edenmem index drop {name}', then 'edenmem index create'",
            )
        self._db.facts.update_search_index(wanted.name, wanted.definition)

    def drop_index(self, name: str, *, dry_run: bool = False) -> None:
        ordinary = self._ordinary().get(name)
        if ordinary is not None:
            if ordinary.unique:
                raise ConflictError(f"index prevents duplicates, so it cannot be dropped: {name}")
            if ordinary.background:
                raise ConflictError(
                    f"index is also the platform's, so it cannot be dropped: {name}"
                )
            collection = self._db.collection(ordinary.collection)
            if name not in collection.indexes():
                raise _no_such(name)
            if not dry_run:
                collection.drop_index(name)
            return
        if name == STAGED.index and self._staged_wish() is not None:
            raise ConflictError(
                f"index is in use by the switch of the embedding model in progress: {name}",
                hint="'edenmem embed use' has --drop-old, --back and --abandon",
            )
        configured = (self._db.settings.vector_index, self._db.settings.text_index)
        if name in (names.VECTOR_INDEX, names.TEXT_INDEX, *configured):
            self._require_search()
        elif not self._db.facts.answers_search():
            raise _no_such(name)
        if name not in self._db.facts.search_indexes():
            raise _no_such(name)
        self._require_own(name)
        if not dry_run:
            self._db.facts.drop_search_index(name)

    def replace_index(self, name: str) -> None:
        require_writable(self._db)
        if name != FACT_KEY.name:
            raise ConflictError(
                f"index cannot be replaced: {name}",
                hint="'edenmem index create --update' rebuilds it",
            )
        with lease_schema(self._db):
            for _ in range(_ROUNDS):
                with suppress(ConflictError):  # the platform recreated its index
                    _replace_fact_key(self._db)
                    return
        raise ConflictError(
            f"gave up on replacing {name}: another process recreated its index {_ROUNDS} times",
            hint=f"run '{REPLACE}' again while no process of the platform is starting",
        )

    def platform_conflicts(self) -> Iterator[Finding]:
        # The platform's own pipeline, which determines the order within a group.
        pipeline: list[dict[str, Any]] = [
            {
                "$group": {
                    "_id": {"hash": "$hash", "agent_id": "$agent_id"},
                    "count": {"$sum": 1},
                    "ids": {"$push": "$_id"},
                }
            },
            {"$match": {"count": {"$gt": 1}}},
        ]
        for group in self._db.facts.aggregate(pipeline):
            kept, *ids = group["ids"]
            for document in self._db.facts.find({"_id": {"$in": ids}}, codec.NO_VECTOR):
                fact = codec.readable_fact(document)
                yield Finding(
                    target_type="fact",
                    target_id=str(document["_id"]),
                    detail=f"the platform keeps {kept}, which has the same text",
                    agent_id=str(document.get("agent_id") or ""),
                    scope=fact.home if fact else None,
                    text=str(document.get("content") or ""),
                    related=(str(kept),),
                )

    def try_search(
        self,
        analyzer: str,
        wait: Callable[[Callable[[], bool]], bool],
        progress: Callable[[str], None],
    ) -> SearchTrial:
        self._require_search()
        return Trial(self._db, analyzer, wait, progress).run()

    # -- ordinary indexes ---------------------------------------------------------------------

    def _ordinary(self) -> dict[str, Index]:
        return names.ordinary_indexes(self._db.settings)

    def _ordinary_states(self) -> Iterator[IndexState]:
        ordinary = self._ordinary().values()
        collections = dict.fromkeys(index.collection for index in ordinary)
        existing = dict(
            zip(
                collections,
                self._db.run_all([self._db.collection(name).indexes for name in collections]),
                strict=True,
            )
        )
        for index in ordinary:
            there = existing[index.collection]
            state = _ordinary_state(index, there)
            if index is FACT_KEY:
                state = _fact_key_state(state, fact_keys(there), there)
            if state.status == "missing" and (problem := shard_problem(self._db, index)):
                state = msgspec.structs.replace(state, status="unavailable", note=problem)
            yield state
        for name in fact_keys(existing[names.FACTS]).other:
            found = existing[names.FACTS][name]
            yield IndexState(
                name=name,
                kind="ordinary",
                collection=names.FACTS,
                status="foreign",
                queryable=True,
                unique=True,
                found=_describe_key(found["key"], True, found.get("partialFilterExpression")),
                note=foreign_note(name),
            )

    def _rebuild(self, index: Index) -> None:
        """Rebuild an index; a unique one has to stay, or be replaced."""
        collection = self._db.collection(index.collection)
        existing = collection.indexes()
        if index is FACT_KEY and fact_keys(existing).obsolete:
            raise _to_replace(index.name)
        if index.name not in existing:
            raise _no_such(index.name)
        if index.unique:
            raise ConflictError(
                f"index cannot be rebuilt without permitting duplicates: {index.name}"
            )
        collection.drop_index(index.name)
        build(self._db, index)

    # -- search indexes --------------------------------------------------------------------

    def _search_states(self, wish: IndexWish) -> Iterator[IndexState]:
        answers = self._db.facts.answers_search()
        there = self._db.facts.search_indexes() if answers else {}
        for wanted, is_needed in self._search_wishes(wish, answers=answers):
            found = there.pop(wanted.name, None)
            state = state_of(wanted, found)
            if not answers:
                yield msgspec.structs.replace(
                    state, status="unavailable", wanted=None, note=NO_SEARCH
                )
                continue
            if found is not None and self._is_foreign(wanted.name):
                # Filters that such an index lacks are described, and are not differences.
                enough = self._wish_for(wanted.type, wish, PLATFORM_FILTERS)
                least = state_of(enough, found, fatal_only=True)
                note = "; ".join(filter(None, (describe_service(found), least.note)))
                state = msgspec.structs.replace(least, wanted=None, note=note)
            elif found is None and not is_needed:
                note = f"not needed while the settings name another; {_CREATES_OWN}"
                state = msgspec.structs.replace(state, status="unwanted", note=note)
            is_own = wanted.type == "vectorSearch" and state.name != STAGED.index
            if is_own and wish.dimensions is None:
                # Without a model the expected definition is unknown.
                status = "unwanted" if state.found is None or state.differences else state.status
                note = "no embedding model"
                state = msgspec.structs.replace(
                    state, status=status, wanted=None, differences=(), note=note
                )
            yield state
        for found in there.values():
            yield IndexState(
                name=str(found.get("name")),
                kind="vector" if found.get("type") == "vectorSearch" else "text",
                collection=names.FACTS,
                status="foreign",
                queryable=found.get("queryable") is True,
                found=found.get("latestDefinition"),
                note=f"not used by edenmem; {describe_service(found)}",
            )

    def _search_wishes(
        self, wish: IndexWish, *, answers: bool
    ) -> Iterator[tuple[SearchIndex, bool]]:
        """Yield the expected search indexes, and whether each is needed.

        Edenmem's own is not needed where the settings name another.
        """
        for type, own in (("vectorSearch", names.VECTOR_INDEX), ("search", names.TEXT_INDEX)):
            configured = self._wish_for(type, wish)
            yield configured, True
            if configured.name != own and answers:
                yield self._wish_for(type, wish, name=own), False
            if type == "vectorSearch" and answers and (staged := self._staged_wish()):
                yield staged, True

    def _wish_for(
        self, type: str, wish: IndexWish, filters: Sequence[str] | None = None, name: str = ""
    ) -> SearchIndex:
        """Return the search index of a type, under its configured name or another."""
        if type == "search":
            return names.text_index(
                analyzer=wish.analyzer,
                name=name or self._db.settings.text_index,
                filters=tuple(names.TEXT_FILTERS) if filters is None else filters,
            )
        return names.vector_index(
            dimensions=wish.dimensions or 1,
            name=name or self._db.settings.vector_index,
            filters=names.VECTOR_FILTERS if filters is None else filters,
        )

    @staticmethod
    def _is_foreign(name: str) -> bool:
        """Return whether edenmem does not define this index."""
        return name not in (names.VECTOR_INDEX, names.TEXT_INDEX, STAGED.index)

    def _require_own(self, name: str) -> None:
        if self._is_foreign(name):
            raise ConflictError(
                f"search index is not edenmem's own: {name}",
                hint="change it where it was created, or set store.vector_index and "
                f"store.text_index to {names.VECTOR_INDEX} and {names.TEXT_INDEX}",
            )

    def _search_index(self, name: str, wish: IndexWish) -> SearchIndex:
        wishes = {index.name: index for index, _ in self._search_wishes(wish, answers=True)}
        if name not in wishes:
            raise _no_such(name)
        self._require_search()
        if wishes[name].type == "vectorSearch" and name != STAGED.index and wish.dimensions is None:
            raise StoreError(
                f"dimensions of the index are unknown without an embedding model: {name}",
                hint="set a model (see 'edenmem config show'), or leave out this index",
            )
        return wishes[name]

    def _staged_wish(self) -> SearchIndex | None:
        """Return the index for the new vectors of a switch."""
        switch = self._slots.read_switch()
        if switch is None or not switch.is_staged(switch.model):
            return None
        return names.vector_index(dimensions=switch.dimensions, slot=STAGED)

    def _require_search(self) -> None:
        if not self._db.facts.answers_search():
            raise StoreError(NO_SEARCH, hint="there are no search indexes to manage")


class DuplicatesFound(StoreError):
    """Stored documents violate a unique index."""


def _to_replace(name: str) -> ConflictError:
    return ConflictError(f"another unique index blocks {name}", hint=f"replace it with '{REPLACE}'")


def _no_such(name: str) -> NotFoundError:
    return NotFoundError(f"index does not exist: {name}", hint="'edenmem index list' lists them")


def _fact_key_state(state: IndexState, keys: FactKeys, existing: Mapping[str, Any]) -> IndexState:
    """Return the state of `FACT_KEY`, with the indexes that it replaces."""
    temporary = (TEMPORARY_FACT_KEY.name,) if keys.temporary else ()
    replaces = (*keys.obsolete, *temporary)
    if not replaces:
        return state
    found = existing[replaces[0]]
    return msgspec.structs.replace(
        state,
        status="conflicting",
        queryable=True,
        found=_describe_key(found["key"], bool(found.get("unique")), None),
        differences=(),
        replaces=replaces,
        note=key_note(keys),
    )


def _ordinary_state(index: Index, existing: Mapping[str, Any]) -> IndexState:
    state = IndexState(
        name=index.name,
        kind="ordinary",
        collection=index.collection,
        status="missing",
        unique=index.unique,
        wanted=_describe_key(index.keys, index.unique, index.partial),
    )
    found = existing.get(index.name)
    if found is None:
        if not has_keys(existing, index):
            return state
        return msgspec.structs.replace(
            state, status="ready", queryable=True, note="under another name"
        )
    there = _describe_key(
        found["key"], bool(found.get("unique")), found.get("partialFilterExpression")
    )
    wanted = state.wanted or {}
    differences = tuple(
        f"{field}: is {there[field]}, expected {wanted[field]}"
        for field in wanted
        if there[field] != wanted[field]
    )
    return msgspec.structs.replace(
        state,
        status="different" if differences else "ready",
        queryable=True,
        found=there,
        differences=differences,
    )


def _describe_key(keys: Any, unique: bool, partial: Any) -> dict[str, Any]:
    shown = {field: int(order) for field, order in keys}
    return {"keys": shown, "unique": unique, "partial": dict(partial) if partial else None}


# -- building ------------------------------------------------------------------------------------


def _replace_fact_key(db: Connection) -> None:
    """Replace other indexes with `FACT_KEY`.

    A unique index protects facts throughout, and each step is idempotent.
    """
    keys = read_fact_keys(db)
    if not keys.final:
        _require_shard_key(db, FACT_KEY)
        if not keys.temporary:
            build(db, TEMPORARY_FACT_KEY)
    for name in keys.obsolete:
        db.facts.drop_index(name)
    build(db, FACT_KEY)
    left = read_fact_keys(db)
    if left.obsolete or not left.final:
        raise ConflictError("an index was recreated")
    if left.temporary:
        db.facts.drop_index(TEMPORARY_FACT_KEY.name)


def build(db: Connection, index: Index) -> None:
    """Create an index.

    Raises:
        StoreError: stored documents violate it, and are named; or the collection's sharding or the
            server does not support it.
    """
    _require_shard_key(db, index)
    collection = db.collection(index.collection)
    try:
        collection.create_index(index.keys, **index.options())
    except DuplicateKeyError as error:
        raise DuplicatesFound(
            obstacle(collection, index),
            hint="remove or change the duplicates, then try again; no index was dropped",
        ) from error


def _require_shard_key(db: Connection, index: Index) -> None:
    if problem := shard_problem(db, index):
        raise StoreError(problem, hint="reshard the collection, or use an unsharded one")


def shard_problem(db: Connection, index: Index) -> str:
    """Return why the collection's sharding prevents a unique index; "" if it does not."""
    if not index.unique:
        return ""
    namespace = f"{db.database.name}.{index.collection}"
    try:
        found = Collection(
            db.client["config"]["collections"], db.location, read_only=True
        ).find_one({"_id": namespace})
    except StoreError:
        return ""  # the user may not read this; the server will refuse the index itself
    shard_key = tuple((found or {}).get("key", {}).items())
    if (found or {}).get("dropped") or shard_key == index.keys[: len(shard_key)]:
        return ""
    fields = ", ".join(f"{field}: {order}" for field, order in shard_key)
    return (
        f"unsupported: {namespace} is sharded by {{{fields}}}, but its unique index "
        f"{index.name} must begin with the shard key; its fields are "
        + ", ".join(field for field, _ in index.keys)
    )
