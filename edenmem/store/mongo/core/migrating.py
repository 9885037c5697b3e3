"""The schema's steps, and the ledger of runs that brought data here, in ``memory2_migrations``.

Ids say what a document is: ``schema/NNNN_name`` a step that was taken, ``lease/NAME`` who is at
work, ``run/ID`` a run.
"""

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

from edenmem.errors import ConflictError, StoreError, WriteRefused
from edenmem.models.ids import as_utc, new_id, utc_now
from edenmem.models.memory import Reflection
from edenmem.models.migration import MigrationRun, SchemaStep
from edenmem.store.common import migrations
from edenmem.store.common.migrations import Migration
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import Collection
from edenmem.store.mongo.core.connection import Connected
from edenmem.store.mongo.core.errors import translate_errors
from edenmem.store.mongo.core.filters import Filter, id_parts

_SCHEMA, _DATA = "schema", "data"
#: A process that takes steps shows often that it lives, and is given up for dead after this.
_SCHEMA_LEASE = timedelta(minutes=2)
#: The step that finishes what was written without transactions.
_TRANSACTIONS = 12


def _all(prefix: str) -> Filter:
    """A filter for the ids that begin so, which the index on ids serves."""
    return {"_id": {"$gte": f"{prefix}/", "$lt": f"{prefix}0"}}


