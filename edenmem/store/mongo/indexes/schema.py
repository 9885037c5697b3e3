"""What the database is, and making the indexes that the store's queries need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pymongo.errors import DuplicateKeyError, OperationFailure

from edenmem.errors import ConflictError, StoreError
from edenmem.models.indexes import INDEX_STEP, Preparation
from edenmem.store.common import migrations
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collections import CONSOLIDATED_KEY, FACT_KEY, Index
from edenmem.store.mongo.core.errors import translate_errors
from edenmem.store.mongo.core.transactions import STANDALONE, TransactionsPart
from edenmem.store.mongo.indexes.fact_key import (
    REPLACE,
    FactKeyPart,
    FactKeys,
    fact_keys,
    has_keys,
    narrow_key,
    obstacle,
)
from edenmem.store.protocol.database import StoreInfo


class SchemaPart(TransactionsPart, FactKeyPart):
    """Describes the database and creates the indexes that are missing; drops none."""

    def info(self) -> StoreInfo:
        """See `edenmem.store.protocol.store.Store.info`."""
        with translate_errors(self.location):
            version = str(self._database.client.server_info().get("version", ""))
        return StoreInfo(
            kind="mongodb",
            location=self._whole_location,
            initialised=self._was_here(),
            schema_version=self._schema_version(),
            server_version=version,
            size_bytes=self._size(),
            counts=self._counts(),
            write_obstacle=STANDALONE if self._is_standalone() else "",
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
            "users": max(0, self._users.estimate_count() - agents),
            **{name: collection.estimate_count() for name, collection in counted.items()},
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
        """See `edenmem.store.protocol.store.Store.initialise`.

        Raises:
            StoreError: stored duplicates keep a unique index from being created, or a sharded
                collection does. Nothing was dropped then. Or the server is a standalone one.
        """
        self._demand_transactions()
        said = [f"migration {name}" for name in self._first_steps()]
        if said:
            self.migrate_up()
        obstacles: list[str] = []
        for index in self._missing_indexes():
            self._demand_shard_key(index)
            collection = self._collection(index.collection)
            try:
                collection.create_index(index.keys, **index.options())
                said.append(_describe_index(index))
            except DuplicateKeyError:
                obstacles.append(obstacle(collection, index))
            except ConflictError:
                if index is not FACT_KEY:  # the platform was quicker; `preparation` tells of it
                    raise
        if obstacles:
            raise StoreError(
                "; ".join(obstacles), hint="remove or change the duplicates, then initialise again"
            )
        return said

    def preparation(self) -> Preparation:
        """See `edenmem.store.protocol.indexes.Indexes.preparation`."""
        steps = [f"migration {name}" for name in self._first_steps()]
        problems: list[str] = []
        for index in self._missing_indexes():
            problem = self._shard_problem(index)
            (problems if problem else steps).append(problem or _describe_index(index))
        warnings = [*problems, *self._key_warnings()]
        if self._is_standalone():
            warnings.append(f"the server {STANDALONE}; init will be refused")
        return Preparation(
            steps=tuple(steps), warnings=tuple(warnings), notes=tuple(self._database_notes())
        )

    @property
    def _whole_location(self) -> str:
        """The location with the database, which the URI may not name."""
        name = self._database.name
        named = self.location.endswith(f"/{name}")
        return self.location if named else f"{self.location} ({name})"

    def _database_notes(self) -> Iterator[str]:
        """What hints at another database than the one that was meant."""
        name = self._database.name
        if self._whole_location != self.location:
            yield f"the URI does not name the database; using {name}"
        with translate_errors(self.location):
            there = self._database.list_collection_names()
        if self._settings.users_collection not in there:
            yield (
                f"{name} has no {self._settings.users_collection} collection: this is an empty "
                "database, not the platform's"
            )

    def _key_warnings(self) -> Iterator[str]:
        keys = self._fact_keys()
        if note := key_note(keys):
            yield note
        for name in keys.other:
            yield f"{names.FACTS}: {foreign_note(name)}"
        username = names.username_index(self._settings)
        if is_unique(self._users.indexes(), username):
            yield f"{username.collection}: {USERNAME_NOTE}"

    def _missing_indexes(self) -> Iterator[Index]:
        """The indexes that `initialise` creates. The key of facts is not among them where an older
        one stands: that one is replaced on request only, since the platform may be at work."""
        every = (*names.MEMORY_INDEXES, *names.host_indexes(self._settings))
        existing: dict[str, Any] = {}
        for index in every:
            if index.collection not in existing:
                existing[index.collection] = self._collection(index.collection).indexes()
            there = existing[index.collection]
            if index is FACT_KEY:
                keys = fact_keys(there)
                if not keys.final and not keys.obsolete:
                    yield index
            elif index.name not in there and not has_keys(there, index):
                yield index

    def _first_steps(self) -> Sequence[str]:
        """The schema's steps, for a database that edenmem was never in. In one that others use
        already they are taken by a command of their own."""
        if self._read_applied() or self._was_here():
            return ()
        return [step.name for step in migrations.pending({})]

    def _was_here(self) -> bool:
        return has_keys(self._consolidated.indexes(), CONSOLIDATED_KEY)


#: What an operator has to know of the unique index on usernames that earlier versions created.
USERNAME_NOTE = (
    "the unique index edenmem_username makes the platform fail where two accounts have one name; "
    f"'{REPLACE}' makes it an ordinary one"
)


def key_note(keys: FactKeys) -> str:
    """What an operator has to know of the key of facts; "" if it is as it should be."""
    if keys.narrow:
        note = narrow_key(keys)
        it = "them" if len(keys.narrow) > 1 else "it"
        return (
            f"{note[0].upper()}{note[1:]}. edenmem cannot add or change facts until you replace "
            f"{it}: {REPLACE}"
        )
    if keys.obsolete:
        return (
            f"{', '.join(keys.obsolete)} does not keep the platform from deleting facts that two "
            f"users share when it starts; '{REPLACE}' replaces it by {FACT_KEY.name}"
        )
    if keys.temporary:
        return f"replacing an index was interrupted; '{REPLACE}' completes it"
    return ""


def foreign_note(name: str) -> str:
    """What an operator has to know of a foreign unique index of facts."""
    return f"the unique index {name} was not created by edenmem, and may refuse facts"


def is_unique(existing: Mapping[str, Any], index: Index) -> bool:
    """Whether the index of this name is unique, although it should not be."""
    return not index.unique and bool(existing.get(index.name, {}).get("unique"))


def _describe_index(index: Index) -> str:
    return f"{index.collection}{INDEX_STEP}{index.name}"
