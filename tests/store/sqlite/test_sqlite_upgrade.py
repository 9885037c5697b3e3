"""An older file on its way to the newest schema: from the oldest, from each in the middle."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from edenmem.errors import StoreError
from edenmem.models.ids import new_id
from edenmem.models.memory import content_hash
from edenmem.store.common import migrations
from edenmem.store.sqlite import SqliteStore
from edenmem.store.sqlite.core.schema import APPLICATION_ID

STEPS = migrations.migrations()
FIRST_TEXT = "Written by another program."


def older_file(path: Path, version: int) -> None:
    """A file as an edenmem of that version left it, with a fact in it."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    for step in STEPS:
        if step.number <= version:
            step.up("sqlite", connection)
            row = (step.number, step.name, step.number * 1000)
            connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", row)
            connection.execute(f"PRAGMA user_version = {step.number}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    agent = "a" * 24
    connection.execute(
        "INSERT INTO scopes (agent_id, kind, owner) VALUES (?, 'agent', '')", (agent,)
    )
    connection.execute(
        "INSERT INTO facts (id, scope_id, content, hash, formed_at, version, access_count, private)"
        " VALUES (?, 1, ?, '', 0, 0, 0, 0)",
        (new_id(), FIRST_TEXT),
    )
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


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


@pytest.mark.parametrize("version", [step.number for step in STEPS[:-1]])
def test_each_older_version_becomes_what_a_new_file_is(tmp_path: Path, version: int) -> None:
    older_file(tmp_path / "old.db", version)
    old, new = SqliteStore(tmp_path / "old.db"), SqliteStore(tmp_path / "new.db")
    before = [step for step in old.migrations.schema() if step.applied_at is not None]
    assert [step.number for step in before] == [s.number for s in STEPS if s.number <= version]
    assert list(old.migrations.migrate_up()) == [s.name for s in STEPS if s.number > version]
    new.database.initialize()
    new.database.close()
    assert old.migrations.schema()[: len(before)] == before
    assert shape(tmp_path / "old.db") == shape(tmp_path / "new.db")
    assert list(old.migrations.migrate_up()) == []
    old.database.close()


def test_a_damaged_text_does_not_stop_an_upgrade_or_its_reversal(tmp_path: Path) -> None:
    """`doctor` reports the text, but only in an up-to-date file."""
    path = tmp_path / "memory.db"
    older_file(path, 20)
    with sqlite3.connect(path) as file:
        file.execute("UPDATE facts SET content = CAST(x'426f61747320ff20' AS TEXT)")
    store = SqliteStore(path)

    def rows_with(query: str) -> list[int]:
        rows = file.execute("SELECT rowid FROM facts_text WHERE facts_text MATCH ?", (query,))
        return [number for (number,) in rows]

    store.migrations.migrate_up()
    assert rows_with("1\ue000boat") == [1]
    store.migrations.migrate_down(20)
    assert rows_with("scope : s1 AND content : boats") == [1]
    store.database.close()
    file.close()


def test_facts_of_other_programs_are_given_what_they_lack(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    older_file(path, 3)
    store = SqliteStore(path)
    store.migrations.migrate_up()
    with store.connections.reading() as connection:
        row = connection.execute("SELECT hash, version FROM facts").fetchone()
    assert row == (content_hash(FIRST_TEXT), 1)
    store.database.close()


def test_nothing_is_upgraded_unless_it_is_asked_for(tmp_path: Path) -> None:
    """Older processes may still be at work on the file."""
    path = tmp_path / "old.db"
    older_file(path, 3)
    before = path.read_bytes()
    for call in (
        lambda s: s.database.initialize(),
        lambda s: s.database.info(),
        lambda s: list(s.host.agents()),
    ):
        store = SqliteStore(path)
        with pytest.raises(StoreError, match="schema version 3") as caught:
            call(store)
        assert "edenmem migrate up" in (caught.value.hint or "")
        assert len([s for s in store.migrations.schema() if s.applied_at is None]) == len(STEPS) - 3
        store.database.close()
    assert path.read_bytes() == before


def test_two_upgrade_at_once_and_each_step_is_taken_once(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    older_file(path, 2)
    taken: list[str] = []
    threads = [
        threading.Thread(target=lambda: taken.extend(SqliteStore(path).migrations.migrate_up()))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == [step.name for step in STEPS if step.number > 2]


def test_a_step_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.db"
    older_file(path, 3)
    before = shape(path)

    def fail(self: migrations.Migration, kind: str, handle: sqlite3.Connection) -> None:
        handle.execute("CREATE TABLE half (x)")
        handle.execute("CREATE TABLE half (x)")

    store = SqliteStore(path)
    with monkeypatch.context() as patch:
        patch.setattr(migrations.Migration, "up", fail)
        with pytest.raises(StoreError):
            store.migrations.migrate_up()
    assert shape(path) == before
    assert store.migrations.migrate_up()
    store.database.close()


def test_there_is_nothing_to_upgrade_before_there_is_a_file(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "none.db")
    assert not [step for step in store.migrations.schema() if step.applied_at is not None]
    with pytest.raises(StoreError, match="no edenmem database"):
        store.migrations.migrate_up()
