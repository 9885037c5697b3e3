"""Scheduled backups are verified before they are published, and before old ones are removed."""

from __future__ import annotations

import gzip
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from edenmem.engine.doctor.report import CheckResult, State
from edenmem.engine.doctor.session import open_session
from edenmem.engine.exchange.exporter import BackupReport, ExportRequest, verify_backup
from edenmem.engine.exchange.exporter import back_up as write_backup
from edenmem.engine.exchange.files import PARTIAL, Source, open_for_writing
from edenmem.engine.exchange.folders import export_folder
from edenmem.engine.exchange.importer import import_records
from edenmem.errors import DiskFull, UsageError
from edenmem.models.backup import RecordKind
from edenmem.models.scope import Scope
from edenmem.settings.schema import BackupSettings, EmbeddingSettings, Settings
from edenmem.store.protocol.store import Store
from edenmem.store.sqlite import SqliteStore
from tests.store.contract.test_backup import fill
from tests.support.builders import NOW
from tests.support.disks import small_disk
from tests.support.memory import add_fact
from tests.support.runtime import make_runtime

pytestmark = pytest.mark.slow

ALL = ExportRequest()
DAY = timedelta(days=1)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def report_of(
    store: Store, folder: Path, at: datetime, keep: int = 0, request: ExportRequest = ALL
) -> BackupReport:
    return write_backup(make_runtime(store, clock=lambda: at), folder, request, keep=keep)


def back_up(
    store: Store, folder: Path, at: datetime, keep: int = 0, request: ExportRequest = ALL
) -> Path:
    return report_of(store, folder, at, keep, request).path


def test_the_newest_backups_are_kept_and_can_be_imported(
    open_store: Callable[[str], Store], tmp_path: Path
) -> None:
    store = open_store("sqlite")
    fill(store)
    folder = tmp_path / "new" / "backups"
    made = [back_up(store, folder, NOW + day * DAY, keep=2) for day in range(4)]
    assert names(folder) == sorted(path.name for path in made[2:])
    assert made[3].stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700

    late = back_up(store, folder, NOW, keep=1)  # files from the future do not count
    assert names(folder) == sorted([late.name, *(path.name for path in made[2:])])
    other = open_store("sqlite")
    with Source.open_file(str(late)) as source:
        report = import_records(make_runtime(other), source)
    assert report.total("added") > 20
    assert not report.damage


def test_only_verified_backups_of_the_same_series_are_removed(
    open_store: Callable[[str], Store], tmp_path: Path
) -> None:
    store, other = open_store("sqlite"), open_store("sqlite")
    fill(store)
    kept = {
        "a person's": tmp_path / "edenmem-backup.jsonl.gz",
        "another store's": back_up(other, tmp_path, NOW),
        "another selection's": back_up(
            store, tmp_path, NOW, request=ExportRequest(types=(RecordKind.FACT,))
        ),
        "cut off": back_up(store, tmp_path, NOW),
        "altered": back_up(store, tmp_path, NOW + timedelta(hours=1)),
        "not a backup": back_up(store, tmp_path, NOW + timedelta(hours=2)),
        "a link": back_up(store, tmp_path, NOW + timedelta(hours=3)),
    }
    kept["a person's"].write_text("mine")
    text = gzip.decompress(kept["altered"].read_bytes())
    kept["cut off"].write_bytes(kept["cut off"].read_bytes()[:-40])
    kept["altered"].write_bytes(gzip.compress(text.replace(b"garden", b"gordon", 1)))
    kept["not a backup"].write_bytes(gzip.compress(b'{"type":"fact"}\n'))
    aside = kept["a link"].rename(tmp_path / "aside")
    kept["a link"].symlink_to(aside)
    sound = back_up(store, tmp_path, NOW + timedelta(hours=4))
    assert verify_backup(sound) == ""

    report = report_of(store, tmp_path, NOW + DAY, keep=1)
    assert report.removed == (sound,)
    assert {path for path, _ in report.damaged} == {
        kept["cut off"],
        kept["altered"],
        kept["not a backup"],
    }
    assert all(reason for _, reason in report.damaged)
    assert set(names(tmp_path)) == {path.name for path in kept.values()} | {
        "aside",
        report.path.name,
    }
    with pytest.raises(UsageError):
        back_up(store, tmp_path, NOW, request=ExportRequest(since=NOW))


def test_a_recreated_store_keeps_backups_of_the_lost_one(tmp_path: Path) -> None:
    folder, path = tmp_path / "backups", tmp_path / "memory.db"

    def new_store() -> Store:
        path.unlink(missing_ok=True)
        store = SqliteStore(path)
        store.database.initialize()
        return store

    store = new_store()
    fill(store)
    lost = [back_up(store, folder, NOW + hour * timedelta(hours=1)) for hour in range(3)]
    store.database.close()
    store = new_store()
    report = report_of(store, folder, NOW + DAY, keep=1)
    assert report.removed == ()
    again = report_of(store, folder, NOW + 2 * DAY, keep=1)
    assert again.removed == (report.path,)
    assert names(folder) == sorted([*(each.name for each in lost), again.path.name])
    store.database.close()


