"""A MongoStore whose writing commands pass a switchboard, one by one, commits among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from pymongo import MongoClient
from pymongo.errors import AutoReconnect

from edenmem.settings.schema import StoreSettings
from edenmem.store.mongo import MongoStore
from tests.faults.points import Switchboard
from tests.store.mongo.faults import WrappedClient

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


@contextmanager
def breakable_mongo(uri: str, settings: StoreSettings, board: Switchboard) -> Iterator[MongoStore]:
    """See the module."""

    def pass_board(name: str, work: Callable[[], Any]) -> Any:
        if name.partition(" ")[0] not in _WRITES and name != _INSIDE:
            return work()
        return board.call(name, work, lambda: AutoReconnect("the connection broke off"))

    with MongoClient[Any](uri, tz_aware=True) as client:
        store = MongoStore(uri, settings, client=WrappedClient(client, pass_board))
        with closing(store.database):
            yield store
