"""A MongoStore on the stand-in for Atlas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from edenmem.models.indexes import IndexState, IndexWish
from edenmem.settings.schema import StoreSettings
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core.collections import TEXT_INDEX, VECTOR_INDEX
from edenmem.store.protocol.store import Store
from tests.support.atlas_server import AtlasServer
from tests.support.stores import atlas_store, secantus_store

DIMENSIONS = 8
WISH = IndexWish(dimensions=DIMENSIONS, analyzer="lucene.english")


@pytest.fixture
def bare(atlas: AtlasServer) -> Iterator[MongoStore]:
    """A store with its ordinary indexes but no search indexes."""
    with secantus_store(atlas.uri) as store:
        yield store


@pytest.fixture
def store(atlas: AtlasServer) -> Iterator[MongoStore]:
    """A store with queryable search indexes; `atlas.commands` is empty."""
    with atlas_store(atlas, dimensions=DIMENSIONS) as store:
        atlas.commands.clear()
        yield store


def again(store: MongoStore, uri: str, **settings: Any) -> MongoStore:
    """Another process's store on the same database, without caches."""
    return MongoStore(uri, StoreSettings(database=store.connection.database.name, **settings))


def state(store: Store, name: str, wish: IndexWish = WISH) -> IndexState:
    """The state of an index."""
    (found,) = (one for one in store.indexes.list_indexes(wish) if one.name == name)
    return found


def build(store: Store, *names: str) -> None:
    """Poll until indexes are queryable."""
    for name in names or (VECTOR_INDEX, TEXT_INDEX):
        while not state(store, name).queryable:
            pass
