"""MongoDB for tests: a SecantusDB server over a real socket, and mongomock in this process."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from threading import RLock
from typing import Any

#: Many more than there are writes under way at any time.
_KEPT_FOR_RETRIES = 256


@contextmanager
def secantus_server() -> Iterator[Any]:
    """A server on a free port with a folder of its own; ``.uri`` is its address."""
    from secantus import SecantusDBServer, transactions

    # It looks through all answers that it keeps for retries at every write, up to 10,000 of them:
    # after some thousand tests a write took ten times as long as at first.
    assert hasattr(transactions, "_RETRYABLE_RECORD_MAX")
    transactions._RETRYABLE_RECORD_MAX = _KEPT_FOR_RETRIES

    folder = tempfile.mkdtemp(prefix="edenmem-secantus-")
    try:
        with SecantusDBServer(storage_path=folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def mongomock_client() -> Any:
    """A client of a new, empty mock server."""
    import mongomock

    _mend_mongomock()
    return mongomock.MongoClient(tz_aware=True)


@cache
def _mend_mongomock() -> None:
    """Let the mock do what every server does and it does not.

    It refuses the ``sort`` that newer drivers pass with every bulk update (None, as the store
    never asks for one), and it changes a document in several steps that other threads can see.
    """
    from mongomock.collection import BulkOperationBuilder, Collection

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
