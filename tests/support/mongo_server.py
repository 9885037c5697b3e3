"""MongoDB for tests: a SecantusDB server over a real socket, and mongomock in this process."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache, wraps
from threading import RLock
from typing import Any

from pymongo import MongoClient

from edenmem.models.ids import new_id

#: Many more than the concurrent writes.
_KEPT_FOR_RETRIES = 256

#: Commands that only read, and commands that change documents of one collection. Other commands
#: have unknown effects.
_READING = {"aggregate", "count", "distinct", "explain", "find", "getMore", "killCursors"}
_READING |= {"dbStats", "endSessions", "hello", "listCollections", "listIndexes", "ping"}
_WRITING = {"delete", "findAndModify", "insert", "update"}
_ENDING = {"commitTransaction", "abortTransaction"}
#: Databases to keep unused before reuse, so that pending writes of a killed process arrive first.
_RESTING = 1


def _writes(aggregate: Mapping[str, Any]) -> bool:
    return any(stage in str(aggregate) for stage in ("$out", "$merge"))


class Databases:
    """Databases with all indexes, emptied for reuse: creating one takes a hundred times as long.

    The server reports the commands of all clients.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._client: Any = MongoClient(uri)
        #: Unused databases of each kind, oldest first.
        self._resting: defaultdict[str, list[str]] = defaultdict(list)
        #: The initial documents of each database, by collection.
        self._first: dict[str, dict[str, list[Any]]] = {}
        #: The changed collections of each database; None: unknown changes.
        self._written: dict[str, set[str] | None] = {}

    def watch(self, database: str, command: Mapping[str, Any]) -> None:
        """Record the possible changes of a command."""
        written = self._written.get(database)
        if written is None:
            return
        name = next(iter(command))
        if name in _WRITING:
            written.add(str(command[name]))
        elif name not in _READING or (name == "aggregate" and _writes(command)):
            self._written[database] = None

    def take(self, make: Callable[[str], None], kind: str = "") -> str:
        """Return the name of a database in the state of ``make``, of which each kind has one."""
        resting = self._resting[kind]
        while len(resting) > _RESTING:
            name = resting.pop(0)
            if self._emptied(name):
                return name
            self._client.drop_database(name)
        name = f"test_{new_id()}"
        make(name)
        database = self._client[name]
        self._first[name] = {
            collection: list(database[collection].find())
            for collection in database.list_collection_names()
        }
        self._written[name] = set()
        return name

    def give_back(self, name: str, kind: str = "") -> None:
        """Return the database for other tests."""
        self._resting[kind].append(name)

    def _emptied(self, name: str) -> bool:
        """Restore the initial state of the database, and return whether that worked."""
        written, first = self._written[name], self._first[name]
        if written is None:
            return False
        for collection in list(written):
            if collection not in first:  # made by its first document
                self._client[name].drop_collection(collection)
                continue
            self._client[name][collection].delete_many({})
            if documents := first[collection]:
                self._client[name][collection].insert_many(documents)
        self._written[name] = set()
        return True

    def close(self) -> None:
        """Close the client."""
        self._client.close()


@contextmanager
def secantus_server() -> Iterator[Any]:
    """Start a server on a free port with a separate folder.

    ``.uri`` is the address, ``.databases`` are reusable databases."""
    from secantus import SecantusDBServer, transactions

    # Every write scans the answers kept for retries, up to 10,000: after some thousand tests a
    # write took ten times as long.
    assert hasattr(transactions, "_RETRYABLE_RECORD_MAX")
    transactions._RETRYABLE_RECORD_MAX = _KEPT_FOR_RETRIES

    folder = tempfile.mkdtemp(prefix="edenmem-secantus-")
    try:
        with (
            # Without a journal: the folder does not outlive the server.
            SecantusDBServer(storage_path=folder, durable=False, cache_size="256M") as server,
            closing(Databases(server.uri)) as databases,
        ):
            server.databases = databases
            _watch().append(databases)
            yield server
            _watch().remove(databases)
            # Wakes the thread that accepts connections; `stop` would wait two seconds for it.
            server._socket.shutdown(socket.SHUT_RDWR)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _watch() -> list[Databases]:
    """Return the listeners of commands to a server in this process."""
    from secantus import commands, server

    told: list[Databases] = []
    forget_indexes = _remember_indexes()
    dispatch = server.dispatch
    # Each command looks up whether its database is profiled: none is.
    assert hasattr(commands, "_maybe_record_profile")
    commands._maybe_record_profile = lambda *_: None

    def watched(command: dict[str, Any], context: Any) -> Any:
        if refusal := _refusal(command):
            return refusal
        for databases in told:
            databases.watch(context.db_name, command)
        if next(iter(command)) in _READING | _WRITING | _ENDING:
            return dispatch(command, context)
        try:
            return dispatch(command, context)
        finally:
            forget_indexes()

    server.dispatch = watched
    return told


