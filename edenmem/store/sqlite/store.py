"""The SQLite store, composed of its parts.

A part is imported on first use: loading all parts takes longer than most commands.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from edenmem.store.protocol.store import Store
from edenmem.store.sqlite.core.connections import Connections

#: The module and the class of each part.
_MODULES = {
    "database": ("core.database", "Database"),
    "host": ("host.host", "Host"),
    "tokens": ("host.tokens", "Tokens"),
    "contexts": ("host.host", "Contexts"),
    "memory": ("memory.memory", "Memory"),
    "history": ("memory.log", "History"),
    "changes": ("apply.changes", "Changes"),
    "log": ("memory.log", "AuditLog"),
    "told": ("memory.log", "Told"),
    "formations": ("formations.formations", "Formations"),
    "usage": ("formations.usage", "Usage"),
    "cold": ("formations.cold", "ColdSessions"),
    "search": ("search.search", "Search"),
    "vectors": ("search.vectors", "Vectors"),
    "switches": ("search.switches", "ModelSwitches"),
    "indexes": ("search.indexes", "Indexes"),
    "statistics": ("walk.statistics", "Statistics"),
    "walk": ("walk.walk", "Walk"),
    "erasure": ("walk.erasure", "Erasure"),
    "migrations": ("core.database", "Migrations"),
}


class SqliteStore(Store):
    """Memory in one SQLite file; see `edenmem.store.protocol.store.Store` for its parts.

    The file is opened on first use, and only `Database.initialize` creates it. Threads may share a
    store; after a fork the child opens its own connections.
    """

    def __init__(self, path: Path, *, busy_timeout: float = 10.0, read_only: bool = False) -> None:
        self.connections = Connections(Path(path), busy_timeout=busy_timeout, read_only=read_only)

    def __getattr__(self, name: str) -> Any:
        """Import a part on its first use, and keep it."""
        if name not in _MODULES:
            raise AttributeError(name)
        path, kind = _MODULES[name]
        part = getattr(import_module(f"edenmem.store.sqlite.{path}"), kind)(self.connections)
        setattr(self, name, part)
        return part
