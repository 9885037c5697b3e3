"""The database as a whole: what it is, and how its schema came to be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal, Protocol

import msgspec

from edenmem.models.forgetting import Compaction
from edenmem.models.indexes import Preparation
from edenmem.models.integrity import Finding
from edenmem.models.migration import MigrationRun, SchemaStep


class StoreInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What ``status`` tells of a store. ``location`` has no secrets in it; ``counts`` has the same
    keys on every store, and counts what is marked as deleted too. ``write_obstacle`` says why
    nothing can be written, if so."""

    kind: Literal["sqlite", "mongodb"]
    location: str
    initialised: bool
    schema_version: str = ""
    server_version: str = ""
    size_bytes: int | None = None
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    write_obstacle: str = ""


class Database(Protocol):
    """What is about the database as a whole."""

    def info(self) -> StoreInfo:
        """Where and what the store is, and how many documents of each kind it has."""

    def initialise(self) -> Sequence[str]:
        """Make tables or collections and ordinary indexes that are missing; say what was made.

        Safe to call again. SQLite files are made with mode 0600.
        """

    def preparation(self) -> Preparation:
        """What `initialise` would do now, and what it would leave to the operator; writes
        nothing."""

    def require_writable(self) -> None:
        """Demand all without which nothing can be written, before a model is paid for it.

        Raises:
            WriteRefused: the store is open for reading only.
            StoreError: its schema is another one, or the server has no transactions.
        """

    def close(self) -> None:
        """Let go of files and sockets."""

    def file_faults(self) -> Iterator[Finding]:
        """What the database itself says is damaged, and what its schema lacks."""

    def repair_schema(self) -> int:
        """Make what `file_faults` found missing in the schema; how many parts."""

    def compact(self) -> Compaction:
        """Make sure that deleted content is gone from the store's files, as far as that is in its
        power."""


class Migrations(Protocol):
    """The steps of our own schema, and the ledger of runs that brought data here."""

    def schema(self) -> list[SchemaStep]:
        """Every step that this edenmem knows, by number, with when the database had it."""

    def migrate_up(self) -> Sequence[str]:
        """Take the steps that are pending; their names, in order. Safe to call again, and at once
        from two processes: the other one waits, or is told so.

        Raises:
            ConflictError: another process is at it (on a store without transactions).
        """

    def migrate_down(self, to: int) -> Sequence[str]:
        """Take back the steps after number ``to``, newest first; their names.

        Raises:
            ConflictError: one of them has no way back (nothing is taken back then), or another
                process is at it.
        """

    def take_migration_lease(self, holder: str, *, now: datetime, until: datetime) -> str | None:
        """Take or lengthen the one lease that a migration of data needs. None: it is the holder's
        now. Otherwise whose it is: nothing was changed."""

    def end_migration_lease(self, holder: str) -> None:
        """Let go of the lease, if it is the holder's."""

    def put_migration_run(self, run: MigrationRun) -> None:
        """Write a run into the ledger, in place of what is there of it."""

    def migration_run(self, run_id: str) -> MigrationRun | None:
        """One run."""

    def migration_runs(self) -> list[MigrationRun]:
        """All runs, latest first."""
