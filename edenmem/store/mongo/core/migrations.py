"""Schema steps, leases and migration runs, stored in ``memory2_migrations``.

The ID gives the type of a document: ``schema/NNNN_name`` for an applied step, ``lease/NAME`` for a
lease, ``run/ID`` for a migration run.
"""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec
from pymongo.errors import DuplicateKeyError

from edenmem.errors import ConflictError, StoreError
from edenmem.models.ids import as_utc, new_id, utc_now
from edenmem.models.migration import MigrationRun, SchemaStep
from edenmem.store.common import migrations
from edenmem.store.common.migrations import Migration
from edenmem.store.mongo.core.collection import translate_errors
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import Filter
from edenmem.store.mongo.core.readiness import (
    Readiness,
    documents_of,
    read_digests,
    require_writable,
)

_SCHEMA, _DATA = "schema", "data"

#: A process that migrates renews its lease; without renewal it expires after this.
_SCHEMA_LEASE = timedelta(minutes=2)


class MongoMigrations:
    """Implements `edenmem.store.protocol.database.Migrations`."""

    def __init__(self, db: Connection, readiness: Readiness) -> None:
        self._db = db
        self._readiness = readiness

    # -- the schema --------------------------------------------------------------------------

    def schema(self) -> list[SchemaStep]:
        return migrations.list_steps(read_applied(self._db))

    def migrate_up(self) -> Sequence[str]:
        require_writable(self._db)
        taken: list[str] = []
        with lease_schema(self._db):
            for step in migrations.pending(read_applied(self._db)):
                self._take(step)
                taken.append(step.name)
        return taken

    def migrate_down(self, to: int) -> Sequence[str]:
        require_writable(self._db)
        self._readiness.forget_schema()
        with lease_schema(self._db):
            steps = migrations.reversible(read_applied(self._db), to)
            for step in steps:
                with translate_errors(self._db.location):
                    step.down("mongo", self._db.database)
                self._db.ledger.delete_one({"_id": f"schema/{step.name}"})
        return [step.name for step in steps]

    def _take(self, step: Migration) -> None:
        """Apply a step, then record it; steps are idempotent, so an interruption is harmless."""
        with translate_errors(self._db.location):
            step.up("mongo", self._db.database)
        fields = {"number": step.number, "name": step.name, "digest": step.digest}
        self._db.ledger.update_one(
            {"_id": f"schema/{step.name}"},
            {"$set": {**fields, "applied_at": utc_now()}},
            upsert=True,
        )

    # -- leases ------------------------------------------------------------------------------

    def take_migration_lease(
        self, holder: str, *, now: datetime, until: datetime
    ) -> tuple[str, datetime] | None:
        return _take_lease(self._db, _DATA, holder, now, until)

    def end_migration_lease(self, holder: str) -> None:
        _end_lease(self._db, _DATA, holder)

    # -- runs --------------------------------------------------------------------------------

    def put_migration_run(self, run: MigrationRun) -> None:
        document = msgspec.to_builtins(run, builtin_types=(datetime,))
        self._db.ledger.update_one({"_id": f"run/{run.id}"}, {"$set": document}, upsert=True)

    def migration_runs(self) -> list[MigrationRun]:
        found = self._db.ledger.find(documents_of("run"))
        runs = (msgspec.convert(document, MigrationRun) for document in found)
        return sorted(runs, key=lambda run: (run.started_at, run.id), reverse=True)


def read_applied(db: Connection) -> dict[str, datetime]:
    """Map applied schema steps to the time of their application."""
    return {
        str(each["name"]): as_utc(each["applied_at"])
        for each in db.ledger.find(documents_of("schema"))
    }


def schema_version(db: Connection) -> str:
    """Return the number of the newest applied step; empty before the first."""
    return str(max(read_digests(db), default=""))


@contextmanager
def lease_schema(db: Connection) -> Iterator[None]:
    """Hold the schema lease, renewed in the background, while the body runs."""
    holder = f"{socket.gethostname()} {os.getpid()} {new_id()}"
    other = _take_lease(db, _SCHEMA, holder, utc_now(), utc_now() + _SCHEMA_LEASE)
    if other is not None:
        raise ConflictError(
            f"another process is migrating the database at {db.location}: {other[0]}",
            hint=f"wait for it; if it died, its lease expires within {_SCHEMA_LEASE}",
        )
    over = threading.Event()

    def renew() -> None:
        while not over.wait(_SCHEMA_LEASE.total_seconds() / 4):
            # A failed renewal is retried; the steps are idempotent.
            with suppress(StoreError):
                _take_lease(db, _SCHEMA, holder, utc_now(), utc_now() + _SCHEMA_LEASE)

    keeper = threading.Thread(target=renew, name="edenmem-schema-lease", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()
        _end_lease(db, _SCHEMA, holder)


def _take_lease(
    db: Connection, name: str, holder: str, now: datetime, until: datetime
) -> tuple[str, datetime] | None:
    """Acquire a lease that is free, expired or held by ``holder``.

    Returns:
        None on success, else the current holder and the end of its lease.
    """
    key = f"lease/{name}"
    free: Filter = {"_id": key, "$or": [{"holder": holder}, {"until": {"$lte": now}}]}
    update: dict[str, Any] = {"$set": {"holder": holder, "until": until}}
    if db.ledger.update_one(free, update):
        return None
    try:
        db.ledger.insert_one({"_id": key, "holder": holder, "until": until})
    except DuplicateKeyError:
        found = db.ledger.find_one({"_id": key})
        if found is None:
            return "a process that has just finished", now
        return str(found["holder"]), as_utc(found["until"])
    return None


def _end_lease(db: Connection, name: str, holder: str) -> None:
    db.ledger.delete_one({"_id": f"lease/{name}", "holder": holder})
