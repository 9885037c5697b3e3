"""The files read from a folder: of ambiguous input none is chosen in silence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edenmem.errors import InputError, NotFoundError
from edenmem.settings.paths import format_path, parse_path
from edenmem.settings.schema import StoreSettings
from edenmem.store.v1.files import FileSource
from edenmem.store.v1.source import open_source
from tests.support.v1_files import Database, write_dump, write_ejson
from tests.support.v1_world import LENA, memory, user_text

SESSIONS, TEXTS = "memory_sessions", "memory_user"


def _of(name: str) -> Database:
    return {
        SESSIONS: [memory(1, "episode", f"seen in {name}")],
        TEXTS: [user_text(30, LENA, f"a text of {name}")],
    }


def _contents(path: Path) -> set[str]:
    return {read.document.content for read in FileSource(path).documents(str)}  # type: ignore[union-attr]


def _all_of(name: str) -> set[str]:
    return {f"seen in {name}", f"a text of {name}"}


def _export(folder: Path, database: str, *, ending: str = "json", prefix: str = "") -> None:
    """The collections of a database as files named after both."""
    write_ejson(folder / "made", _of(database))
    for path in (folder / "made").iterdir():
        path.rename(folder / f"{prefix}{path.stem}.{ending}")


def _refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        FileSource(path)
    return caught.value.message


class TestDatabases:
    def test_in_folders_of_their_own(self, tmp_path: Path) -> None:
        for name in ("eden", "staging"):
            write_dump(tmp_path, _of(name), name=name)
        assert _refused(tmp_path).endswith(": eden, staging")
        assert _contents(tmp_path / "eden") == _all_of("eden")

    def test_in_a_folder_and_inside_of_it(self, tmp_path: Path) -> None:
        write_dump(tmp_path, _of("eden"), name="eden")
        write_dump(tmp_path / "eden", _of("older"), name="older")
        assert _refused(tmp_path / "eden").endswith(": eden, older")

    def test_told_by_the_names_of_the_files(self, tmp_path: Path) -> None:
        """Also if nothing is there twice: there are two databases."""
        _export(tmp_path, "eden", prefix="eden.")
        assert _contents(tmp_path) == _all_of("eden")
        (tmp_path / f"eden.{TEXTS}.json").rename(tmp_path / f"staging.{TEXTS}.json")
        place = tmp_path.name
        assert _refused(tmp_path).endswith(f": {place}/eden, {place}/staging")
        _export(tmp_path, "eden", prefix="eden.")  # now one collection is there twice
        assert _refused(tmp_path).endswith(f": {place}/eden, {place}/staging")

    def test_one_is_read_without_a_question(self, tmp_path: Path) -> None:
        write_dump(tmp_path, _of("eden"), name="eden")
        write_dump(tmp_path, {"system.users": []}, name="admin")
        assert _contents(tmp_path) == _all_of("eden")


@pytest.mark.parametrize(
    "other",
    ["memory_user.json", "memory_user.jsonl", "memory_user.bson.gz", "copy.memory_user.bson"],
)
def test_two_files_of_one_collection(tmp_path: Path, other: str) -> None:
    dump = write_dump(tmp_path, _of("one"), name="eden") / "eden"
    (dump / other).write_text("[]")
    assert "2 files of the collection memory_user" in _refused(dump)
    for name in ("memory_user.bson", other):
        assert name in _refused(dump)
    (dump / other).unlink()
    assert _contents(dump) == _all_of("one")


class TestNamesThatAreNoUtf8:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path / os.fsdecode(b"m\xe9moire")

    def test_a_folder(self, folder: Path) -> None:
        write_dump(folder, _of("eden"))
        source = FileSource(folder)
        assert source.location == f"{folder.parent}/m\\xe9moire"
        source.location.encode()  # every store can hold it
        again = open_source(source.location, StoreSettings())
        assert again.location == source.location
        assert sum(1 for _ in again.documents(str)) == 2

    def test_files_and_their_damage(self, folder: Path) -> None:
        _export(folder, "eden", prefix=os.fsdecode(b"\xe9den."))
        source = FileSource(folder)
        path = folder / os.fsdecode(b"\xe9den.memory_user.json")
        path.write_bytes(path.read_bytes()[:-9])
        reads = list(source.documents(str))
        assert len(reads) == 1
        (damage,) = source.damage()
        assert damage.where == "\\xe9den.memory_user.json"
        for read in reads:
            str(read.notes).encode()

    def test_errors_can_be_printed(self, folder: Path) -> None:
        with pytest.raises(NotFoundError) as missing:
            FileSource(folder)
        folder.mkdir()
        with pytest.raises(InputError) as empty:
            FileSource(folder)
        for caught in (missing, empty):
            assert "m\\xe9moire" in caught.value.message

    def test_a_name_that_looks_like_one_is_itself(self, tmp_path: Path) -> None:
        (tmp_path / "m\\xe9moire").mkdir()
        assert parse_path(f"{tmp_path}/m\\xe9moire") == tmp_path / "m\\xe9moire"
        assert format_path(parse_path(f"{tmp_path}/a\\xe9b")) == f"{tmp_path}/a\\xe9b"
