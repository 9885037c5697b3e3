"""The file: who may read it, what is refused, and what is said about it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edenmem.errors import ConflictError, ExitCode, InputError, StoreError, StoreReadOnly
from edenmem.models.changes import AddFact, WritePolicy
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.store.common import migrations
from edenmem.store.sqlite import SqliteStore
from edenmem.store.sqlite.core.schema import SCHEMA_VERSION
from tests.support.builders import NOW, change_set, make_agent, make_fact, make_policy
from tests.support.memory import add_fact, add_facts, applied, facts_of, set_policy

SCOPE = Scope.user(new_id(), new_id())
MIGRATIONS = [f"migration {one.name}" for one in migrations.migrations()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder with spaces ?#%" / "memory.db"


@pytest.fixture
def opened(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path, busy_timeout=0.05)
    store.database.initialize()
    yield store
    store.database.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def staged(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


# -- making and opening --------------------------------------------------------------------------


def test_nothing_is_made_before_it_is_asked_for(path: Path) -> None:
    store = SqliteStore(path)
    assert not store.database.info().initialized
    with pytest.raises(StoreError, match="no edenmem database") as caught:
        store.host.agent(new_id())
    assert "edenmem init" in (caught.value.hint or "")
    assert caught.value.exit_code is ExitCode.UNAVAILABLE
    with pytest.raises(StoreError, match="no edenmem database"):
        store.host.add_agent(make_agent())
    assert not path.parent.exists()


def test_initializing_says_what_it_made(path: Path) -> None:
    store = SqliteStore(path)
    made = [f"folder {path.parent}", f"file {path}", *MIGRATIONS]
    assert list(store.database.initialize()) == made
    info = store.database.info()
    assert (info.initialized, info.location) == (True, str(path))
    assert info.schema_version == str(SCHEMA_VERSION)
    assert info.size_bytes == path.stat().st_size
    store.database.close()


def test_only_the_owner_may_read_any_of_the_files(path: Path) -> None:
    previous = os.umask(0)
    try:
        store = SqliteStore(path)
        store.database.initialize()
        add_fact(store, SCOPE)
        files = [path, staged(path, "-wal"), staged(path, "-shm")]
        assert [mode(file) for file in files] == [0o600] * 3
        assert mode(path.parent) == 0o700
        store.database.close()
    finally:
        os.umask(previous)


def test_an_empty_file_may_be_initialized(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    store = SqliteStore(path)
    assert not store.database.info().initialized
    assert store.database.initialize() == MIGRATIONS
    store.database.close()


def test_a_closed_store_opens_again_when_it_is_used(opened: SqliteStore) -> None:
    fact = add_fact(opened, SCOPE)
    opened.database.close()
    opened.database.close()
    assert opened.memory.fact(fact.id) == fact


def test_a_file_that_changes_under_a_store_is_noticed(tmp_path: Path) -> None:
    """FAILURES 118: writes went to a file without a name, or its log into the new file."""
    path, away = tmp_path / "memory.db", tmp_path / "away.db"
    other = SqliteStore(tmp_path / "other.db")
    other.database.initialize()
    theirs = add_fact(other, SCOPE)
    other.database.close()

    for change in ("moved", "replaced", "deleted", "emptied"):
        store = SqliteStore(path)
        store.database.initialize()
        ours = add_fact(store, SCOPE)
        if change == "deleted":
            path.unlink()
        elif change == "emptied":
            os.truncate(path, 0)
        else:
            path.rename(away)
        if change == "replaced":
            shutil.copy(tmp_path / "other.db", path)
        with pytest.raises(StoreError, match="was replaced, moved or deleted") as caught:
            store.memory.fact(ours.id)
        assert "put the file back" in (caught.value.hint or "")
        with pytest.raises(StoreError, match="was replaced, moved or deleted"):
            add_fact(store, SCOPE)
        if change == "moved":
            away.rename(path)
            assert store.memory.fact(ours.id) == ours
            path.rename(away)
        store.database.close()
        if change in ("moved", "replaced"):
            old = SqliteStore(away)  # its log had another name
            assert old.memory.fact(ours.id) == ours
            old.database.close()
        if change == "replaced":
            new = SqliteStore(path)
            assert (new.memory.fact(theirs.id), new.memory.fact(ours.id)) == (theirs, None)
            assert not list(new.database.file_faults())
            new.database.close()
        for file in (path, away, staged(path, "-wal"), staged(path, "-shm")):
            file.unlink(missing_ok=True)


def test_a_write_to_a_replaced_file_is_not_confirmed(
    opened: SqliteStore, path: Path, tmp_path: Path
) -> None:
    """FAILURES 118: the file may go between the beginning of a transaction and its end."""
    before = add_fact(opened, SCOPE)
    with pytest.raises(StoreError, match="replaced"), opened.connections.writing():
        path.rename(tmp_path / "away.db")
    (tmp_path / "away.db").rename(path)
    assert opened.memory.fact(before.id) == before


@pytest.mark.parametrize("again", range(6))  # it went wrong one time in ten
def test_those_who_initialize_at_once_make_one_database(path: Path, again: int) -> None:
    stores = [SqliteStore(path) for _ in range(4)]
    threads = [threading.Thread(target=store.database.initialize) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        assert store.host.add_agent(make_agent())
        store.database.close()
    assert len(list(stores[0].host.agents())) == 4
    stores[0].database.close()


# -- what is not ours ----------------------------------------------------------------------------


def foreign_text(path: Path) -> None:
    path.write_text("Dear diary, this is no database at all. " * 20)


def foreign_database(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("PRAGMA journal_mode = WAL")
    other.execute("CREATE TABLE facts (id TEXT)")
    other.close()


def short_file(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0")


def newer_schema(path: Path) -> None:
    store = SqliteStore(path)
    store.database.initialize()
    store.database.close()
    ours = sqlite3.connect(path)
    ours.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    ours.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    ours.close()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (foreign_text, "is not an edenmem database"),
        (foreign_database, "is not an edenmem database"),
        (short_file, "is not an edenmem database"),
        (newer_schema, "has schema version"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_not_ours_is_refused_and_left_as_it_is(path: Path, make, said: str) -> None:
    path.parent.mkdir()
    make(path)
    before = path.read_bytes()
    for call in (
        lambda store: store.database.info(),
        lambda store: store.host.agent(new_id()),
        lambda store: store.host.add_agent(make_agent()),
        lambda store: store.database.initialize(),
    ):
        store = SqliteStore(path)
        with pytest.raises(StoreError, match=said) as caught:
            call(store)
        assert caught.value.hint
        store.database.close()
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_an_older_schema_names_the_command(opened: SqliteStore, path: Path) -> None:
    opened.database.close()
    ours = sqlite3.connect(path)
    ours.execute("PRAGMA user_version = 0")
    ours.close()
    with pytest.raises(StoreError, match="schema version 0") as caught:
        SqliteStore(path).host.agent(new_id())
    assert "migrate up" in (caught.value.hint or "")


def test_a_folder_and_a_pipe_are_not_files(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path, pipe):
        for call in (SqliteStore(path).database.info, SqliteStore(path).database.initialize):
            with pytest.raises(StoreError, match="is not a file"):
                call()
    with pytest.raises(StoreError, match="part of its path is a file"):
        SqliteStore(Path(__file__) / "memory.db").database.initialize()


# -- what goes wrong -----------------------------------------------------------------------------


def test_a_database_that_another_holds_is_reported_as_locked(
    opened: SqliteStore, path: Path
) -> None:
    fact = add_fact(opened, SCOPE)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreError, match="is locked by another process") as caught:
            add_fact(opened, SCOPE, "More.")
        assert "busy_timeout" in (caught.value.hint or "")
        assert facts_of(opened, SCOPE) == [fact]  # readers do not wait
    finally:
        other.close()
    add_fact(opened, SCOPE, "More.")


def test_a_thread_that_holds_the_database_is_reported_too(opened: SqliteStore) -> None:
    with opened.connections.writing(), pytest.raises(StoreError, match="by another thread"):
        opened.host.add_agent(make_agent())
    assert opened.host.add_agent(make_agent())


def test_a_store_for_reading_cannot_write(opened: SqliteStore, path: Path) -> None:
    fact = add_fact(opened, SCOPE)
    reader = SqliteStore(path, read_only=True)
    assert facts_of(reader, SCOPE) == [fact]
    for call in (
        lambda: reader.changes.apply(change_set(AddFact(fact=make_fact(SCOPE, "x")))),
        lambda: reader.host.add_agent(make_agent()),
        lambda: reader.search.track_access([fact.id], fact.formed_at),
        reader.database.initialize,
    ):
        with pytest.raises(StoreError, match="open for reading only"):
            call()
    with reader.connections.reading() as connection, pytest.raises(sqlite3.OperationalError):
        connection.execute("DELETE FROM facts")
    reader.database.close()
    assert facts_of(opened, SCOPE) == [fact]


def test_a_database_on_a_read_only_disk_can_be_read(
    opened: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fact = add_fact(opened, SCOPE)
    opened.database.close()
    assert not staged(path, "-wal").exists()
    monkeypatch.setattr(os, "access", lambda *_: False)
    reader = SqliteStore(path, read_only=True)
    assert facts_of(reader, SCOPE) == [fact]
    assert not staged(path, "-shm").exists()
    reader.database.close()


def closed_to_writers(*paths: Path) -> Callable[[object, int], bool]:
    """An `os.access` for which these files and folders may not be written."""
    return lambda place, wanted: wanted != os.W_OK or Path(str(place)) not in paths


@pytest.mark.parametrize("closed", ["folder", "file", "both"])
def test_where_nothing_may_be_written_an_ordinary_store_reads_and_refuses_to_write(
    opened: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    fact = add_fact(opened, SCOPE)
    opened.database.close()
    places = {"folder": [path.parent], "file": [path], "both": [path, path.parent]}[closed]
    monkeypatch.setattr(os, "access", closed_to_writers(*places))
    assert facts_of(opened, SCOPE) == [fact]
    assert opened.database.info().initialized
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(StoreReadOnly, match="cannot be written") as caught:
        add_fact(opened, SCOPE, "Bruno sings.")
    assert "who owns the file" in (caught.value.hint or "")
    opened.database.close()
    monkeypatch.undo()
    add_fact(opened, SCOPE, "Bruno sings.")


def test_what_another_process_writes_meanwhile_is_read_through_its_log(
    opened: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = [add_fact(opened, SCOPE)]  # the connection stays open
    reader = SqliteStore(path)
    monkeypatch.setattr(os, "access", closed_to_writers(path, path.parent, staged(path, "-wal")))
    assert facts_of(reader, SCOPE) == facts
    reader.database.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_folder_that_may_not_be_written_is_said_to_be_so(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    with pytest.raises(StoreError, match="cannot be made"):
        SqliteStore(folder / "memory.db").database.initialize()


def test_a_file_that_may_not_be_written_is_said_to_be_so(
    opened: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = opened.connections._connect
    opened.database.close()
    monkeypatch.setattr(opened.connections, "_connect", lambda *, writable: connect(writable=False))
    with pytest.raises(StoreReadOnly, match="cannot be written"):
        add_fact(opened, SCOPE)


def test_a_full_disk_undoes_the_whole_set(opened: SqliteStore) -> None:
    known = add_fact(opened, SCOPE)
    with opened.connections.reading() as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    facts = [make_fact(SCOPE, f"{n} " + "long " * 2000) for n in range(100)]
    with pytest.raises(StoreError, match="the disk is full"):
        add_facts(opened, *facts)
    assert facts_of(opened, SCOPE) == [known]
    assert opened.database.info().counts["audit"] == 1
    add_facts(opened, facts[0])


def test_only_what_may_be_lost_is_written_without_waiting_for_the_disk(opened: SqliteStore) -> None:
    def level(connection: sqlite3.Connection) -> int:
        return int(connection.execute("PRAGMA synchronous").fetchone()[0])

    full, normal = 2, 1
    with opened.connections.writing() as connection:
        assert level(connection) == full
    with opened.connections.writing(durable=False) as connection:
        assert level(connection) == normal
    with pytest.raises(KeyError), opened.connections.writing(durable=False):
        raise KeyError
    with opened.connections.writing() as again:
        assert again is connection
        assert level(again) == full


def test_a_damaged_file_is_said_to_be_so(opened: SqliteStore, path: Path) -> None:
    add_facts(opened, *(make_fact(SCOPE, f"fact {n} " + "x" * 900) for n in range(300)))
    opened.database.close()
    with path.open("r+b") as file:
        file.seek(32_768)
        file.write(os.urandom(path.stat().st_size - 32_768))
    with pytest.raises(StoreError, match="is damaged") as caught:
        facts_of(opened, SCOPE)
    assert "--salvage" in (caught.value.hint or "")


def test_what_no_database_can_hold_is_an_input_error(opened: SqliteStore) -> None:
    with pytest.raises(InputError, match="surrogates"):
        opened.host.add_agent(make_agent("a\ud800"))
    assert list(opened.host.agents()) == []


def test_a_policy_with_the_id_of_another_scopes_does_not_replace_it(opened: SqliteStore) -> None:
    first = set_policy(opened, SCOPE, memory_instructions="Remember plants.")
    foreign = make_policy(Scope.user(SCOPE.agent_id, new_id()), id=first.id)
    with pytest.raises(ConflictError, match=first.id):
        applied(opened, WritePolicy(policy=foreign, expected_version=0, at=NOW))
    assert opened.memory.policies([SCOPE, foreign.home]) == {SCOPE: first}
