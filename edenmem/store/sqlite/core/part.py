"""What the parts of the store share."""

from __future__ import annotations

import json
from collections.abc import Iterable

from edenmem.store.sqlite.core.database import Database

#: Rows that an iterator reads at a time. Between batches it holds no connection and no snapshot,
#: so that whoever iterates may write, and may stop.
BATCH = 500


class Part:
    """One responsibility of `SqliteStore`, over the database that all parts share."""

    _db: Database


def json_array(items: Iterable[str | int]) -> str:
    """A parameter for ``IN (SELECT value FROM json_each(?))``: any number of values."""
    return json.dumps(list(items))
