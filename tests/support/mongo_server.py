"""MongoDB for tests: a SecantusDB server over a real socket, and mongomock in this process."""

from __future__ import annotations

import inspect
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def secantus_server() -> Iterator[Any]:
    """A server on a free port with a folder of its own; ``.uri`` is its address."""
    from secantus import SecantusDBServer

    folder = tempfile.mkdtemp(prefix="edenmem-secantus-")
    try:
        with SecantusDBServer(storage_path=folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def mongomock_client() -> Any:
    """A client of a new, empty mock server."""
    import mongomock

    _accept_bulk_options()
    return mongomock.MongoClient(tz_aware=True)


def _accept_bulk_options() -> None:
    """Let mongomock take the ``sort`` that newer drivers pass with every bulk update.

    It is None unless asked for, and the store never asks.
    """
    from mongomock.collection import BulkOperationBuilder

    original = BulkOperationBuilder.add_update
    if "sort" in inspect.signature(original).parameters:
        return

    def add_update(self: Any, *args: Any, sort: Any = None, **options: Any) -> Any:
        if sort is not None:
            raise NotImplementedError("mongomock does not sort bulk updates")
        return original(self, *args, **options)

    BulkOperationBuilder.add_update = add_update
