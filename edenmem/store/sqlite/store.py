"""The store itself: its parts put together, and what is about the file as a whole."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from edenmem.memory import Needs, State
from edenmem.models.changes import ChangeResult, ChangeSet
from edenmem.models.ids import utc_now
from edenmem.models.indexes import Preparation
from edenmem.models.scope import Scope
from edenmem.models.switch import is_staged
from edenmem.store.common import migrations
from edenmem.store.common.whole import Whole
from edenmem.store.protocol.database import StoreInfo
from edenmem.store.sqlite.apply.changes import apply_changes
from edenmem.store.sqlite.apply.state import load_state
from edenmem.store.sqlite.core import scopes
from edenmem.store.sqlite.core.codec import to_ms
from edenmem.store.sqlite.core.database import Database
from edenmem.store.sqlite.core.migrating import Migrating
from edenmem.store.sqlite.core.part import json_array
from edenmem.store.sqlite.core.schema import FileState, file_state
from edenmem.store.sqlite.erase.erasing import Erasing
from edenmem.store.sqlite.formations.cold import Cold
from edenmem.store.sqlite.formations.formations import Formations
from edenmem.store.sqlite.formations.ledger import Ledger
from edenmem.store.sqlite.host.host import Host
from edenmem.store.sqlite.host.messages import Messages
from edenmem.store.sqlite.host.naming import Naming
from edenmem.store.sqlite.memory import facts
from edenmem.store.sqlite.memory.auditing import Auditing
from edenmem.store.sqlite.memory.history import Chronicle
from edenmem.store.sqlite.memory.memory import MemoryReads
from edenmem.store.sqlite.search.candidates import Candidates
from edenmem.store.sqlite.search.indexing import Indexing
from edenmem.store.sqlite.search.staleness import Staleness
from edenmem.store.sqlite.search.switching import Switching, switch_of
from edenmem.store.sqlite.walk.dumping import Dumping
from edenmem.store.sqlite.walk.integrity import IntegrityChecks
from edenmem.store.sqlite.walk.loading import Loading
from edenmem.store.sqlite.walk.statistics import StatisticsPart

_COUNTED = (
    "agents",
    "users",
    "sessions",
    "messages",
    "facts",
    "reflections",
    "consolidations",
    "policies",
    "formations",
    "history",
    "audit",
)


class SqliteStore(
    Erasing,
    Host,
    Messages,
    Naming,
    MemoryReads,
    Chronicle,
    Auditing,
    Formations,
    Cold,
    Ledger,
    Candidates,
    Staleness,
    StatisticsPart,
    Switching,
    Indexing,
    Dumping,
    Loading,
    IntegrityChecks,
    Migrating,
    Whole,
):
    """Memory in one SQLite file; see `edenmem.store.protocol.store.Store` for its methods.

    Nothing is opened before it is needed, and the file is made by `initialise` alone. Threads may
    share a store; after a fork the child opens connections of its own.
    """

    def __init__(self, path: Path, *, busy_timeout: float = 10.0, read_only: bool = False) -> None:
        self._db = Database(Path(path), busy_timeout=busy_timeout, read_only=read_only)

    # -- the file ----------------------------------------------------------------------------

    def info(self) -> StoreInfo:
        path = self._db.path
        there = StoreInfo(
            kind="sqlite",
            location=str(path),
            initialised=False,
            server_version=f"SQLite {sqlite3.sqlite_version}",
        )
        if file_state(path) in (FileState.MISSING, FileState.EMPTY):
            return there
        with self._db.reading() as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (page_size,) = connection.execute("PRAGMA page_size").fetchone()
            counts = {
                table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in _COUNTED
            }
        return StoreInfo(
            kind="sqlite",
            location=str(path),
            initialised=True,
            schema_version=str(version),
            server_version=there.server_version,
            size_bytes=pages * page_size,
            counts=counts,
        )

    def initialise(self) -> Sequence[str]:
        return self._db.create()

    def preparation(self) -> Preparation:
        path = self._db.path
        match file_state(path):
            case FileState.MISSING | FileState.EMPTY as state:
                steps = [f"migration {step.name}" for step in migrations.pending({})]
                made = [f"file {path}"] if state is FileState.MISSING else []
                return Preparation(steps=(*made, *steps))
            case FileState.OLDER:
                return Preparation(
                    warnings=(f"{path} has an older schema; 'edenmem migrate up' updates it",)
                )
            case _:
                return Preparation()

    def close(self) -> None:
        self._db.close()

    # -- changing memory ---------------------------------------------------------------------

    def apply(self, changes: ChangeSet) -> list[ChangeResult]:
        if not changes.changes:
            return []
        with self._db.writing() as connection:
            return apply_changes(connection, changes)

    def load_state(self, needs: Needs, *, at: datetime) -> State:
        with self._db.reading() as connection:
            return load_state(connection, needs, at)

    def track_access(self, fact_ids: Sequence[str], at: datetime) -> None:
        if not fact_ids:
            return
        with self._db.writing() as connection:
            connection.execute(
                "UPDATE facts SET access_count = access_count + 1,"
                " last_accessed_at = max(coalesce(last_accessed_at, ?1), ?1)"
                " WHERE id IN (SELECT value FROM json_each(?2))",
                (to_ms(at), json_array(fact_ids)),
            )

    def set_vectors(
        self, vectors: Mapping[str, tuple[str, bytes]], *, model: str, staged: bool = False
    ) -> int:
        if not vectors:
            return 0
        written, now = 0, to_ms(utc_now())
        with self._db.writing() as connection:
            switch = switch_of(connection)
            put = facts.put_staged if is_staged(switch, model, must=staged) else facts.put_own
            for fact_id, (digest, vector) in vectors.items():
                stored = facts.find_fact(connection, fact_id)
                if stored is not None and stored.fact.hash == digest:
                    put(connection, stored, model, vector, now)
                    written += 1
        return written

    def vector_models(self, scopes_: Sequence[Scope] | None = None) -> dict[str, int]:
        select = (
            "SELECT coalesce(m.name, '') AS model, count(*) FROM facts f"
            " LEFT JOIN embedding_models m USING (model_id)"
        )
        with self._db.reading() as connection:
            if scopes_ is None:
                return dict(connection.execute(f"{select} GROUP BY model"))
            numbers = scopes.numbers_of(connection, scopes_).values()
            return dict(
                connection.execute(
                    f"{select} WHERE f.scope_id IN (SELECT value FROM json_each(?)) GROUP BY model",
                    (json_array(numbers),),
                )
            )
