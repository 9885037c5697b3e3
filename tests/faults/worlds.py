"""A prepared memory, as often as one is needed, on each kind of store; and processes that die."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edenmem.models.ids import new_id
from edenmem.settings.schema import StoreSettings
from edenmem.store.sqlite import SqliteStore
from tests.faults import scenario
from tests.faults.days import Address, die, live_through
from tests.faults.points import KILLED, KILLS, Fault
from tests.support.processes import forked

if TYPE_CHECKING:
    from edenmem.store.mongo import MongoStore
    from edenmem.store.protocol.store import Store


class World(Protocol):
    """Where memories of one kind are kept."""

    address: Address

    def fresh(self) -> Store:
        """The prepared memory, as if nothing had happened to it."""

    def again(self) -> Store:
        """The memory as it is, opened anew: what a later process sees."""

    def progress(self) -> str:
        """The session's last message that is in memory, as the platform's own field has it."""


class SqliteWorld:
    """Copies of a file, each used once: what broke off may keep one open for a while."""

    def __init__(self, folder: Path) -> None:
        self._template = folder / "template.db"
        self._copies = 0
        store = SqliteStore(self._template)
        scenario.prepare(store)
        store.database.close()
        self._use(self._template)

    def _use(self, path: Path) -> None:
        self.address = Address(str(path))
        self._store = SqliteStore(path)

    def fresh(self) -> SqliteStore:
        self._store.database.close()
        self._copies += 1
        path = self._template.with_name(f"memory-{self._copies}.db")
        shutil.copyfile(self._template, path)
        self._use(path)
        return self._store

    def again(self) -> SqliteStore:
        self._store.database.close()
        return self._store

    def progress(self) -> str:
        return ""  # no platform reads a file

    def close(self) -> None:
        self._store.database.close()


class MongoWorld:
    """A database whose documents are put back over and over."""

    def __init__(self, uri: str) -> None:
        from pymongo import MongoClient

        from edenmem.store.mongo import MongoStore

        settings = StoreSettings(database=f"test_{new_id()}")
        self.address = Address(uri, settings.database)
        self._client: Any = MongoClient(uri, tz_aware=True)
        self._raw = self._client[settings.database]
        self._store = MongoStore(uri, settings, client=self._client)
        scenario.prepare(self._store)
        self._documents = {
            name: list(self._raw[name].find()) for name in self._raw.list_collection_names()
        }

    def fresh(self) -> MongoStore:
        for name in self._raw.list_collection_names():
            self._raw[name].delete_many({})
            if documents := self._documents.get(name):
                self._raw[name].insert_many(documents)
        return self._store

    def again(self) -> MongoStore:
        # What a killed process had open; the server itself waits for a minute.
        self._client.admin.command("killAllSessions", [])
        return self._store

    def progress(self) -> str:
        return str(self._raw["sessions"].find_one()["memory_context"]["last_memory_message_id"])

    def close(self) -> None:
        self._store.database.close()
        self._client.drop_database(self.address.database)
        self._client.close()


@contextmanager
def sqlite_world(folder: Path) -> Iterator[SqliteWorld]:
    world = SqliteWorld(folder)
    try:
        yield world
    finally:
        world.close()


@contextmanager
def mongo_world(uri: str) -> Iterator[MongoWorld]:
    world = MongoWorld(uri)
    try:
        yield world
    finally:
        world.close()


def break_a_day(
    world: World, faults: Sequence[Fault], *, number: int = 0, deep: bool = False
) -> None:
    """Live through a day with these faults, in a process of its own if one of them kills it."""
    if not any(fault.mode in KILLS for fault in faults):
        board = live_through(world.address, faults, number=number, deep=deep)
        assert not board.spared, f"never reached: {board.spared}"
        return
    child = forked(die, world.address, faults, number, deep)
    child.join(240)
    try:
        assert child.exitcode == KILLED, f"the child ended with {child.exitcode}"
    finally:
        child.kill()
        child.join()
        child.close()
