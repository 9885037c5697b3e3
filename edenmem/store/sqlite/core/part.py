"""What the parts of the store share."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from edenmem.store.sqlite.core.connections import Connections

#: Rows that an iterator reads at a time. Between batches it holds no connection and no snapshot,
#: so that whoever iterates may write, and may stop.
BATCH = 500

#: A condition on a column whose one parameter is a `json_array` of any number of values.
AMONG = "IN (SELECT value FROM json_each(?))"
#: The same for a statement that names its first parameter more than once.
GIVEN = "IN (SELECT value FROM json_each(?1))"


class Part:
    """One capability of the store, over the connections that all parts share."""

    def __init__(self, db: Connections) -> None:
        self._db = db


def json_array(items: Iterable[str | int]) -> str:
    """A parameter for `AMONG`."""
    return msgspec.json.encode(list(items)).decode()
