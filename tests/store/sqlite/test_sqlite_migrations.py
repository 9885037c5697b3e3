"""Migrations: found, ordered, frozen, run once, and again without harm; and files to upgrade."""

from __future__ import annotations

import ast
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from edenmem.errors import StoreError
from edenmem.store.common import migrations
from edenmem.store.sqlite import SqliteStore
from edenmem.store.sqlite.core.schema import SCHEMA_VERSION
from tests.support.builders import make_agent
from tests.support.schema_steps import add_steps

MIGRATIONS = [f"migration {one.name}" for one in migrations.migrations()]
GOOD = "NO_WAY_BACK = 'because'\ndef up_sqlite(c): c.append('s')\ndef up_mongo(d): d.append('m')\n"


def test_the_schema_version_is_that_of_the_newest() -> None:
    found = migrations.migrations()
    numbers = [one.number for one in found]
    assert numbers == sorted(set(numbers))
    assert found[-1].number == SCHEMA_VERSION


@pytest.mark.parametrize("migration", migrations.migrations(), ids=lambda one: one.name)
def test_migrations_are_frozen_code(migration: migrations.Migration) -> None:
    """One that imported a current model would change what it does with every release."""
    tree = ast.parse(migration.path.read_text())
    imported = {
        name.name if isinstance(node, ast.Import) else node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in node.names
    }
    assert not {name for name in imported if name.startswith("edenmem")}
    assert ast.get_docstring(tree)
    migration.load()


def test_every_migration_may_be_run_again() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)

    def schema() -> list[tuple[str, str]]:
        return connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()

    for migration in migrations.migrations():
        migration.up("sqlite", connection)
        first = schema()
        migration.up("sqlite", connection)
        assert schema() == first
    connection.close()


def test_they_are_found_in_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("0002_second", "0010_tenth", "0001_first", "notes", "01_short", "0003-dash"):
        (tmp_path / f"{name}.py").write_text(GOOD)
    found = migrations.migrations(tmp_path)
    assert [one.name for one in found] == ["0001_first", "0002_second", "0010_tenth"]
    rest = migrations.pending({"0001_first"}, tmp_path)
    assert [one.number for one in rest] == [2, 10]
    log: list[str] = []
    for one in found:
        one.up("sqlite", log)
        one.up("mongo", log)
    assert log == ["s", "m"] * 3


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"0001_a.py": GOOD, "0001_b.py": GOOD}, "migrations have the same number"),
        ({"0001_a.py": "def up_sqlite(c): ...\nNO_WAY_BACK = 'x'"}, "has no up_mongo"),
        ({"0001_a.py": GOOD.replace("'because'", "''")}, "neither down_sqlite"),
    ],
    ids=["same number", "no function", "no way back"],
)
def test_what_is_wrong_with_one_is_said(tmp_path: Path, files: dict[str, str], said: str) -> None:
    for name, code in files.items():
        (tmp_path / name).write_text(code)
    with pytest.raises(StoreError, match=said):
        migrations.migrations(tmp_path)[0].up("sqlite", [])


@pytest.mark.parametrize("has_file", [False, True])
def test_a_failed_step_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_file: bool
) -> None:
    def fail(self: migrations.Migration, kind: str, handle: sqlite3.Connection) -> None:
        handle.execute("CREATE TABLE half (x)")
        handle.execute("CREATE TABLE half (x)")

    store = SqliteStore(tmp_path / "memory.db")
    bring = store.database.initialize
    if has_file:
        store.database.initialize()
        (folder := tmp_path / "steps").mkdir()
        add_steps(monkeypatch, folder)
        bring = store.migrations.migrate_up
    before = store.migrations.schema()
    with monkeypatch.context() as patch:
        patch.setattr(migrations.Migration, "up", fail)
        with pytest.raises(StoreError):
            bring()
    assert store.migrations.schema() == before
    assert bring()
    assert store.host.add_agent(make_agent())
    store.database.close()


# -- a file that later steps upgrade, and a file of another first step ----------------------------


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
