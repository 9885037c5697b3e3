"""Dumps that are not whole, and folders that can be read in two ways: nothing passes in silence."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.v1world.comparer import compare
from tests.v1world.expected import Options, expect
from tests.v1world.files import CASES, INCOMPLETE, collections_of_two_databases
from tests.v1world.places import SqlitePlace, init, last_run, migrate
from tests.v1world.world import World, write_dump

pytestmark = pytest.mark.slow

OPTIONS = Options()


@pytest.fixture
def place(tmp_path: Path) -> SqlitePlace:
    place = SqlitePlace(tmp_path)
    init(place)
    return place


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "dump"


@pytest.mark.parametrize("name", INCOMPLETE)
def test_a_run_over_a_part_of_a_dump_is_not_complete(
    place: SqlitePlace, source: Path, name: str
) -> None:
    world = World(CASES)
    file = INCOMPLETE[name](source, world.database)
    done = migrate(place, source, OPTIONS)
    assert done.code == 1, done.out
    said = " ".join(f"{done.out} {done.err}".split())
    assert file in said
    at = said.index(file)
    # How much is missing: documents or bytes, be it all of them.
    around = said[max(at - 100, 0) : at + 200].replace(file, "")
    assert re.search(r"\d+ (?:documents?|bytes|lines)\b|empty|no documents", around), around
    assert place.cli("migrate", "verify", last_run(place)).code == 1
    # What can be read is there, and nothing that was never said.
    too_much = ("extra", "duplicate or copy", "content", "another scope")
    differences = compare(expect(world.database, OPTIONS), place.read())
    assert not [each for each in differences if each.name.endswith(too_much)]


@pytest.mark.parametrize("name", INCOMPLETE)
def test_a_part_of_a_dump_can_be_accepted(place: SqlitePlace, source: Path, name: str) -> None:
    file = INCOMPLETE[name](source, World(CASES).database)
    planned = place.cli("migrate", "v1", "--from", str(source), "--dry-run")
    assert file in planned.out + planned.err
    done = migrate(place, source, OPTIONS, "--allow-incomplete")
    assert done.code == 0, done.err
    assert file in done.out + done.err


def test_a_folder_that_can_be_read_in_two_ways_is_refused(place: SqlitePlace, source: Path) -> None:
    collections_of_two_databases(source, World(CASES).database)
    done = migrate(place, source, OPTIONS)
    assert done.code == 2, done.out
    assert "prod" in done.err
    memory = place.read()
    assert (memory.facts, memory.reflections, memory.texts, memory.policies) == ([], [], [], [])


FOLDERS = {"latin_1_folder": b"d\xfcmp", "folder_of_another_script": "夜の港".encode()}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_any_name(place: SqlitePlace, tmp_path: Path, name: str) -> None:
    source = tmp_path / os.fsdecode(FOLDERS[name])
    world = World(CASES)
    write_dump(source, world.database)
    migrate(place, source, OPTIONS).ok()
    differences = compare(expect(world.database, OPTIONS), place.read())
    assert not [each for each in differences if not each.name.endswith("related users")]
    run = last_run(place)
    place.cli("migrate", "status").ok()
    place.cli("migrate", "verify", run).ok()
    again = migrate(place, source, OPTIONS).ok()
    assert "nothing to do" in again.err
