"""A MongoStore whose connection breaks at a chosen command, before or after the server has it."""

from __future__ import annotations

from typing import Any

from pymongo.errors import AutoReconnect

from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core.collection import Collection

#: A command that the server has got may have been carried out although no answer came.
POINTS_PER_COMMAND = 2


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


class _BreakingCollection:
    """A driver's collection with a breaker around each command."""

    def __init__(self, raw: Any, name: str, breaker: Breaker) -> None:
        self._raw = raw
        self._name = name
        self._breaker = breaker

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._raw, name)

        def command(*args: Any, **options: Any) -> Any:
            self._breaker.reach(f"before {name} {self._name}")
            answer = method(*args, **options)
            self._breaker.reach(f"after {name} {self._name}")
            return answer

        return command


class BreakingStore(MongoStore):
    """A store whose commands all pass a breaker."""

    breaker = Breaker()

    def _collection(self, name: str) -> Collection:
        return Collection(_BreakingCollection(self._database[name], name, self.breaker), "test")
