"""The unique key of facts: which indexes protect it, which stand in the way, and replacing them.

The platform creates a narrow key of its own, ``fact_dedup_idx`` on (hash, agent_id), in each new
process; `collections.FACT_KEY` says what that means for ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from pymongo.errors import DuplicateKeyError

from edenmem.errors import ConflictError, FactKeyConflict, StoreError
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import Collection
from edenmem.store.mongo.core.collections import (
    FACT_KEY,
    FORMER_FACT_KEYS,
    NARROW_FACT_KEYS,
    TEMPORARY_FACT_KEY,
    Index,
)
from edenmem.store.mongo.core.migrating import MigratingPart

REPLACE = "edenmem index create --replace"

#: Duplicates that are named when they keep a unique index from being created.
_NAMED = 5
#: How often a replacement starts again because the platform recreated its index meanwhile.
_ROUNDS = 5


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


class FactKeyPart(MigratingPart):
    """Demands the unique key of facts, and replaces older indexes by it."""

    def _fact_keys(self) -> FactKeys:
        return fact_keys(self._facts.indexes())

    def _demand_fact_key(self) -> None:
        """Demand that facts can be added and revised; the answer is kept once they can.

        Raises:
            FactKeyConflict: a narrow index would refuse facts that must be stored, or a restart
                of the platform would delete them in the midst of a replacement.
            StoreError: no unique index protects facts from duplicates.
        """
        if FACT_KEY.name in self._standing:
            return
        keys = self._fact_keys()
        if keys.narrow:
            raise FactKeyConflict(
                f"facts cannot be added or changed in {self._database.name} at {self.location}: "
                f"{narrow_key(keys)}",
                hint=f"replace it with '{REPLACE}'",
            )
        if keys.half_replaced:
            raise FactKeyConflict(
                f"facts cannot be added or changed in {self._database.name} at {self.location}: "
                f"the unique index {FACT_KEY.name} on {FACT_KEY.collection} is being replaced, "
                "or the replacement was interrupted",
                hint=f"complete it with '{REPLACE}'",
            )
        if not keys.protects:
            raise StoreError(
                f"the database {self._database.name} at {self.location} is not prepared: "
                f"{FACT_KEY.collection} has no unique index {FACT_KEY.name}",
                hint=f"run '{REPLACE}'" if keys.obsolete else "run 'edenmem init'",
            )
        self._standing.add(FACT_KEY.name)

    def _refusing_index(self, name: str) -> ConflictError | None:
        """The error for a fact that the index ``name`` refused although its scope does not have
        the fact; None if the index is one of ours, so that a twin was there for a moment."""
        keys = self._fact_keys()
        if name not in keys.refuses:
            return None
        self._standing.discard(FACT_KEY.name)
        narrow = name in keys.narrow
        return ConflictError(
            f"the unique index {name} on {FACT_KEY.collection} refused a fact that its scope "
            "does not have",
            hint=f"replace the index with '{REPLACE}', then run the command again"
            if narrow
            else f"{name} was not created by edenmem; drop it in the database, then run the "
            "command again",
        )

    # -- replacing ---------------------------------------------------------------------------

    def replace_index(self, name: str) -> None:
        """See `edenmem.store.protocol.indexes.Indexes.replace_index`."""
        self._demand_writable()
        username = names.username_index(self._settings)
        if name not in (FACT_KEY.name, username.name):
            raise ConflictError(
                f"the index {name} is not replaced", hint="'edenmem index update' changes others"
            )
        with self._at_work_on_schema():
            for _ in range(_ROUNDS):
                try:
                    if name == username.name:
                        self._replace_username(username)
                    else:
                        self._replace_fact_key()
                except ConflictError:
                    continue  # the platform recreated its index in between
                return
        raise ConflictError(
            f"gave up on replacing {name}: another process recreated an older index "
            f"{_ROUNDS} times",
            hint=f"run '{REPLACE}' again when no process of the platform is starting",
        )

    def _replace_username(self, index: Index) -> None:
        """Replace the former unique index on usernames by one that is not unique."""
        if self._users.indexes().get(index.name, {}).get("unique"):
            self._users.drop_index(index.name)
        self._users.create_index(index.keys, **index.options())

    def _replace_fact_key(self) -> None:
        """Replace older indexes by `FACT_KEY`. At every moment a unique index protects facts as
        the older ones did, and each step may be taken again."""
        keys = self._fact_keys()
        if not keys.final:
            self._demand_shard_key(FACT_KEY)
            if not keys.temporary:
                self._build(TEMPORARY_FACT_KEY)
        for name in keys.obsolete:
            self._facts.drop_index(name)
        self._build(FACT_KEY)
        left = self._fact_keys()
        if left.obsolete or not left.final:
            raise ConflictError("an older index is there again")
        if left.temporary:
            self._facts.drop_index(TEMPORARY_FACT_KEY.name)

    # -- creating ----------------------------------------------------------------------------

    def _build(self, index: Index, name: str = "") -> None:
        """Create an index, under its own name or another.

        Raises:
            StoreError: stored documents break it, and are named; or it cannot be on this server.
        """
        collection = self._collection(index.collection)
        try:
            collection.create_index(index.keys, **{**index.options(), "name": name or index.name})
        except DuplicateKeyError as error:
            raise StoreError(
                obstacle(collection, index),
                hint="remove or change the duplicates, then try again; no index was dropped",
            ) from error

    def _demand_shard_key(self, index: Index) -> None:
        if problem := self._shard_problem(index):
            raise StoreError(problem, hint="reshard the collection, or use one that is not sharded")

    def _shard_problem(self, index: Index) -> str:
        """Why a unique index cannot be created on a collection as it is sharded; "" if it can."""
        if not index.unique:
            return ""
        namespace = f"{self._database.name}.{index.collection}"
        try:
            found = Collection(
                self._database.client["config"]["collections"], self.location, read_only=True
            ).find_one({"_id": namespace})
        except StoreError:
            return ""  # not every user may read this; the server refuses the index itself then
        shard_key = tuple((found or {}).get("key", {}).items())
        if (found or {}).get("dropped") or shard_key == index.keys[: len(shard_key)]:
            return ""
        fields = ", ".join(f"{field}: {order}" for field, order in shard_key)
        return (
            f"unsupported: {namespace} is sharded by {{{fields}}}, and its unique index "
            f"{index.name} must begin with the shard key; its fields are "
            + ", ".join(field for field, _ in index.keys)
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
