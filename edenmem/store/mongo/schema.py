"""What the database is, and making the indexes that the store's queries need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pymongo.errors import DuplicateKeyError, OperationFailure

from edenmem.errors import StoreError
from edenmem.store.mongo import collections as names
from edenmem.store.mongo.collection import Collection
from edenmem.store.mongo.collections import FACT_KEY, NARROW_FACT_KEYS, Index
from edenmem.store.mongo.errors import mapped
from edenmem.store.mongo.migrating import MigratingPart
from edenmem.store.protocol import StoreInfo

#: Duplicates that are named when they keep a unique index from being made.
_NAMED = 5


class SchemaPart(MigratingPart):
    """Describes the database and makes indexes; never drops one before its successor stands."""

    def info(self) -> StoreInfo:
        """See `edenmem.store.protocol.Store.info`."""
        with mapped(self.location):
            version = str(self._database.client.server_info().get("version", ""))
        return StoreInfo(
            kind="mongodb",
            location=f"{self.location} ({self._database.name})",
            initialised=FACT_KEY.name in self._facts.indexes(),
            schema_version=self._schema_version(),
            server_version=version,
            size_bytes=self._size(),
            counts=self._counts(),
        )

    def _counts(self) -> dict[str, int]:
        agents = self._users.count({"type": "agent"})
        counted = {
            "sessions": self._sessions,
            "messages": self._messages,
            "facts": self._facts,
            "reflections": self._reflections,
            "consolidations": self._consolidated,
            "policies": self._policies,
            "formations": self._formations,
            "history": self._history,
            "audit": self._audit,
        }
        return {
            "agents": agents,
            "users": max(0, self._users.estimated_count() - agents),
            **{name: collection.estimated_count() for name, collection in counted.items()},
        }

    def _size(self) -> int | None:
        """Bytes on disk with indexes; None if the server does not say."""
        try:
            stats = self._database.command("dbStats")
        except (OperationFailure, NotImplementedError):
            return None
        parts = [stats.get(name) for name in ("storageSize", "indexSize")]
        sizes = [int(part) for part in parts if isinstance(part, int | float)]
        return sum(sizes) if sizes else None

    def initialise(self) -> Sequence[str]:
        """See `edenmem.store.protocol.Store.initialise`.

        Raises:
            StoreError: stored duplicates keep a unique index of ours from being made. Nothing was
                dropped then; the indexes that could be made stand.
        """
        said = [f"migration {name}" for name in self._first_steps()]
        obstacles: list[str] = []
        for index in (*names.MEMORY_INDEXES, *names.host_indexes(self._settings)):
            collection = self._collection(index.collection)
            existing = collection.indexes()
            if index.name in existing or has_keys(existing, index):
                continue
            try:
                collection.create_index(index.keys, **index.options())
                said.append(f"{index.collection}: made index {index.name}")
            except DuplicateKeyError:
                if index.collection == self._settings.users_collection:
                    said.append(self._plain_index(collection, index))
                else:
                    obstacles.append(obstacle(collection, index))
        if obstacles:
            raise StoreError(
                "; ".join(obstacles),
                hint="remove or change the duplicates, then initialise again; the older indexes "
                "are still there",
            )
        said.extend(self._drop_narrow_fact_key())
        return said

    def _first_steps(self) -> Sequence[str]:
        """The schema's steps, for a database that edenmem was never in. In one that others use
        already they are taken by a command of their own."""
        if self._taken() or FACT_KEY.name in self._facts.indexes():
            return ()
        return self.migrate_up()

    def _plain_index(self, collection: Collection, index: Index) -> str:
        """The platform promises unique usernames; where old accounts break that, do without."""
        collection.create_index(index.keys, name=index.name)
        return f"{index.collection}: made index {index.name}, not unique: {_duplicates(index)}"

    def _drop_narrow_fact_key(self) -> Iterator[str]:
        for name, existing in self._facts.indexes().items():
            fields = frozenset(field for field, _ in existing["key"])
            if existing.get("unique") and fields in NARROW_FACT_KEYS:
                self._facts.drop_index(name)
                yield (
                    f"{names.FACTS}: dropped unique index {name}, which let an agent know a "
                    f"sentence about one of its users only; {FACT_KEY.name} takes its place"
                )


def has_keys(existing: Mapping[str, Any], index: Index) -> bool:
    """Whether an index of another name does the same."""
    return any(
        tuple(found["key"]) == index.keys
        and bool(found.get("unique")) == index.unique
        and found.get("partialFilterExpression") == index.partial
        for found in existing.values()
    )


def _duplicates(index: Index) -> str:
    return "some documents have the same " + ", ".join(field for field, _ in index.keys)


def obstacle(collection: Collection, index: Index) -> str:
    """Which documents keep a unique index from being made."""
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
        f"{index.collection}: cannot make unique index {index.name}, {_duplicates(index)}: "
        + "; ".join(groups)
    )
