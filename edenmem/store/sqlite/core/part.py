"""Helpers shared by the parts of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from edenmem.store.sqlite.core.codec import Row
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

    def _fetch(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of a query of its own."""
        with self._db.reading() as connection:
            return connection.execute(query, values).fetchall()

    def _fetch_one(self, query: str, values: Sequence[Any] = ()) -> Any:
        """Return the first row of a query of its own, or None."""
        with self._db.reading() as connection:
            return connection.execute(query, values).fetchone()

    def _pages(
        self,
        query: str,
        values: Sequence[Any],
        last: Row,
        key: Callable[[Row], Row],
        fetch: Callable[[str, Sequence[Any]], list[Row]] | None = None,
    ) -> Iterator[Row]:
        """Yield the rows of an ordered query in batches.

        Args:
            query: Its first parameters are the ``key`` of the last row, its last one is a limit.
            values: The parameters between them.
            last: The parameters of the first batch.
            key: Returns the position of a row.
            fetch: Returns the rows of a query, if not as usual.
        """
        while True:
            rows = (fetch or self._fetch)(query, (*last, *values, BATCH))
            yield from rows
            if len(rows) < BATCH:
                return
            last = key(rows[-1])

    def _write(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement in a transaction of its own; return how many rows it changed."""
        with self._db.writing() as connection:
            return connection.execute(statement, values).rowcount


def where(*pairs: tuple[str, Any]) -> tuple[str, list[Any]]:
    """Return the conditions whose value is not None, each after AND, and these values."""
    given = [(condition, value) for condition, value in pairs if value is not None]
    conditions = "".join(f" AND {condition}" for condition, _ in given)
    return conditions, [value for _, value in given]


def json_array(items: Iterable[str | int]) -> str:
    """Encode a parameter for `AMONG`."""
    return msgspec.json.encode(list(items)).decode()
