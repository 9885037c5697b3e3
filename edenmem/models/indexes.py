"""Wanted and existing indexes, and their differences."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

#: "vector" and "text" are for search; "ordinary" ones serve every other query.
IndexKind = Literal["ordinary", "vector", "text"]

#: "building" indexes may still answer with an older definition; "stale" ones answer without later
#: writes; "unwanted" ones are not needed, or lack an embedding model; "unavailable" ones are not
#: supported by the server. An index that rejects valid documents blocks a "conflicting" one, and an
#: older index serves for an "outdated" one; `replaces` lists both. "foreign" indexes were not
#: created by edenmem.
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
    """The configured search indexes.

    ``dimensions`` is the length of the embedding model's vectors; None without a model.
    """

    analyzer: str
    dimensions: int | None = None
    similarity: str = "cosine"


class IndexState(msgspec.Struct, frozen=True, kw_only=True):
    """One index. ``queryable`` indexes answer queries, perhaps with an older definition.

    ``differences`` describe the changes of an update. ``replaces`` are indexes that
    `Indexes.replace_index` would drop for this one. ``note`` has further details, such as the
    reason of a failure.
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


#: Separator of collection and name in a step that creates an index.
INDEX_STEP = ": index "


class Preparation(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of preparing a store, and warnings for the operator.

    ``notes`` identify the database where it may be chosen by mistake.
    """

    steps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
