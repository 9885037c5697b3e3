"""Indexes as an operator sees them: what is wanted, what is there, and how the two differ."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

#: "vector" and "text" are for search; "ordinary" ones serve every other query.
IndexKind = Literal["ordinary", "vector", "text"]

#: "building" ones may still answer with an older definition; "stale" ones answer and no longer
#: follow what is written; "unwanted" ones cannot be described (there is no embedding model) or are
#: not needed, and "unavailable" ones cannot be had on this server. In place of "conflicting" ones
#: stands an index that refuses what must be stored, in place of "outdated" ones an older index that
#: serves; `replaces` names those. "foreign" ones were not created by edenmem.
IndexStatus = Literal[
    "ready",
    "missing",
    "building",
    "different",
    "stale",
    "failed",
    "unwanted",
    "unavailable",
    "conflicting",
    "outdated",
    "foreign",
]


class IndexWish(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration wants of the search indexes.

    ``dimensions`` is the length of the embedding model's vectors; None: there is no such model.
    """

    analyzer: str
    dimensions: int | None = None
    similarity: str = "cosine"


class IndexState(msgspec.Struct, frozen=True, kw_only=True):
    """One index. ``queryable``: a query is answered by it now, if maybe by an older definition.

    ``differences`` say in words what an update would change; ``replaces`` names the indexes that
    `Indexes.replace_index` would drop in favour of this one; ``note`` is what else there is to
    know, such as why it failed.
    """

    name: str
    kind: IndexKind
    collection: str
    status: IndexStatus
    queryable: bool = False
    unique: bool = False
    wanted: dict[str, Any] | None = None
    found: dict[str, Any] | None = None
    differences: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    note: str = ""


#: Stands between the collection and the name in a step that creates an index.
INDEX_STEP = ": index "


class Preparation(msgspec.Struct, frozen=True, kw_only=True):
    """What preparing a store would do, and what it leaves to the operator.

    ``notes`` say which database is meant, where that may be a mistake.
    """

    steps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
