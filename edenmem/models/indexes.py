"""Wanted and existing indexes, and their differences."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

#: "vector" and "text" are for search; "ordinary" ones serve every other query.
IndexKind = Literal["ordinary", "vector", "text"]

#: "building" indexes may still answer with an older definition; "stale" ones answer without later
#: writes; "unwanted" ones are not needed, or lack an embedding model; "unavailable" ones are not
#: supported by the server. Another index blocks a "conflicting" one; `replaces` lists it. "foreign"
#: indexes were not created by edenmem.
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
    "foreign",
]


class IndexWish(msgspec.Struct, frozen=True, kw_only=True):
    """The configured search indexes.

    ``dimensions`` is the length of the embedding model's vectors; None without a model.
    """

    analyzer: str
    dimensions: int | None = None


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


class TrialStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a test of search.

    ``outcome`` is "passed", "failed", or "skipped" after the failure of a required step; ``seen``
    describes the behavior of the cluster.
    """

    name: str
    outcome: str
    seconds: float
    seen: str


class SearchTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A test of search on a real cluster; ``removed``: its collection is gone again."""

    collection: str
    steps: tuple[TrialStep, ...]
    removed: bool
    location: str = ""
    server_version: str = ""

    @property
    def passed(self) -> bool:
        """Return whether all steps passed."""
        return all(step.outcome == "passed" for step in self.steps)


#: Separator of collection and name in a step that creates an index.
INDEX_STEP = ": index "


class Preparation(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of preparing a store, and warnings for the operator.

    ``notes`` identify the database where it may be chosen by mistake.
    """

    steps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
