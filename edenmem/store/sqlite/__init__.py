"""Memory in one SQLite file: full text, vectors and all."""

from edenmem.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
