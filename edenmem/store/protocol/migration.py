"""What a store knows of migrations; a part of `edenmem.store.protocol.store.Store`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from edenmem.models.memory import Reflection
from edenmem.models.migration import MigrationRun, SchemaStep


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

    def reflections_by_ids(self, reflection_ids: Sequence[str]) -> dict[str, Reflection]:
        """Those of the reflections that there are, by id; whoever asks checks their ``home``."""
