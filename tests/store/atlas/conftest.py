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
    """A store with its ordinary indexes and none for search."""
    with secantus_store(atlas.uri) as store:
        yield store


@pytest.fixture
def store(atlas: AtlasServer) -> Iterator[MongoStore]:
    """A store whose search indexes can be queried; what it took is not in `atlas.commands`."""
    with atlas_store(atlas, dimensions=DIMENSIONS) as store:
        atlas.commands.clear()
        yield store


def again(store: MongoStore, uri: str, **settings: Any) -> MongoStore:
    """Another process' store on the same database, which knows nothing yet."""
    return MongoStore(uri, StoreSettings(database=store.connection.database.name, **settings))


def state(store: Store, name: str, wish: IndexWish = WISH) -> IndexState:
    """How one index is."""
    (found,) = (one for one in store.indexes.list_indexes(wish) if one.name == name)
    return found


def build(store: Store, *names: str) -> None:
    """Look until indexes can be queried."""
    for name in names or (VECTOR_INDEX, TEXT_INDEX):
        while not state(store, name).queryable:
            pass
