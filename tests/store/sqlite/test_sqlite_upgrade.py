"""A file that later schema steps upgrade, and a file of another first step."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from edenmem.errors import StoreError
from edenmem.store.sqlite import SqliteStore
from tests.support.schema_steps import add_steps


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A file of this version at ``old.db``, before the version has more steps."""
    store = SqliteStore(tmp_path / "old.db")
    store.database.initialize()
    store.database.close()
    folder = tmp_path / "steps"
    folder.mkdir()
    return add_steps(monkeypatch, folder)


def shape(path: Path) -> set[tuple[Any, ...]]:
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT type, name, tbl_name FROM sqlite_schema").fetchall()
        tables = [name for kind, name, _ in rows if kind == "table"]
        columns = {
            (table, column[1], column[2], column[3])
            for table in tables
            for column in connection.execute(f"PRAGMA table_xinfo('{table}')")
        }
    connection.close()
    return {*rows, *columns}


def test_an_older_file_becomes_what_a_new_file_is(tmp_path: Path, steps: list[str]) -> None:
    old, new = SqliteStore(tmp_path / "old.db"), SqliteStore(tmp_path / "new.db")
    before = [step for step in old.migrations.schema() if step.applied_at is not None]
    assert [step.number for step in before] == [1]
    assert list(old.migrations.migrate_up()) == steps
    new.database.initialize()
    new.database.close()
    assert old.migrations.schema()[:1] == before
    assert shape(tmp_path / "old.db") == shape(tmp_path / "new.db")
    assert list(old.migrations.migrate_up()) == []
    assert list(old.migrations.migrate_down(1)) == steps[::-1]
    old.database.close()


def test_nothing_is_upgraded_unless_it_is_asked_for(tmp_path: Path, steps: list[str]) -> None:
    """Older processes may still be at work on the file."""
    path = tmp_path / "old.db"
    before = path.read_bytes()
    for call in (
        lambda s: s.database.initialize(),
        lambda s: s.database.info(),
        lambda s: list(s.host.agents()),
    ):
        store = SqliteStore(path)
        with pytest.raises(StoreError, match="schema version 1") as caught:
            call(store)
        assert "edenmem migrate up" in (caught.value.hint or "")
        assert [s.name for s in store.migrations.schema() if s.applied_at is None] == steps
        store.database.close()
    assert path.read_bytes() == before


def test_two_upgrade_at_once_and_each_step_is_taken_once(tmp_path: Path, steps: list[str]) -> None:
    taken: list[str] = []
    path = tmp_path / "old.db"
    threads = [
        threading.Thread(target=lambda: taken.extend(SqliteStore(path).migrations.migrate_up()))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == steps


def test_there_is_nothing_to_upgrade_before_there_is_a_file(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "none.db")
    assert not [step for step in store.migrations.schema() if step.applied_at is not None]
    with pytest.raises(StoreError, match="no edenmem database"):
        store.migrations.migrate_up()


@pytest.mark.parametrize("change", ["digest = 'other'", "name = 'other'"])
def test_a_file_of_another_first_step_is_refused(tmp_path: Path, change: str) -> None:
    path = tmp_path / "memory.db"
    store = SqliteStore(path)
    store.database.initialize()
    store.database.close()
    with sqlite3.connect(path) as connection:
        if change.startswith("name"):  # before the ledger had digests
            connection.execute("ALTER TABLE migrations DROP COLUMN digest")
        else:
            connection.execute(f"UPDATE migrations SET {change}")
    connection.close()
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="unreleased edenmem"):
        list(store.host.agents())
    store.database.close()
