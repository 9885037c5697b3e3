"""Protocols for the database as a whole, its indexes and its schema migrations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from edenmem.models.indexes import IndexState, IndexWish, SearchTrial
from edenmem.models.integrity import Finding

if TYPE_CHECKING:  # a command loads what it uses
    from pathlib import Path

    from edenmem.models.forgetting import Compaction
    from edenmem.models.indexes import Preparation
    from edenmem.models.migration import MigrationRun, SchemaStep


class StoreInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A store as ``status`` shows it.

    ``location`` contains no secrets. ``counts`` has the same keys on every store and includes
    documents marked as deleted. ``write_obstacle`` is the reason why nothing can be written, or
    empty.
    """

    kind: Literal["sqlite", "mongodb"]
    location: str
    initialized: bool
    schema_version: str = ""
    server_version: str = ""
    size_bytes: int | None = None
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    write_obstacle: str = ""


class Database(Protocol):
    """The database as a whole."""

    def info(self) -> StoreInfo:
        """Return the store's kind, location, versions and document counts."""

    def initialize(self) -> Sequence[str]:
        """Create missing tables or collections and ordinary indexes; return the names created.

        Idempotent. SQLite files are created with mode 0600.
        """

    def preparation(self) -> Preparation:
        """Return what `initialize` would create, and what is left to the operator."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Let all reads of this thread see one state on SQLite, for one transaction's cost."""

    def require_writable(self) -> None:
        """Raise if nothing can be written, before paying for a model call.

        Raises:
            WriteRefused: the store is open for reading only.
            StoreError: the schema version differs, or the server has no transactions.
        """

    def is_beside_platform(self) -> bool:
        """Return whether the platform uses this database; cached."""

    def close(self) -> None:
        """Close files and sockets."""

    def file_faults(self) -> Iterator[Finding]:
        """Yield the damage that the database itself reports, and missing parts of its schema."""

    def repair_schema(self) -> int:
        """Create the schema parts that `file_faults` found missing; return their number."""

    def rewrite_file(self) -> Sequence[Finding]:
        """Rewrite a damaged file without damage, and return its unreadable rows.

        If there are any, nothing was changed. Search indexes are rebuilt.

        Raises:
            StoreError: another process uses the file.
        """

    def salvage(self, path: Path) -> Sequence[Finding]:
        """Copy all readable rows of a damaged file to a new one; return the unreadable ones.

        Raises:
            UsageError: the store is not a file.
        """

    def compact(self) -> Compaction:
        """Remove deleted content from the store's files, as far as the database allows."""


class Migrations(Protocol):
    """The steps of the schema, and the ledger of data migrations."""

    def schema(self) -> list[SchemaStep]:
        """List every schema step of this version by number, with the time it was applied."""

    def migrate_up(self) -> Sequence[str]:
        """Apply pending schema steps and return their names, in order.

        Idempotent, and safe in two processes at the same time: the second waits or raises.

        Raises:
            ConflictError: another process is migrating (on a store without transactions).
        """

    def migrate_down(self, to: int) -> Sequence[str]:
        """Revert the schema steps after number ``to``, newest first; return their names.

        Raises:
            ConflictError: a step is irreversible (nothing is reverted), or another process is
                migrating.
        """

    def take_migration_lease(
        self, holder: str, *, now: datetime, until: datetime
    ) -> tuple[str, datetime] | None:
        """Acquire or extend the only lease for data migrations.

        Returns:
            None if ``holder`` has the lease now; otherwise its current holder and its end.
        """

    def end_migration_lease(self, holder: str) -> None:
        """Release the lease if ``holder`` has it."""

    def put_migration_run(self, run: MigrationRun) -> None:
        """Store a migration run, overwriting an earlier state of it."""

    def migration_runs(self) -> list[MigrationRun]:
        """Return all migration runs, latest first."""


class Indexes(Protocol):
    """The indexes of a store."""

    def list_indexes(self, wish: IndexWish) -> list[IndexState]:
        """List every index that the store needs or defines.

        Ordinary ones come first, by collection, then search indexes.
        """

    def create_index(self, name: str, wish: IndexWish) -> None:
        """Start building an index if it is missing.

        Raises:
            StoreError: the database does not support it, or stored data prevent it.
        """

    def update_index(self, name: str, wish: IndexWish) -> None:
        """Start rebuilding an index with its current definition.

        Uniqueness stays protected throughout, and a search index keeps answering where the database
        supports it.

        Raises:
            NotFoundError: there is no such index.
            StoreError: the database does not support it.
        """

    def drop_index(self, name: str, *, dry_run: bool = False) -> None:
        """Drop an index; ``dry_run`` only checks whether that is allowed.

        Raises:
            NotFoundError: there is no such index.
            ConflictError: it protects uniqueness, the platform creates it too, or it is part of the
                store.
        """

    def replace_index(self, name: str) -> None:
        """Replace older indexes with the one of this name; see `IndexState.replaces`.

        Uniqueness stays protected throughout, and an interrupted run can be repeated.

        Raises:
            ConflictError: another process migrates the database, or recreates an older index.
            StoreError: stored data prevent the index; nothing was dropped.
        """

    def platform_conflicts(self) -> Iterator[Finding]:
        """Yield the facts that the platform deletes if it starts without edenmem's index.

        Of facts with the same text and agent, it keeps the one that its database returns first.
        """

    def try_search(
        self,
        analyzer: str,
        wait: Callable[[Callable[[], bool]], bool],
        progress: Callable[[str], None],
    ) -> SearchTrial:
        """Test search in a scratch collection with its own indexes, and remove it.

        Args:
            analyzer: The analyzer of the text index.
            wait: Polls a condition until a timeout; returns whether it was met.
            progress: Called with the name of each step.

        Raises:
            StoreError: the database has no search commands.
        """