class MigratingPart(Connected):
    """See `edenmem.store.protocol.migration.Migrations`."""

    _has_schema = False

    @property
    def _ledger(self) -> Collection:
        return self._collection(names.MIGRATIONS)

    # -- the schema --------------------------------------------------------------------------

    def schema(self) -> list[SchemaStep]:
        """See `edenmem.store.protocol.migration.Migrations.schema`."""
        had = self._read_applied()
        return [
            SchemaStep(
                number=step.number,
                name=step.name,
                applied_at=had.get(step.name),
                no_way_back=step.no_way_back(),
            )
            for step in migrations.migrations()
        ]

    def migrate_up(self) -> Sequence[str]:
        """See `edenmem.store.protocol.migration.Migrations.migrate_up`."""
        self._demand_writable()
        taken: list[str] = []
        with self._at_work_on_schema():
            for step in migrations.pending(self._read_applied()):
                self._take(step)
                taken.append(step.name)
        return taken

    def migrate_down(self, to: int) -> Sequence[str]:
        """See `edenmem.store.protocol.migration.Migrations.migrate_down`."""
        self._demand_writable()
        self._has_schema = False
        with self._at_work_on_schema():
            had = self._read_applied()
            steps = [s for s in migrations.migrations() if s.number > to and s.name in had]
            for step in steps:
                if reason := step.no_way_back():
                    raise ConflictError(f"migration {step.name} has no way back: {reason}")
            for step in reversed(steps):
                with translate_errors(self.location):
                    step.down("mongo", self._database)
                self._ledger.delete_one({"_id": f"schema/{step.name}"})
        return [step.name for step in reversed(steps)]

    def _demand_schema(self) -> None:
        """Demand that the database is of a schema that this edenmem writes; the answer is kept.

        Raises:
            StoreError: a newer edenmem migrated it, or changes of an older one are pending in it.
        """
        if self._has_schema:
            return
        numbers = {int(each["number"]) for each in self._ledger.find(_all("schema"))}
        name = f"the database {self._database.name} at {self.location}"
        if numbers and max(numbers) > migrations.newest():
            raise StoreError(
                f"{name} was migrated by a newer edenmem: schema {max(numbers)}, and this one "
                f"knows {migrations.newest()}",
                hint="install a newer edenmem",
            )
        if numbers and _TRANSACTIONS not in numbers:
            raise StoreError(
                f"{name} is of an older schema: {max(numbers)}",
                hint="stop every older edenmem, then run 'edenmem migrate up'",
            )
        self._has_schema = True

    def _demand_writable(self) -> None:
        if self._settings.read_only:
            raise WriteRefused(f"{self.location} is open for reading only")

    def _take(self, step: Migration) -> None:
        """Take a step, then note it: it may be taken again, so nothing is lost in between."""
        with translate_errors(self.location):
            step.up("mongo", self._database)
        now = utc_now()
        self._ledger.update_one(
            {"_id": f"schema/{step.name}"},
            {"$set": {"number": step.number, "name": step.name, "applied_at": now}},
            upsert=True,
        )

    def _read_applied(self) -> dict[str, datetime]:
        return {
            str(each["name"]): as_utc(each["applied_at"])
            for each in self._ledger.find(_all("schema"))
        }

    def _schema_version(self) -> str:
        """The number of the newest step taken; empty before the first."""
        numbers = [int(each["number"]) for each in self._ledger.find(_all("schema"))]
        return str(max(numbers)) if numbers else ""

    @contextmanager
    def _at_work_on_schema(self) -> Iterator[None]:
        """Keep others out, by a lease that is renewed while the body is at work."""
        holder = f"{socket.gethostname()} {os.getpid()} {new_id()}"
        other = self._take_lease(_SCHEMA, holder, utc_now(), utc_now() + _SCHEMA_LEASE)
        if other is not None:
            raise ConflictError(
                f"another process migrates the database at {self.location}: {other}",
                hint=f"wait for it; if it died, its lease ends within {_SCHEMA_LEASE}",
            )
        over = threading.Event()

        def renew() -> None:
            while not over.wait(_SCHEMA_LEASE.total_seconds() / 4):
                # Steps may be taken twice, so a renewal that fails is only tried again.
                with suppress(StoreError):
                    self._take_lease(_SCHEMA, holder, utc_now(), utc_now() + _SCHEMA_LEASE)

        keeper = threading.Thread(target=renew, name="edenmem-schema-lease", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            over.set()
            keeper.join()
            self._end_lease(_SCHEMA, holder)

    # -- leases ------------------------------------------------------------------------------

    def _take_lease(self, name: str, holder: str, now: datetime, until: datetime) -> str | None:
        """Compare and set: the lease of a document that is ours, or has run out, or is not there.
        None: it is ours now; else whose it is."""
        key = f"lease/{name}"
        free: Filter = {"_id": key, "$or": [{"holder": holder}, {"until": {"$lte": now}}]}
        update: dict[str, Any] = {"$set": {"holder": holder, "until": until}}
        if self._ledger.update_one(free, update):
            return None
        try:
            self._ledger.insert_one({"_id": key, "holder": holder, "until": until})
        except DuplicateKeyError:
            found = self._ledger.find_one({"_id": key})
            return str(found["holder"]) if found else "somebody who has just finished"
        return None

    def _end_lease(self, name: str, holder: str) -> None:
        self._ledger.delete_one({"_id": f"lease/{name}", "holder": holder})

    def take_migration_lease(self, holder: str, *, now: datetime, until: datetime) -> str | None:
        """See `edenmem.store.protocol.migration.Migrations.take_migration_lease`."""
        return self._take_lease(_DATA, holder, now, until)

    def end_migration_lease(self, holder: str) -> None:
        """See `edenmem.store.protocol.migration.Migrations.end_migration_lease`."""
        self._end_lease(_DATA, holder)

    # -- runs --------------------------------------------------------------------------------

    def put_migration_run(self, run: MigrationRun) -> None:
        """See `edenmem.store.protocol.migration.Migrations.put_migration_run`."""
        document = msgspec.to_builtins(run, builtin_types=(datetime,))
        self._ledger.update_one({"_id": f"run/{run.id}"}, {"$set": document}, upsert=True)

    def migration_run(self, run_id: str) -> MigrationRun | None:
        """See `edenmem.store.protocol.migration.Migrations.migration_run`."""
        found = self._ledger.find_one({"_id": f"run/{run_id}"})
        return None if found is None else msgspec.convert(found, MigrationRun)

    def migration_runs(self) -> list[MigrationRun]:
        """See `edenmem.store.protocol.migration.Migrations.migration_runs`."""
        found = self._ledger.find(_all("run"))
        runs = (msgspec.convert(document, MigrationRun) for document in found)
        return sorted(runs, key=lambda run: (run.started_at, run.id), reverse=True)

    def reflections_by_ids(self, reflection_ids: Sequence[str]) -> dict[str, Reflection]:
        """See `edenmem.store.protocol.migration.Migrations.reflections_by_ids`."""
        filters = [{"_id": {"$in": part}} for part in id_parts(reflection_ids)]
        found = map(codec.reflection_from, self._find_all(self._reflections, filters))
        return {reflection.id: reflection for reflection in found}
