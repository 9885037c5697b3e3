"""A server's memory, new for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from edenmem.store.sqlite import SqliteStore
from tests.server.town import Town, fill


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("town") / "town.db"
    store = SqliteStore(path)
    store.database.initialise()
    fill(store)
    store.database.close()
    return path


@pytest.fixture
def town_store(filled: Path, tmp_path: Path) -> Iterator[SqliteStore]:
    """A copy of the filled store."""
    shutil.copy(filled, tmp_path / "town.db")
    store = SqliteStore(tmp_path / "town.db")
    yield store
    store.database.close()


@pytest.fixture
def town(town_store: SqliteStore) -> Town:
    return Town(town_store)