def test_a_store_has_its_creation_time(store: Store) -> None:
    assert store.migrations.schema()[0].applied_at is not None


def test_concurrent_runs_do_not_interfere(sqlite_store: Store, tmp_path: Path) -> None:
    fill(sqlite_store)
    inner: list[Path] = []

    def clock() -> datetime:
        """Run another backup while the first one has its temporary file."""
        if not inner and any(name.endswith(PARTIAL) for name in names(tmp_path)):
            inner.append(back_up(sqlite_store, tmp_path, NOW, keep=2))
        return NOW

    outer = write_backup(make_runtime(sqlite_store, clock=clock), tmp_path, ALL, keep=2).path
    assert inner
    assert names(tmp_path) == sorted([inner[0].name, outer.name])
    assert verify_backup(outer) == verify_backup(inner[0]) == ""


def test_nothing_is_removed_if_records_are_unreadable(sqlite_store: Store, tmp_path: Path) -> None:
    fill(sqlite_store)
    first = back_up(sqlite_store, tmp_path, NOW)
    with closing(sqlite3.connect(sqlite_store.database.info().location)) as file, file:
        file.execute("UPDATE facts SET content = CAST(x'ff41' AS TEXT)")
    report = report_of(sqlite_store, tmp_path, NOW + DAY, keep=1)
    assert report.export.problems
    assert names(tmp_path) == sorted([first.name, report.path.name])


_KILLED = """
import os, signal, sys
from pathlib import Path
from edenmem.engine.exchange import files, folders
with files.open_for_writing(sys.argv[1], compress=False, force=False) as file:
    file.write(b"half")
    file.flush()
    with folders._open_partial_folder(Path(sys.argv[2])) as folder:
        (folder / "half.md").write_text("half")
        if sys.argv[3] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        print("ready", flush=True)
        sys.stdin.read()
"""


def test_the_next_export_removes_files_of_a_killed_one(sqlite_store: Store, tmp_path: Path) -> None:
    fill(sqlite_store)
    arguments = [sys.executable, "-c", _KILLED, str(tmp_path / "a.jsonl"), str(tmp_path / "notes")]
    subprocess.run([*arguments, "kill"], check=False)
    assert sum(name.endswith(PARTIAL) for name in names(tmp_path)) == 2
    with open_for_writing(str(tmp_path / "b.jsonl"), compress=False, force=False):
        pass
    assert names(tmp_path) == ["b.jsonl"]

    with subprocess.Popen(
        [*arguments, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        made = back_up(sqlite_store, tmp_path, NOW)
        assert sum(name.endswith(PARTIAL) for name in names(tmp_path)) == 2
        running.communicate("")
    assert running.returncode == 0
    assert names(tmp_path) == sorted(["a.jsonl", "b.jsonl", made.name])


def test_a_full_disk_keeps_older_backups(
    open_store: Callable[[str], Store], tmp_path: Path
) -> None:
    store, large = open_store("sqlite"), open_store("sqlite")
    fill(large)
    noise = random.Random(7)
    for _ in range(60):
        add_fact(large, Scope.agent("a" * 24), noise.randbytes(600).hex())
    with small_disk(tmp_path / "disk", 64) as folder:
        older = back_up(store, folder, NOW)
        for _ in range(2):
            with pytest.raises(DiskFull, match="the disk is full"):
                back_up(large, folder, NOW + DAY, keep=1)
            assert names(folder) == [older.name]
        with pytest.raises(DiskFull):
            export_folder(large, folder / "notes", ALL)
        assert names(folder) == [older.name]
        assert verify_backup(older) == ""


def test_doctor_examines_the_newest_backup(sqlite_store: Store, tmp_path: Path) -> None:
    fill(sqlite_store)
    folder = tmp_path / "backups"

    def examine(folder: Path | None, now: datetime = NOW) -> CheckResult:
        settings = Settings(
            embedding=EmbeddingSettings(provider="none"),
            backup=BackupSettings(folder=str(folder or "")),
        )
        runtime = make_runtime(sqlite_store, settings, clock=lambda: now)
        with open_session(runtime, frozenset({"backups"})) as session:
            (check,) = session.examine().checks
        return check

    def details(check: CheckResult) -> str:
        return " ".join(finding.detail for finding in check.examples)

    assert examine(None).state is State.OK
    assert "No such file" in details(examine(folder))
    back_up(sqlite_store, folder, NOW, request=ExportRequest(types=(RecordKind.FACT,)))
    assert "has no backup" in details(examine(folder))
    newest = back_up(sqlite_store, folder, NOW, request=ExportRequest(vectors=False))
    assert examine(folder, NOW + timedelta(hours=35)).state is State.OK
    late = examine(folder, NOW + timedelta(hours=40))
    assert (late.state, details(late)) == (State.WARNING, "is 40 hours old; the limit is 36 hours")
    newest.write_bytes(newest.read_bytes()[:-30])
    assert examine(folder).state is State.PROBLEM
