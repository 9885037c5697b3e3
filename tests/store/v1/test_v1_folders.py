"""The files read from a folder: ambiguous input needs a choice."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from edenmem.errors import AmbiguousInput, InputError, NotFoundError, UsageError
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


def _contents(path: Path, **choice: Any) -> set[str]:
    source = FileSource(path, **choice)
    return {read.document.content for read in source.documents(str)}  # type: ignore[union-attr]


def _all_of(name: str) -> set[str]:
    return {f"seen in {name}", f"a text of {name}"}


def _export(folder: Path, database: str, *, ending: str = "json", prefix: str = "") -> None:
    """The collections of a database as files named after both."""
    write_ejson(folder / "made", _of(database))
    for path in (folder / "made").iterdir():
        path.rename(folder / f"{prefix}{path.stem}.{ending}")


def _refused(path: Path, option: str, **choice: Any) -> tuple[str, ...]:
    with pytest.raises(AmbiguousInput) as caught:
        FileSource(path, **choice)
    assert caught.value.option == option
    assert option in (caught.value.hint or "")
    return caught.value.choices


class TestDatabases:
    def test_in_folders_of_their_own(self, tmp_path: Path) -> None:
        for name in ("eden", "staging"):
            write_dump(tmp_path, _of(name), name=name)
        assert _refused(tmp_path, "--database") == ("eden", "staging")
        assert _contents(tmp_path, database="staging") == _all_of("staging")
        assert _contents(tmp_path / "eden") == _all_of("eden")

    def test_in_a_folder_and_inside_of_it(self, tmp_path: Path) -> None:
        write_dump(tmp_path, _of("eden"), name="eden")
        write_dump(tmp_path / "eden", _of("older"), name="older")
        assert _refused(tmp_path / "eden", "--database") == ("eden", "older")
        assert _contents(tmp_path / "eden", database="eden") == _all_of("eden")

    def test_told_by_the_names_of_the_files(self, tmp_path: Path) -> None:
        for name in ("eden", "staging"):
            _export(tmp_path, name, prefix=f"{name}.")
        assert _refused(tmp_path, "--database") == ("eden", "staging")
        assert _contents(tmp_path, database="eden") == _all_of("eden")

    def test_each_with_another_collection(self, tmp_path: Path) -> None:
        """Nothing is there twice, yet there are two databases."""
        _export(tmp_path, "eden", prefix="eden.")
        (tmp_path / f"eden.{TEXTS}.json").rename(tmp_path / f"staging.{TEXTS}.json")
        assert _refused(tmp_path, "--database") == ("eden", "staging")

    def test_one_is_read_without_a_question(self, tmp_path: Path) -> None:
        write_dump(tmp_path, _of("eden"), name="eden")
        write_dump(tmp_path, {"system.users": []}, name="admin")
        assert _contents(tmp_path) == _contents(tmp_path, database="eden") == _all_of("eden")

    def test_one_that_is_not_there(self, tmp_path: Path) -> None:
        write_dump(tmp_path, _of("eden"), name="eden")
        with pytest.raises(NotFoundError, match="no database 'prod'"):
            FileSource(tmp_path, database="prod")


class TestFilesOfOneCollection:
    @pytest.mark.parametrize(
        ("others", "pattern"),
        [
            ("memory_{}.json", "*.bson"),
            ("memory_{}.bson.gz", "*.bson"),
            ("copy.memory_{}.bson", ""),
        ],
    )
    def test_two(self, tmp_path: Path, others: str, pattern: str) -> None:
        dump = write_dump(tmp_path, _of("one"), name="eden") / "eden"
        two = write_dump(tmp_path / "other", _of("two"), name="two") / "two"
        if others.endswith("json"):
            two = write_ejson(tmp_path / "other" / "json", _of("two"))
        for collection in ("sessions", "user"):
            (path,) = two.glob(f"memory_{collection}.[bj]son")
            path.rename(dump / others.format(collection))
        assert set(_refused(dump, "--file")) == {"memory_user.bson", others.format("user")}
        if pattern:
            assert _contents(dump, patterns=[pattern]) == _all_of("one")
        named = [others.format(collection) for collection in ("sessions", "user")]
        assert _contents(dump, patterns=named) == _all_of("two")

    def test_a_choice_of_one_leaves_the_others_open(self, tmp_path: Path) -> None:
        dump = write_dump(tmp_path, _of("one"), name="eden") / "eden"
        write_ejson(dump, _of("two"))
        assert set(_refused(dump, "--file", patterns=["memory_user.bson"])) == {
            "memory_sessions.bson",
            "memory_sessions.json",
        }

    def test_a_pattern_that_fits_nothing(self, tmp_path: Path) -> None:
        write_dump(tmp_path, _of("one"))
        with pytest.raises(NotFoundError, match=r"no file \*\.jsonl"):
            FileSource(tmp_path, patterns=["*.jsonl"])

    def test_one_file_leaves_nothing_to_choose(self, tmp_path: Path) -> None:
        path = write_dump(tmp_path, _of("one")) / "eden" / "memory_user.bson"
        for choice in ({"database": "eden"}, {"patterns": ["*.bson"]}):
            with pytest.raises(UsageError, match="--database and --file"):
                FileSource(path, **choice)  # type: ignore[arg-type]


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
        for name in (b"\xe9den", b"\xe8den"):
            _export(folder, "eden", prefix=f"{os.fsdecode(name)}.")
        assert _refused(folder, "--database") == ("\\xe8den", "\\xe9den")
        source = FileSource(folder, database="\\xe9den")
        path = folder / os.fsdecode(b"\xe9den.memory_user.json")
        path.write_bytes(path.read_bytes()[:-9])
        reads = list(source.documents(str))
        assert len(reads) == 1
        (damage,) = source.damage()
        assert damage.where == "\\xe9den.memory_user.json"
        for read in reads:
            str(read.notes).encode()

    def test_files_are_chosen_by_the_names_that_are_shown(self, folder: Path) -> None:
        dump = write_dump(folder, _of("one"), name="eden") / "eden"
        copy = dump / os.fsdecode(b"\xe9.memory_user.bson")
        copy.write_bytes((dump / "memory_user.bson").read_bytes())
        (named,) = [each for each in _refused(dump, "--file") if "\\xe9" in each]
        assert _contents(dump, patterns=[named]) == _all_of("one")

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
