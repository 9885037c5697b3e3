"""A store in a file of its own."""

from __future__ import annotations

import pytest

from edenmem.store.sqlite import SqliteStore


@pytest.fixture
def opened(sqlite_store: SqliteStore) -> SqliteStore:
    """An empty store."""
    return sqlite_store
