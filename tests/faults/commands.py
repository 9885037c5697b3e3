"""A MongoStore whose writing commands pass a switchboard, one by one, commits among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pymongo.errors import AutoReconnect

from edenmem.settings.schema import StoreSettings
from edenmem.store.mongo import MongoStore
from tests.faults.points import Switchboard
from tests.store.mongo.faults import WrappedDatabase

_WRITES = frozenset(
    {
        "commit",
        "delete_many",
        "delete_one",
        "find_one_and_update",
        "insert_many",
        "insert_one",
        "update_many",
        "update_one",
    }
)
#: What stands for all that is written inside a transaction, which is made whole or not at all: see
#: `tests.store.mongo.test_faults`.
_INSIDE = "bulk_write memory2_audit"


class BreakableMongo(MongoStore):
    """See the module."""

    def __init__(self, uri: str, settings: StoreSettings, board: Switchboard) -> None:
        super().__init__(uri, settings)
        self._board = board

    @property
    def _database(self) -> Any:
        return WrappedDatabase(super()._database, self._passed)

    def _passed(self, name: str, work: Callable[[], Any]) -> Any:
        if name.partition(" ")[0] not in _WRITES and name != _INSIDE:
            return work()
        return self._board.call(name, work, lambda: AutoReconnect("the connection broke off"))
