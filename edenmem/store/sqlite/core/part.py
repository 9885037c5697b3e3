"""Helpers shared by the parts of the store."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from edenmem.store.sqlite.core.connections import Connections

#: Rows in a batch of an iterator. Between batches it holds no connection and no snapshot, so
#: callers may write, and may stop.
BATCH = 500

#: A condition on a column; its parameter is a `json_array`.
AMONG = "IN (SELECT value FROM json_each(?))"
#: The same for statements that use the first parameter repeatedly.
GIVEN = "IN (SELECT value FROM json_each(?1))"


class Part:
    """One capability of the store, over shared connections."""

    def __init__(self, db: Connections) -> None:
        self._db = db


def json_array(items: Iterable[str | int]) -> str:
    """Encode a parameter for `AMONG`."""
    return msgspec.json.encode(list(items)).decode()
