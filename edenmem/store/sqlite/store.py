"""The SQLite store, composed of its parts.

A part is imported on first use: loading all parts takes longer than most commands.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from edenmem.store.sqlite.core.connections import Connections

if TYPE_CHECKING:
    from edenmem.store.sqlite.apply.changes import Changes
    from edenmem.store.sqlite.core.database import Database
    from edenmem.store.sqlite.core.migrations import Migrations
    from edenmem.store.sqlite.erase.erasure import Erasure
    from edenmem.store.sqlite.formations.cold import ColdSessions
    from edenmem.store.sqlite.formations.formations import Formations
    from edenmem.store.sqlite.formations.usage import Usage
    from edenmem.store.sqlite.host.contexts import Contexts
    from edenmem.store.sqlite.host.host import Host
    from edenmem.store.sqlite.host.tokens import Tokens
    from edenmem.store.sqlite.memory.history import History
    from edenmem.store.sqlite.memory.log import AuditLog
    from edenmem.store.sqlite.memory.memory import Memory, Propagation
    from edenmem.store.sqlite.search.indexes import Indexes
    from edenmem.store.sqlite.search.search import Search
    from edenmem.store.sqlite.search.switches import ModelSwitches
    from edenmem.store.sqlite.search.vectors import Vectors
    from edenmem.store.sqlite.walk.statistics import Statistics
    from edenmem.store.sqlite.walk.walk import Walk


class SqliteStore:
    """Memory in one SQLite file; see `edenmem.store.protocol.store.Store` for its parts.

    The file is opened on first use, and only `Database.initialize` creates it. Threads may share a
    store; after a fork the child opens its own connections.
    """

    # ruff: noqa: D102 - the protocol documents the parts.

    def __init__(self, path: Path, *, busy_timeout: float = 10.0, read_only: bool = False) -> None:
        self.connections = Connections(Path(path), busy_timeout=busy_timeout, read_only=read_only)

    @cached_property
    def database(self) -> Database:
        from edenmem.store.sqlite.core.database import Database

        return Database(self.connections)

    @cached_property
    def host(self) -> Host:
        from edenmem.store.sqlite.host.host import Host

        return Host(self.connections)

    @cached_property
    def tokens(self) -> Tokens:
        from edenmem.store.sqlite.host.tokens import Tokens

        return Tokens(self.connections)

    @cached_property
    def contexts(self) -> Contexts:
        from edenmem.store.sqlite.host.contexts import Contexts

        return Contexts(self.connections)

    @cached_property
    def memory(self) -> Memory:
        from edenmem.store.sqlite.memory.memory import Memory

        return Memory(self.connections)

    @cached_property
    def history(self) -> History:
        from edenmem.store.sqlite.memory.history import History

        return History(self.connections)

    @cached_property
    def changes(self) -> Changes:
        from edenmem.store.sqlite.apply.changes import Changes

        return Changes(self.connections)

    @cached_property
    def propagation(self) -> Propagation:
        from edenmem.store.sqlite.memory.memory import Propagation

        return Propagation(self.connections)

    @cached_property
    def log(self) -> AuditLog:
        from edenmem.store.sqlite.memory.log import AuditLog

        return AuditLog(self.connections)

    @cached_property
    def formations(self) -> Formations:
        from edenmem.store.sqlite.formations.formations import Formations

        return Formations(self.connections)

    @cached_property
    def usage(self) -> Usage:
        from edenmem.store.sqlite.formations.usage import Usage

        return Usage(self.connections)

    @cached_property
    def cold(self) -> ColdSessions:
        from edenmem.store.sqlite.formations.cold import ColdSessions

        return ColdSessions(self.connections)

    @cached_property
    def search(self) -> Search:
        from edenmem.store.sqlite.search.search import Search

        return Search(self.connections)

    @cached_property
    def vectors(self) -> Vectors:
        from edenmem.store.sqlite.search.vectors import Vectors

        return Vectors(self.connections)

    @cached_property
    def switches(self) -> ModelSwitches:
        from edenmem.store.sqlite.search.switches import ModelSwitches

        return ModelSwitches(self.connections)

    @cached_property
    def indexes(self) -> Indexes:
        from edenmem.store.sqlite.search.indexes import Indexes

        return Indexes(self.connections)

    @cached_property
    def statistics(self) -> Statistics:
        from edenmem.store.sqlite.walk.statistics import Statistics

        return Statistics(self.connections)

    @cached_property
    def walk(self) -> Walk:
        from edenmem.store.sqlite.walk.walk import Walk

        return Walk(self.connections)

    @cached_property
    def erasure(self) -> Erasure:
        from edenmem.store.sqlite.erase.erasure import Erasure

        return Erasure(self.connections, self.walk)

    @cached_property
    def migrations(self) -> Migrations:
        from edenmem.store.sqlite.core.migrations import Migrations

        return Migrations(self.connections)
