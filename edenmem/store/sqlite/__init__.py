"""Memory in one SQLite file, including full text and vectors.

The parts are loaded by name. May import: protocol, sqlite.core.
"""

from edenmem.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
