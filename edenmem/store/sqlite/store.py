"""The SQLite store, composed of its parts.

A part is imported on first use: loading all parts takes longer than most commands.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    from edenmem.store.sqlite.memory.told import Told
    from edenmem.store.sqlite.search.indexes import Indexes
    from edenmem.store.sqlite.search.search import Search
    from edenmem.store.sqlite.search.switches import ModelSwitches
    from edenmem.store.sqlite.search.vectors import Vectors
    from edenmem.store.sqlite.walk.statistics import Statistics
    from edenmem.store.sqlite.walk.walk import Walk


#: The module of each part.
_MODULES = {
    "database": "core.database",
    "host": "host.host",
    "tokens": "host.tokens",
    "contexts": "host.contexts",
    "memory": "memory.memory",
    "history": "memory.history",
    "changes": "apply.changes",
    "propagation": "memory.memory",
    "log": "memory.log",
    "told": "memory.told",
    "formations": "formations.formations",
    "usage": "formations.usage",
    "cold": "formations.cold",
    "search": "search.search",
    "vectors": "search.vectors",
    "switches": "search.switches",
    "indexes": "search.indexes",
    "statistics": "walk.statistics",
    "walk": "walk.walk",
    "erasure": "erase.erasure",
    "migrations": "core.migrations",
}


class SqliteStore:
    """Memory in one SQLite file; see `edenmem.store.protocol.store.Store` for its parts.

    The file is opened on first use, and only `Database.initialize` creates it. Threads may share a
    store; after a fork the child opens its own connections.
    """

    database: Database
    host: Host
    tokens: Tokens
    contexts: Contexts
    memory: Memory
    history: History
    changes: Changes
    propagation: Propagation
    log: AuditLog
    told: Told
    formations: Formations
    usage: Usage
    cold: ColdSessions
    search: Search
    vectors: Vectors
    switches: ModelSwitches
    indexes: Indexes
    statistics: Statistics
    walk: Walk
    erasure: Erasure
    migrations: Migrations

    def __init__(self, path: Path, *, busy_timeout: float = 10.0, read_only: bool = False) -> None:
        self.connections = Connections(Path(path), busy_timeout=busy_timeout, read_only=read_only)

    def __getattr__(self, name: str) -> Any:
        """Import a part on its first use, and keep it."""
        if name not in _MODULES:
            raise AttributeError(name)
        module = import_module(f"edenmem.store.sqlite.{_MODULES[name]}")
        part = getattr(module, SqliteStore.__annotations__[name])(self.connections)
        setattr(self, name, part)
        return part
