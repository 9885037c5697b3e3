"""Check the server, the schema and the unique indexes before writes.

The platform creates its own narrow key of facts, ``fact_dedup_idx`` on (hash, agent_id), in each
new process; see `collections.FACT_KEY`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from edenmem.errors import ConflictError, FactKeyConflict, StoreError, WriteRefused
from edenmem.store.common import migrations
from edenmem.store.mongo.core.collection import Collection, translate_errors
from edenmem.store.mongo.core.collections import (
    FACT_KEY,
    FORMATIONS,
    GIVEN_KEY,
    MEMORY_INDEXES,
    NARROW_FACT_KEYS,
    TEMPORARY_FACT_KEY,
    Index,
)
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import Filter

STANDALONE = "is a standalone server, which is read-only for edenmem"
_STEPS = (
    "writing needs a replica set (one node suffices): start mongod with '--replSet rs0' (with "
    "authentication on, also '--keyFile FILE'), then run 'rs.initiate()' in mongosh with a host "
    "name that clients can resolve; see 'A replica set' in edenmem/docs/mongodb.md"
)


REPLACE = "edenmem index create --replace"

#: Maximum number of duplicates to name in an error.
_NAMED = 5

#: The unique indexes that give a claim to one worker only.
CLAIM_KEYS = tuple(i for i in MEMORY_INDEXES if i.collection == FORMATIONS and i.unique)


class Readiness:
    """Checks the preconditions of writes, and caches each that is met."""

    def __init__(self, db: Connection) -> None:
        self._db = db
        self._has_transactions = False
        self._has_schema = False
        self._seen: set[str] = set()  # unique indexes known to exist

    def require(self) -> None:
        """Check all preconditions, also before paying for a model call."""
        self.require_transactions()
        self.require_schema()

    def require_transactions(self) -> None:
        """Raise if the store is read-only or the server lacks transactions.

        Raises:
            WriteRefused: the store is open for reading only.
            StoreError: the server is a standalone, or lacks transactions.
        """
        require_writable(self._db)
        if self._has_transactions:
            return
        if is_standalone(self._db):
            raise StoreError(f"MongoDB at {self._db.location} {STANDALONE}", hint=_STEPS)
        self._has_transactions = True

    def require_schema(self) -> None:
        """Raise if this version cannot write the database's schema; the check is cached.

        Raises:
            StoreError: a newer version migrated it, or an unreleased one made it.
        """
        if self._has_schema:
            return
        digests = read_digests(self._db)
        name = self._db.full_name
        if digests and max(digests) > migrations.newest():
            raise StoreError(
                f"schema {max(digests)} is newer than this version's {migrations.newest()}: {name}",
                hint="install a newer edenmem",
            )
        if digests:
            migrations.require_first(digests.get(1), name)
        self._has_schema = True

    def forget_schema(self) -> None:
        """Drop the cached check before schema steps are reverted."""
        self._has_schema = False

    # -- unique indexes ----------------------------------------------------------------------

    def require_keys(self, keys: Iterable[Index]) -> None:
        """Raise if one of these unique indexes is missing; each is checked once.

        Raises:
            StoreError: an index is missing. Two workers could both hold a claim, and a scope could
                have a fact twice.
            FactKeyConflict: a narrow index is in place of the key of facts, and would refuse valid
                facts; or a restart of the platform would delete them during a replacement.
        """
        for key in keys:
            if key.name in self._seen:
                continue
            existing, name = self._db.collection(key.collection).indexes(), self._db.full_name
            if key is FACT_KEY and (note := fact_keys(existing).note):
                raise FactKeyConflict(
                    f"facts cannot be added or changed in {name}: {note}",
                    hint=f"replace it with '{REPLACE}'",
                )
            if not has_keys(existing, key):
                raise StoreError(
                    f"the database is not initialized: {name} "
                    f"({key.collection} has no unique index {key.name})",
                    hint="run 'edenmem init'",
                )
            self._seen.add(key.name)

    def explain_refusal(self, name: str) -> ConflictError | None:
        """Return the error for a fact that an index refused although its scope lacks the fact.

        None if the index is edenmem's own: a duplicate existed for a moment.
        """
        keys = read_fact_keys(self._db)
        if name not in (*keys.obsolete, *keys.other):
            return None
        self._seen.discard(FACT_KEY.name)
        return ConflictError(
            f"the unique index {name} on {FACT_KEY.collection} refused a fact that is new in its "
            "scope",
            hint=f"replace the index with '{REPLACE}', then run the command again"
            if name in keys.obsolete
            else f"{name} was not created by edenmem; drop it in the database, then run the "
            "command again",
        )


def require_writable(db: Connection) -> None:
    """Raise if the store is open for reading only."""
    if db.settings.read_only:
        raise WriteRefused(f"MongoDB at {db.location} is open for reading only")


def is_standalone(db: Connection) -> bool:
    """Return whether the server is not in a replica set, and so lacks transactions."""
    with translate_errors(db.location):
        try:
            hello = db.client.admin.command("hello")
        except NotImplementedError:  # a mock of a server
            hello = {}
    return not hello.get("setName") and hello.get("msg") != "isdbgrid"


def documents_of(prefix: str) -> Filter:
    """Return a filter for IDs of the ledger with this prefix, served by the index on IDs."""
    return {"_id": {"$gte": f"{prefix}/", "$lt": f"{prefix}0"}}


def read_digests(db: Connection) -> dict[int, str | None]:
    """Return the digests of the applied schema steps by number."""
    found = db.ledger.find(documents_of("schema"))
    return {int(each["number"]): each.get("digest") for each in found}


def read_fact_keys(db: Connection) -> FactKeys:
    """Read the unique indexes of facts."""
    return fact_keys(db.facts.indexes())


# -- the unique indexes of facts -----------------------------------------------------------------


class FactKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The unique indexes of facts, by name.

    ``obsolete`` ones are to be replaced by `FACT_KEY`: narrow ones refuse valid facts, and one with
    the same fields but another name does not prevent the platform from creating a narrow one.
    ``other`` ones are not edenmem's, and may refuse facts for other reasons.
    """

    final: bool = False
    temporary: bool = False
    obsolete: tuple[str, ...] = ()
    other: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """Describe what is wrong with the key of facts; "" if it is correct."""
        if self.obsolete:
            owner = "the platform's " if FACT_KEY.name in self.obsolete else "the "
            return (
                f"{owner}unique index {', '.join(self.obsolete)} lets each agent store a sentence "
                "only once, for one user, or does not keep the platform from deleting the others"
            )
        if self.temporary:
            return (
                f"the unique index {FACT_KEY.name} on {FACT_KEY.collection} is being replaced, or "
                "its replacement was interrupted"
            )
        return ""


