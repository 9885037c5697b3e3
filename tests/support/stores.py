"""A new, empty store of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from edenmem.models.ids import new_id
from edenmem.settings.schema import StoreSettings

if TYPE_CHECKING:
    from edenmem.store.protocol import Store

STORE_KINDS = ("sqlite", "mongomock", "secantus")


@contextmanager
def sqlite_store(folder: Path) -> Iterator[Store]:
    """One file in ``folder``."""
    from edenmem.store.sqlite import SqliteStore

    store = SqliteStore(folder / "memory.db")
    try:
        store.initialise()
        yield store
    finally:
        store.close()


@contextmanager
def mongomock_store() -> Iterator[Store]:
    """A database in this process' memory."""
    from edenmem.store.mongo import MongoStore
    from tests.support.mongo_server import mongomock_client

    settings = StoreSettings(database=f"test_{new_id()}")
    store = MongoStore("mongodb://mongomock", settings, client=mongomock_client())
    try:
        store.initialise()
        yield store
    finally:
        store.close()


@contextmanager
def secantus_store(uri: str) -> Iterator[Store]:
    """A database of its own on the server at ``uri``, dropped afterwards."""
    from pymongo import MongoClient

    from edenmem.store.mongo import MongoStore

    settings = StoreSettings(database=f"test_{new_id()}")
    store = MongoStore(uri, settings)
    try:
        store.initialise()
        yield store
    finally:
        store.close()
        with MongoClient(uri) as client:
            client.drop_database(settings.database)
