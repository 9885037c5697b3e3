"""A MongoStore whose writing commands pass a switchboard, one by one."""

from __future__ import annotations

from typing import Any

from pymongo.errors import AutoReconnect

from edenmem.settings.schema import StoreSettings
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core.collection import Collection
from tests.faults.points import Switchboard

_WRITES = frozenset(
    {
        "bulk_write",
        "delete_many",
        "delete_one",
        "find_one_and_update",
        "insert_many",
        "insert_one",
        "update_many",
        "update_one",
    }
)


class _Collection:
    """A driver's collection behind a switchboard."""

    def __init__(self, raw: Any, name: str, board: Switchboard) -> None:
        self._raw = raw
        self._name = name
        self._board = board

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._raw, name)
        if name not in _WRITES:
            return method

        def command(*args: Any, **options: Any) -> Any:
            return self._board.call(
                f"{name} {self._name}",
                lambda: method(*args, **options),
                lambda: AutoReconnect("the connection broke off"),
            )

        return command


class BreakableMongo(MongoStore):
    """See the module."""

    def __init__(self, uri: str, settings: StoreSettings, board: Switchboard) -> None:
        super().__init__(uri, settings)
        self._board = board

    def _collection(self, name: str) -> Collection:
        return Collection(_Collection(self._database[name], name, self._board), "test")
