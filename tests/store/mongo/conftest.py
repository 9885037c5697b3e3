"""A MongoStore on SecantusDB whose commands can be monitored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from pymongo import MongoClient

from edenmem.models.ids import new_id
from edenmem.settings.schema import StoreSettings
from edenmem.store.mongo import MongoStore

OpenMongo = Callable[..., MongoStore]


@pytest.fixture
def open_mongo(secantus_uri: str) -> Iterator[OpenMongo]:
    """A function that opens a store on a new or the given database."""
    made: set[str] = set()
    with ExitStack() as stack:

        def open_one(
            *, database: str = "", listeners: tuple[Any, ...] = (), **settings: Any
        ) -> MongoStore:
            client: MongoClient[Any] = stack.enter_context(
                MongoClient(secantus_uri, tz_aware=True, event_listeners=list(listeners))
            )
            name = database or f"test_{new_id()}"
            made.add(name)
            store = MongoStore(
                secantus_uri, StoreSettings(database=name, **settings), client=client
            )
            stack.callback(store.database.close)
            return store

        yield open_one
        with MongoClient(secantus_uri) as client:
            for name in made:
                client.drop_database(name)


@pytest.fixture
def mongo(open_store: Callable[[str], MongoStore]) -> MongoStore:
    """A store with its indexes on a new database, connected."""
    store = open_store("secantus")
    store.database.info()
    return store


@pytest.fixture
def database(mongo: MongoStore) -> Any:
    """The raw database of `mongo`, to write and read documents like the platform."""
    return mongo.connection.database
