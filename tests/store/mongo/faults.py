"""A MongoStore whose connection breaks at a chosen command, before or after the server has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pymongo.errors import AutoReconnect

from edenmem.store.mongo import MongoStore

#: Gives a command its name, and the work that it is; what it returns is the command's answer.
Around = Callable[[str, Callable[[], Any]], Any]


class Breaker:
    """Counts points (before and after each command) and breaks at one of them, once."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.points = 0
        self.log: list[str] = []

    def reach(self, what: str) -> None:
        """Pass a point, or break there."""
        point = self.points
        self.points += 1
        self.log.append(what)
        if point == self.at:
            raise AutoReconnect(f"broken {what}")

    def around(self, name: str, work: Callable[[], Any]) -> Any:
        """A command that the server has got may have been carried out although no answer came."""
        self.reach(f"before {name}")
        answer = work()
        self.reach(f"after {name}")
        return answer


class WrappedDatabase:
    """A driver's database, each of whose commands goes through a function."""

    def __init__(self, raw: Any, around: Around) -> None:
        self._raw = raw
        self._around = around

    def __getitem__(self, name: str) -> Any:
        return _Collection(self._raw[name], name, self._around)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    @property
    def client(self) -> Any:
        return _Client(self._raw.client, self._around)


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


class _Client:
    def __init__(self, raw: Any, around: Around) -> None:
        self._raw = raw
        self._around = around

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def __getitem__(self, name: str) -> Any:
        return self._raw[name]

    def start_session(self) -> Any:
        """A session whose commits go through the function; what it takes back does not."""
        session = self._raw.start_session()
        commit = session.commit_transaction
        session.commit_transaction = lambda: self._around("commit", commit)
        return session


class BreakingStore(MongoStore):
    """A store whose commands all pass a breaker."""

    breaker = Breaker()

    @property
    def _database(self) -> Any:
        return WrappedDatabase(super()._database, lambda *command: self.breaker.around(*command))


class Template:
    """The documents of a database, to put back as often as needed."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self._documents = {
            name: list(database[name].find()) for name in database.list_collection_names()
        }

    def restore(self) -> None:
        """Let the database hold these documents and no others."""
        self._database.client.admin.command("killAllSessions", [])
        for name, documents in self._documents.items():
            self._database[name].delete_many({})
            if documents:
                self._database[name].insert_many(documents)
