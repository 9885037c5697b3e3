"""The store itself: its parts put together."""

from __future__ import annotations

from pathlib import Path

from edenmem.store.sqlite.apply.changes import Changes
from edenmem.store.sqlite.core.connections import Connections
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

    Nothing is opened before it is needed, and the file is made by `Database.initialise` alone.
    Threads may share a store; after a fork the child opens connections of its own.
    """

    def __init__(self, path: Path, *, busy_timeout: float = 10.0, read_only: bool = False) -> None:
        self.connections = Connections(Path(path), busy_timeout=busy_timeout, read_only=read_only)
        self.database = Database(self.connections)
        self.host = Host(self.connections)
        self.contexts = Contexts(self.connections)
        self.tokens = Tokens(self.connections)
        self.memory = Memory(self.connections)
        self.history = History(self.connections)
        self.changes = Changes(self.connections)
        self.propagation = Propagation(self.connections)
        self.log = AuditLog(self.connections)
        self.formations = Formations(self.connections)
        self.usage = Usage(self.connections)
        self.cold = ColdSessions(self.connections)
        self.search = Search(self.connections)
        self.vectors = Vectors(self.connections)
        self.switches = ModelSwitches(self.connections)
        self.indexes = Indexes(self.connections)
        self.statistics = Statistics(self.connections)
        self.walk = Walk(self.connections)
        self.erasure = Erasure(self.connections, self.walk)
        self.migrations = Migrations(self.connections)