def fact_keys(existing: Mapping[str, Any]) -> FactKeys:
    """Classify the indexes on the collection of facts."""
    own = {GIVEN_KEY.name: GIVEN_KEY, FACT_KEY.name: FACT_KEY}
    own[TEMPORARY_FACT_KEY.name] = TEMPORARY_FACT_KEY
    right: set[str] = set()
    obsolete: list[str] = []
    other: list[str] = []
    for name, index in existing.items():
        if name in own and has_keys({name: index}, own[name]):
            right.add(name)
        elif name == FACT_KEY.name or (index.get("unique") and _is_key(index)):
            obsolete.append(name)
        elif index.get("unique"):
            other.append(name)
    return FactKeys(
        final=FACT_KEY.name in right,
        temporary=TEMPORARY_FACT_KEY.name in right,
        obsolete=tuple(obsolete),
        other=tuple(other),
    )


def _is_key(index: Mapping[str, Any]) -> bool:
    """Return whether an index has the fields of the platform's key, or those of `FACT_KEY`."""
    keys = tuple(index["key"])
    return frozenset(field for field, _ in keys) in NARROW_FACT_KEYS or keys == FACT_KEY.keys


_BLOCKED = "edenmem cannot add or change facts until you replace it"


def key_note(keys: FactKeys) -> str:
    """Return the note for the operator about the key of facts; "" if it is correct."""
    note = keys.note
    return note and f"{note[0].upper()}{note[1:]}. {_BLOCKED}: {REPLACE}"


def foreign_note(name: str) -> str:
    """Return the note for the operator about a unique index of facts that is not edenmem's."""
    return f"the unique index {name} was not created by edenmem, and may refuse facts"


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
