"""New, empty stores of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from edenmem.models.ids import new_id
from edenmem.settings.schema import StoreSettings

if TYPE_CHECKING:
    from edenmem.store.mongo import MongoStore
    from edenmem.store.protocol.store import Store
    from tests.support.atlas_server import AtlasServer
    from tests.support.mongo_server import Databases

#: Parameters for tests on SQLite in the quick run, and also on a server in the full run.
SECANTUS_TOO = pytest.param("secantus", marks=pytest.mark.slow)
ATLAS_TOO = pytest.param("atlas", marks=pytest.mark.slow)


@contextmanager
def sqlite_store(folder: Path) -> Iterator[Store]:
    """Open a new SQLite file in ``folder``."""
    from edenmem.store.sqlite import SqliteStore

    path = folder / "memory.db"
    path.write_bytes(_new_file())
    path.chmod(0o600)
    store = SqliteStore(path)
    try:
        yield store
    finally:
        store.database.close()


@cache
def _new_file() -> bytes:
    """Return the bytes of a new file, which are faster to copy than to create."""
    from edenmem.store.sqlite import SqliteStore

    with TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        with closing(SqliteStore(path).database) as database:
            database.initialize()
        return path.read_bytes()


@contextmanager
def mongomock_store() -> Iterator[Store]:
    """Open a database in memory."""
    from edenmem.store.mongo import MongoStore
    from tests.support.mongo_server import mongomock_client

    settings = StoreSettings(database=f"test_{new_id()}")
    store = MongoStore("mongodb://mongomock", settings, client=mongomock_client())
    try:
        store.database.initialize()
        yield store
    finally:
        store.database.close()


@contextmanager
def secantus_store(uri: str) -> Iterator[MongoStore]:
    """Open a new database on the server at ``uri``, and drop it afterwards."""
    from pymongo import MongoClient

    from edenmem.store.mongo import MongoStore

    settings = StoreSettings(database=f"test_{new_id()}")
    store = MongoStore(uri, settings)
    try:
        store.database.initialize()
        yield store
    finally:
        store.database.close()
        with MongoClient(uri) as client:
            client.drop_database(settings.database)


@contextmanager
def used_store(
    databases: Databases, prepare: Callable[[MongoStore], None] | None = None, kind: str = ""
) -> Iterator[MongoStore]:
    """Open a reused, empty database, which ``prepare`` prepared when it was made."""
    from edenmem.store.mongo import MongoStore

    def make(name: str) -> None:
        store = MongoStore(databases.uri, StoreSettings(database=name))
        with closing(store.database):
            store.database.initialize()
            if prepare is not None:
                prepare(store)

    name = databases.take(make, kind)
    store = MongoStore(databases.uri, StoreSettings(database=name))
    try:
        yield store
    finally:
        store.database.close()
        databases.give_back(name, kind)


@contextmanager
def atlas_store(server: AtlasServer, *, dimensions: int = 32) -> Iterator[MongoStore]:
    """Open a reused, empty database on the fake Atlas server, with both search indexes."""
    from edenmem.models.indexes import IndexWish
    from edenmem.store.mongo.core.collections import TEXT_INDEX, VECTOR_INDEX

    wish = IndexWish(dimensions=dimensions, analyzer="lucene.english")

    def create_indexes(store: MongoStore) -> None:
        for name in (VECTOR_INDEX, TEXT_INDEX):
            store.indexes.create_index(name, wish)
        while not all(state.queryable for state in store.indexes.list_indexes(wish)):
            pass  # each read advances the build

    with used_store(server.databases, create_indexes, f"{dimensions}") as store:
        server.settle(store.connection.database.name)
        yield store
