"""A MongoStore whose commands call a function, which can fail at a chosen one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pymongo.errors import AutoReconnect

from edenmem.store.mongo import MongoStore

#: Receives a command's name and its work; returns the command's answer.
Around = Callable[[str, Callable[[], Any]], Any]


class Breaker:
    """Counts points (before and after each command), and fails at one of them, once."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.points = 0
        self.log: list[str] = []

    def reach(self, what: str) -> None:
        """Pass a point, or fail there."""
        point = self.points
        self.points += 1
        self.log.append(what)
        if point == self.at:
            raise AutoReconnect(f"broken {what}")

    def around(self, name: str, work: Callable[[], Any]) -> Any:
        """Run a command; after it was sent, a failure does not mean that it was not executed."""
        self.reach(f"before {name}")
        answer = work()
        self.reach(f"after {name}")
        return answer


class WrappedClient:
    """A driver's client whose commands go through a function."""

    def __init__(self, raw: Any, around: Around) -> None:
        self._raw = raw
        self._around = around

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def __getitem__(self, name: str) -> Any:
        return self._raw[name]

    def get_database(self, name: str, **options: Any) -> Any:
        """Return a database whose collections' commands go through the function."""
        return _Database(self._raw.get_database(name, **options), self)

    def start_session(self) -> Any:
        """Return a session whose commits go through the function; its aborts do not."""
        session = self._raw.start_session()
        commit = session.commit_transaction
        session.commit_transaction = lambda: self._around("commit", commit)
        return session

    def collection(self, raw: Any, name: str) -> Any:
        """Return a collection whose commands go through the function."""
        return _Collection(raw, name, self._around)


class _Database:
    def __init__(self, raw: Any, client: WrappedClient) -> None:
        self._raw = raw
        self.client = client

    def __getitem__(self, name: str) -> Any:
        return self.client.collection(self._raw[name], name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


class _Collection:
    def __init__(self, raw: Any, name: str, around: Around) -> None:
        self._raw = raw
        self._name = name
        self._around = around

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._raw, name)
        if not callable(method) or name == "with_options":
            return method

        def command(*args: Any, **options: Any) -> Any:
            return self._around(f"{name} {self._name}", lambda: method(*args, **options))

        return command


def wrapped_store(store: MongoStore, around: Around) -> MongoStore:
    """The same memory, in a store whose commands go through a function."""
    connection = store.connection
    client = WrappedClient(connection.client, around)
    return MongoStore(connection.uri, connection.settings, client=client)


class Template:
    """The documents of a database, to restore as often as needed."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self._documents = {
            name: list(database[name].find()) for name in database.list_collection_names()
        }

    def restore(self) -> None:
        """Replace the documents of the database with these."""
        self._database.client.admin.command("killAllSessions", [])
        for name in self._database.list_collection_names():  # also those made since
            self._database[name].delete_many({})
        for name, documents in self._documents.items():
            if documents:
                self._database[name].insert_many(documents)