def _remember_indexes() -> Callable[[], None]:
    """Keep the definitions of indexes between commands, and return what forgets them.

    The server decodes all definitions of a collection several times for each document that it
    reads or writes, which took a seventh of the time.
    """
    from secantus.storage import Storage

    kept: dict[tuple[int, str, str], list[Any]] = {}
    #: The indexes that a list has made multikey, the one change that a write makes.
    multikey: defaultdict[tuple[int, str, str], set[str]] = defaultdict(set)
    read, mark = Storage._iter_indexes, Storage._maybe_mark_multikey

    def remembered(self: Any, database: str, collection: str) -> Iterator[Any]:
        key = (id(self), database, collection)
        if (indexes := kept.get(key)) is None:
            indexes = list(read(self, database, collection))
            for name, _, options in indexes:
                if name in multikey[key]:
                    options["multikey"] = True
            kept[key] = indexes
        return iter(indexes)

    def mark_multikey(self: Any, database: str, collection: str, *rest: Any) -> Any:
        before = set(rest[-1])
        marked = mark(self, database, collection, *rest)
        if new := marked - before:
            key = (id(self), database, collection)
            multikey[key] |= new
            kept.pop(key, None)
        return marked

    def forget() -> None:
        kept.clear()
        multikey.clear()

    Storage._iter_indexes, Storage._maybe_mark_multikey = remembered, mark_multikey
    return forget


#: Commands in transactions. `mongod` accepts some more, and the test server nearly all: indexes,
#: counts from metadata, missing collections.
_IN_TRANSACTIONS = {"find", "getMore", "killCursors", "insert", "update", "delete"}
_IN_TRANSACTIONS |= {"commitTransaction", "abortTransaction"}


def _refusal(command: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the error of a stricter server for a command that is invalid in transactions."""
    name = next(iter(command))
    if command.get("autocommit") is not False or name in _IN_TRANSACTIONS:
        return None
    reason = f"Cannot run '{name}' in a multi-document transaction."
    return {
        "ok": 0.0,
        "errmsg": reason,
        "code": 263,
        "codeName": "OperationNotSupportedInTransaction",
    }


def mongomock_client() -> Any:
    """Return a client of a new, empty mock server."""
    import mongomock

    _patch_mongomock()
    return mongomock.MongoClient(tz_aware=True)


@cache
def _patch_mongomock() -> None:
    """Add behavior of real servers to the mock.

    The mock rejects the ``sort`` of newer drivers in bulk updates (always None in the store), and
    updates documents in several steps that other threads can see.
    """
    from mongomock.collection import BulkOperationBuilder, Collection
    from mongomock.database import Database

    add_update = BulkOperationBuilder.add_update

    def add_unsorted_update(self: Any, *args: Any, sort: Any = None, **options: Any) -> Any:
        if sort is not None:
            raise NotImplementedError("mongomock does not sort bulk updates")
        return add_update(self, *args, **options)

    BulkOperationBuilder.add_update = add_unsorted_update

    lock = RLock()

    def one_at_a_time(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def locked(*args: Any, **options: Any) -> Any:
            with lock:
                return method(*args, **options)

        return locked

    for name in (
        "_insert",
        "_update",
        "_delete",
        "_find_and_modify",
        "aggregate",
        "count_documents",
        "distinct",
    ):
        setattr(Collection, name, one_at_a_time(getattr(Collection, name)))
    read = Collection._get_dataset

    def read_at_once(*args: Any) -> Iterator[Any]:
        with lock:
            return iter(list(read(*args)))

    Collection._get_dataset = read_at_once
    command = Database.command

    def run_command(self: Any, name: Any, *args: Any, **options: Any) -> Any:
        if name == "collMod":  # validation rules; the mock has none
            return {"ok": 1.0}
        return command(self, name, *args, **options)

    Database.command = run_command
