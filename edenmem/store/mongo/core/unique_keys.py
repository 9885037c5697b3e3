"""Classify the unique indexes of facts by how they protect or block edenmem.

The platform creates its own narrow key, ``fact_dedup_idx`` on (hash, agent_id), in each new
process; see `collections.FACT_KEY`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from edenmem.store.mongo.core.collection import Collection
from edenmem.store.mongo.core.collections import (
    FACT_KEY,
    FORMATIONS,
    GIVEN_KEY,
    MEMORY_INDEXES,
    NARROW_FACT_KEYS,
    TEMPORARY_FACT_KEY,
    Index,
)

REPLACE = "edenmem index create --replace"

#: Maximum number of duplicates to name in an error.
_NAMED = 5

#: The unique indexes that give a claim to one worker only.
CLAIM_KEYS = tuple(i for i in MEMORY_INDEXES if i.collection == FORMATIONS and i.unique)


class FactKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The unique indexes of facts, by name.

    ``narrow`` ones refuse valid facts. ``renamed`` ones protect as `FACT_KEY` does, but their name
    does not prevent the platform from creating its own. ``other`` ones are not edenmem's, and may
    refuse facts for other reasons.
    """

    final: bool = False
    temporary: bool = False
    misnamed: bool = False
    narrow: tuple[str, ...] = ()
    renamed: tuple[str, ...] = ()
    other: tuple[str, ...] = ()

    @property
    def protects(self) -> bool:
        """Return whether duplicates in a scope are impossible."""
        return self.final or self.temporary or bool(self.renamed)

    @property
    def half_replaced(self) -> bool:
        """Return whether only the temporary index exists.

        It prevents duplicates in a scope, but not the platform's narrow index, for which the
        platform deletes facts that two users share.
        """
        return self.temporary and not self.final and not self.renamed

    @property
    def obsolete(self) -> tuple[str, ...]:
        """The indexes that a replacement drops before it creates `FACT_KEY`."""
        misnamed = (FACT_KEY.name,) if self.misnamed else ()
        return tuple(dict.fromkeys((*self.narrow, *self.renamed, *misnamed)))

    @property
    def refuses(self) -> tuple[str, ...]:
        """The indexes that may refuse a fact that is new in its scope."""
        return (*self.narrow, *self.other)


def fact_keys(existing: Mapping[str, Any]) -> FactKeys:
    """Classify the indexes on the collection of facts."""
    wide = frozenset(field for field, _ in FACT_KEY.keys)
    final = temporary = misnamed = False
    narrow: list[str] = []
    renamed: list[str] = []
    other: list[str] = []
    for name, index in existing.items():
        keys = tuple(index["key"])
        fields = frozenset(field for field, _ in keys)
        if name == GIVEN_KEY.name and keys == GIVEN_KEY.keys:
            continue
        whole = not index.get("partialFilterExpression") and not index.get("sparse")
        if not index.get("unique"):
            misnamed = misnamed or name == FACT_KEY.name
        elif fields in NARROW_FACT_KEYS:
            narrow.append(name)
        elif whole and name == FACT_KEY.name and keys == FACT_KEY.keys:
            final = True
        elif whole and name == TEMPORARY_FACT_KEY.name and fields == wide:
            temporary = True
        elif whole and keys == FACT_KEY.keys:
            renamed.append(name)
        elif name == FACT_KEY.name:
            misnamed = True
        else:
            other.append(name)
    return FactKeys(
        final=final,
        temporary=temporary,
        misnamed=misnamed,
        narrow=tuple(narrow),
        renamed=tuple(renamed),
        other=tuple(other),
    )


def narrow_key(keys: FactKeys) -> str:
    """Describe the effect of the narrow indexes."""
    owner = "the platform's " if FACT_KEY.name in keys.narrow else "the "
    index, lets = ("indexes", "let") if len(keys.narrow) > 1 else ("index", "lets")
    return (
        f"{owner}unique {index} {', '.join(keys.narrow)} {lets} each agent store a sentence only "
        "once, for one user"
    )


def has_keys(existing: Mapping[str, Any], index: Index) -> bool:
    """Return whether an equivalent index exists under any name."""
    return any(
        tuple(found["key"]) == index.keys
        and bool(found.get("unique")) == index.unique
        and found.get("partialFilterExpression") == index.partial
        for found in existing.values()
    )


def obstacle(collection: Collection, index: Index) -> str:
    """Describe the documents that prevent a unique index."""
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
        f"cannot create unique index {index.name} on {index.collection}: "
        "duplicate " + ", ".join(fields) + " in " + "; ".join(groups)
    )
