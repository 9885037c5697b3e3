"""Describe the database, and create the indexes that the store's queries need."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from pymongo.errors import OperationFailure

from edenmem.errors import ConflictError, StoreError, UsageError
from edenmem.models.forgetting import Compaction
from edenmem.models.indexes import INDEX_STEP, Preparation
from edenmem.models.integrity import Finding
from edenmem.store.common import migrations
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import translate_errors
from edenmem.store.mongo.core.collections import CONSOLIDATED_KEY, FACT_KEY, Index
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.migrations import read_applied, schema_version
from edenmem.store.mongo.core.readiness import (
    STANDALONE,
    Readiness,
    fact_keys,
    foreign_note,
    has_keys,
    is_standalone,
    key_note,
    read_fact_keys,
)
from edenmem.store.mongo.indexes.indexes import DuplicatesFound, build, shard_problem
from edenmem.store.mongo.search.slots import Slots
from edenmem.store.protocol.database import Migrations, StoreInfo

_BEYOND = (
    "the server's oplog and journal, until they are overwritten",
    "backups and snapshots of the cluster (Atlas keeps its own), and exports",
    "search indexes on Atlas, until they have caught up (seconds)",
    "v1 memory that the platform keeps (memory_user, memory_agent, memory_sessions)",
    "files of the server, whose space is reused but not overwritten",
)


class MongoDatabase:
    """Implements `edenmem.store.protocol.database.Database`; never drops an index."""

    def __init__(
        self, db: Connection, readiness: Readiness, migrations: Migrations, slots: Slots
    ) -> None:
        self.is_beside_platform = slots.is_beside_platform
        self._db = db
        self._readiness = readiness
        self._migrations = migrations

    def snapshot(self) -> AbstractContextManager[None]:
        """See `Database.snapshot`; here each read sees the newest state."""
        return nullcontext()

    def info(self) -> StoreInfo:
        with translate_errors(self._db.location):
            version = str(self._db.client.server_info().get("version", ""))
        return StoreInfo(
            kind="mongodb",
            location=self._whole_location,
            initialized=self._was_here(),
            schema_version=schema_version(self._db),
            server_version=version,
            size_bytes=self._size(),
            counts=self._counts(),
            write_obstacle=STANDALONE if is_standalone(self._db) else "",
        )

    def _counts(self) -> dict[str, int]:
        agents = self._db.users.count({"type": "agent"})
        counted = {
            "sessions": self._db.sessions,
            "messages": self._db.messages,
            "facts": self._db.facts,
            "reflections": self._db.reflections,
            "consolidations": self._db.consolidated,
            "policies": self._db.policies,
            "formations": self._db.formations,
            "history": self._db.history,
            "audit": self._db.audit,
        }
        return {
            "agents": agents,
            "users": max(0, self._db.users.estimate_count() - agents),
            **{name: collection.estimate_count() for name, collection in counted.items()},
        }

    def _size(self) -> int | None:
        """Return bytes on disk with indexes; None if the server does not report them."""
        try:
            stats = self._db.database.command("dbStats")
        except (OperationFailure, NotImplementedError):
            return None
        parts = [stats.get(name) for name in ("storageSize", "indexSize")]
        sizes = [int(part) for part in parts if isinstance(part, int | float)]
        return sum(sizes) if sizes else None

    def initialize(self) -> Sequence[str]:
        """See `Database.initialize`.

        Raises:
            StoreError: stored duplicates or sharding prevent a unique index (nothing was dropped),
                or the server is a standalone.
        """
        self._readiness.require_transactions()
        created = [f"migration {name}" for name in self._first_steps()]
        if created:
            self._migrations.migrate_up()
        obstacles: list[str] = []
        for index in self._missing_indexes():
            try:
                build(self._db, index)
                created.append(_describe_index(index))
            except DuplicatesFound as error:
                obstacles.append(error.message)
            except ConflictError:
                if index is not FACT_KEY:  # the platform was quicker; see `preparation`
                    raise
        if obstacles:
            raise StoreError(
                "; ".join(obstacles),
                hint="remove or change the duplicates, then run the command again",
            )
        return created

    def require_writable(self) -> None:
        self._readiness.require()

    def preparation(self) -> Preparation:
        steps = [f"migration {name}" for name in self._first_steps()]
        problems: list[str] = []
        for index in self._missing_indexes():
            problem = shard_problem(self._db, index)
            (problems if problem else steps).append(problem or _describe_index(index))
        warnings = [*problems, *self._key_warnings()]
        if is_standalone(self._db):
            warnings.append(f"the server {STANDALONE}; 'edenmem init' will fail")
        return Preparation(
            steps=tuple(steps), warnings=tuple(warnings), notes=tuple(self._database_notes())
        )

    @property
    def _whole_location(self) -> str:
        """The location with the database, which the URI may omit."""
        name = self._db.database.name
        named = self._db.location.endswith(f"/{name}")
        return self._db.location if named else f"{self._db.location} ({name})"

    def _database_notes(self) -> Iterator[str]:
        """Yield hints that this is not the intended database."""
        name = self._db.database.name
        if self._whole_location != self._db.location:
            yield f"the URI names no database; using {name}"
        with translate_errors(self._db.location):
            there = self._db.database.list_collection_names()
        users = self._db.settings.users_collection
        if users not in there:
            yield (
                f"{name} has no {users} collection: this is an empty database, not the platform's"
            )

    def _key_warnings(self) -> Iterator[str]:
        keys = read_fact_keys(self._db)
        if note := key_note(keys):
            yield note
        for name in keys.other:
            yield f"{names.FACTS}: {foreign_note(name)}"

    def _missing_indexes(self) -> Iterator[Index]:
        """Yield the indexes that `initialize` creates.

        Where another key of facts exists, `FACT_KEY` is not included: it is replaced only on
        request, because the platform may be running.
        """
        existing: dict[str, Any] = {}
        for index in names.ordinary_indexes(self._db.settings).values():
            if index.collection not in existing:
                existing[index.collection] = self._db.collection(index.collection).indexes()
            there = existing[index.collection]
            if index is FACT_KEY:
                keys = fact_keys(there)
                if not keys.final and not keys.obsolete:
                    yield index
            elif index.name not in there and not has_keys(there, index):
                yield index

    def _first_steps(self) -> Sequence[str]:
        """Return all schema steps if edenmem has never used the database, else none.

        Existing databases are migrated by a separate command.
        """
        if read_applied(self._db) or self._was_here():
            return ()
        return [step.name for step in migrations.pending({})]

    def _was_here(self) -> bool:
        return has_keys(self._db.consolidated.indexes(), CONSOLIDATED_KEY)

    def close(self) -> None:
        self._db.close()

    def file_faults(self) -> Iterator[Finding]:
        """See `Database.file_faults`; the server checks its own files."""
        return iter(())

    def repair_schema(self) -> int:
        """See `Database.repair_schema`; there is nothing to repair."""
        return 0

    def rewrite_file(self) -> list[Finding]:
        """See `Database.rewrite_file`; the server manages its files."""
        return []

    def salvage(self, path: Path) -> list[Finding]:
        """See `Database.salvage`; the server manages its files."""
        raise UsageError(
            "only a SQLite file can be salvaged", hint="'mongod --repair' is for its files"
        )

    def compact(self) -> Compaction:
        """See `Database.compact`; the server manages its files."""
        return Compaction(beyond=_BEYOND)


def _describe_index(index: Index) -> str:
    return f"{index.collection}{INDEX_STEP}{index.name}"
