"""A prepared memory, as often as one is needed, on each kind of store; and processes that die."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edenmem.models.ids import new_id
from edenmem.settings.schema import StoreSettings
from edenmem.store.sqlite import SqliteStore
from tests.faults import days, scenario
from tests.faults.points import KILLED, Fault

if TYPE_CHECKING:
    from edenmem.store.mongo import MongoStore
    from edenmem.store.protocol import Store

#: What a child needs, so that it need not read it again after each fork.
_PRELOADED = (
    "tests.faults.days",
    "edenmem.engine.formation",
    "edenmem.engine.consolidation",
    "edenmem.engine.context",
    "edenmem.engine.recall",
    "edenmem.engine.prompting",
    "edenmem.store.mongo",
    "edenmem.store.sqlite",
    "jinja2",
)


class World(Protocol):
    """Where memories of one kind are kept."""

    def fresh(self) -> Store:
        """The prepared memory, as if nothing had happened to it."""

    def again(self) -> Store:
        """The memory as it is, opened anew: what a later process sees."""

    @property
    def address(self) -> tuple[str, str]:
        """What another process needs to open it: location, and database on a server."""


class SqliteWorld:
    """A file, copied over and over."""

    def __init__(self, folder: Path) -> None:
        self._template = folder / "template.db"
        self._path = folder / "memory.db"
        store = SqliteStore(self._template)
        scenario.prepare(store)
        store.close()
        self._store = SqliteStore(self._path)

    @property
    def address(self) -> tuple[str, str]:
        return str(self._path), ""

    def fresh(self) -> SqliteStore:
        self._store.close()
        for suffix in ("-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        shutil.copyfile(self._template, self._path)
        return self.again()

    def again(self) -> SqliteStore:
        self._store.close()
        self._store = SqliteStore(self._path)
        return self._store

    def close(self) -> None:
        self._store.close()


class MongoWorld:
    """A database whose documents are put back over and over."""

    def __init__(self, uri: str, kind: type[MongoStore] | None = None) -> None:
        from pymongo import MongoClient

        from edenmem.store.mongo import MongoStore

        self._uri = uri
        self._settings = StoreSettings(database=f"test_{new_id()}")
        self._client: Any = MongoClient(uri, tz_aware=True)
        self._raw = self._client[self._settings.database]
        self._store = (kind or MongoStore)(uri, self._settings, client=self._client)
        scenario.prepare(self._store)
        self._documents = {
            name: list(self._raw[name].find()) for name in self._raw.list_collection_names()
        }

    @property
    def address(self) -> tuple[str, str]:
        return self._uri, self._settings.database

    def fresh(self) -> MongoStore:
        for name, documents in self._documents.items():
            self._raw[name].delete_many({})
            if documents:
                self._raw[name].insert_many(documents)
        return self._store

    def again(self) -> MongoStore:
        return self._store

    def close(self) -> None:
        self._store.close()
        self._client.drop_database(self._settings.database)
        self._client.close()


@contextmanager
def sqlite_world(folder: Path) -> Iterator[SqliteWorld]:
    world = SqliteWorld(folder)
    try:
        yield world
    finally:
        world.close()


@contextmanager
def mongo_world(uri: str, kind: type[MongoStore] | None = None) -> Iterator[MongoWorld]:
    world = MongoWorld(uri, kind)
    try:
        yield world
    finally:
        world.close()


def kill(world: World, fault: Fault) -> None:
    """Let a process live through a day, in which it is killed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOADED))
    child = context.Process(target=days.die, args=(*world.address, fault), daemon=True)
    child.start()
    child.join(60)
    try:
        assert child.exitcode == KILLED, f"the child ended with {child.exitcode}"
    finally:
        child.kill()
        child.join()
        child.close()
