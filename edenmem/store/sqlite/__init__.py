"""Memory in one SQLite file, including full text and vectors.

May import: sqlite.apply, sqlite.core, sqlite.erase, sqlite.formations, sqlite.host, sqlite.memory,
sqlite.search, sqlite.walk.
"""

from edenmem.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
