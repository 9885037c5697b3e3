"""The unique indexes: which stand, which protect the key of facts, and which get in its way.

The platform creates a narrow key of its own, ``fact_dedup_idx`` on (hash, agent_id), in each new
process; `collections.FACT_KEY` says what that means for ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from edenmem.store.mongo.core.collection import Collection
from edenmem.store.mongo.core.collections import (
    FACT_KEY,
    FORMATIONS,
    FORMER_FACT_KEYS,
    MEMORY_INDEXES,
    NARROW_FACT_KEYS,
    TEMPORARY_FACT_KEY,
    Index,
)

REPLACE = "edenmem index create --replace"

#: Duplicates that are named when they keep a unique index from being created.
_NAMED = 5

#: The keys that make a claim one worker's alone.
CLAIM_KEYS = tuple(i for i in MEMORY_INDEXES if i.collection == FORMATIONS and i.unique)


class FactKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The unique indexes of facts, by name.

    ``narrow`` ones refuse facts that must be stored. ``former`` ones protect as `FACT_KEY` does,
    under a name that does not keep the platform from creating its own. ``other`` ones are
    foreign, and may refuse facts for a reason of their own.
    """

    final: bool = False
    temporary: bool = False
    misnamed: bool = False
    narrow: tuple[str, ...] = ()
    former: tuple[str, ...] = ()
    other: tuple[str, ...] = ()

    @property
    def protects(self) -> bool:
        """Whether a scope cannot have the same fact twice."""
        return self.final or self.temporary or bool(self.former)

    @property
    def half_replaced(self) -> bool:
        """Whether only the temporary index stands. It keeps a scope from having a fact twice, but
        not the platform from creating its narrow one, for which it deletes what two users share."""
        return self.temporary and not self.final and not self.former

    @property
    def obsolete(self) -> tuple[str, ...]:
        """The indexes that a replacement drops before it creates `FACT_KEY`."""
        misnamed = (FACT_KEY.name,) if self.misnamed else ()
        return tuple(dict.fromkeys((*self.narrow, *self.former, *misnamed)))

    @property
    def refuses(self) -> tuple[str, ...]:
        """The indexes that may refuse a fact although its scope does not have it."""
        return (*self.narrow, *self.other)


def fact_keys(existing: Mapping[str, Any]) -> FactKeys:
    """Sort the indexes of the collection of facts."""
    wide = frozenset(field for field, _ in FACT_KEY.keys)
    final = temporary = misnamed = False
    narrow: list[str] = []
    former: list[str] = []
    other: list[str] = []
    for name, index in existing.items():
        keys = tuple(index["key"])
        fields = frozenset(field for field, _ in keys)
        whole = not index.get("partialFilterExpression") and not index.get("sparse")
        if not index.get("unique"):
            misnamed = misnamed or name == FACT_KEY.name
        elif fields in NARROW_FACT_KEYS:
            narrow.append(name)
        elif whole and name == FACT_KEY.name and keys == FACT_KEY.keys:
            final = True
        elif whole and name == TEMPORARY_FACT_KEY.name and fields == wide:
            temporary = True
        elif whole and (keys == FACT_KEY.keys or (fields == wide and name in FORMER_FACT_KEYS)):
            former.append(name)
        elif name == FACT_KEY.name:
            misnamed = True
        else:
            other.append(name)
    return FactKeys(
        final=final,
        temporary=temporary,
        misnamed=misnamed,
        narrow=tuple(narrow),
        former=tuple(former),
        other=tuple(other),
    )


def narrow_key(keys: FactKeys) -> str:
    """What the narrow indexes do."""
    owner = "the platform's " if FACT_KEY.name in keys.narrow else "the "
    index, lets = ("indexes", "let") if len(keys.narrow) > 1 else ("index", "lets")
    return (
        f"{owner}unique {index} {', '.join(keys.narrow)} {lets} each agent store a sentence only "
        "once, for one user"
    )


def has_keys(existing: Mapping[str, Any], index: Index) -> bool:
    """Whether an index of another name does the same."""
    return any(
        tuple(found["key"]) == index.keys
        and bool(found.get("unique")) == index.unique
        and found.get("partialFilterExpression") == index.partial
        for found in existing.values()
    )


def obstacle(collection: Collection, index: Index) -> str:
    """Which documents keep a unique index from being created."""
    fields = [field for field, _ in index.keys]
    pipeline: list[dict[str, Any]] = [
        {
            "$group": {
                "_id": {field: f"${field}" for field in fields},
                "ids": {"$push": "$_id"},
                "count": {"$sum": 1},
            }
        },
        {"$match": {"count": {"$gt": 1}}},
        {"$limit": _NAMED},
    ]
    groups = [
        " = ".join(str(key) for key in group["ids"][:_NAMED])
        for group in collection.aggregate(pipeline)
    ]
    return (
        f"{index.collection}: cannot create unique index {index.name}, "
        "some documents have the same " + ", ".join(fields) + ": " + "; ".join(groups)
    )
