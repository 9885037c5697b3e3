"""Each named case of v1, on both stores: what is there is what must be there, and no more."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.v1world import not_yet
from tests.v1world.cases import CASES
from tests.v1world.comparer import Difference, compare
from tests.v1world.conftest import NewPlace, Once
from tests.v1world.expected import Options, expect
from tests.v1world.places import SqlitePlace, init, last_run, migrate
from tests.v1world.world import COLLECTIONS, World, load, write_dump, write_extended_json

#: Case → what differs.
Found = dict[str, list[str]]

#: Checked for all at once: it is the same for every case.
EVERYWHERE = "related users"


@pytest.fixture(scope="module")
def world() -> World:
    return World(CASES)


@pytest.fixture(scope="module")
def found(world: World, folder: Path, new_place: NewPlace) -> Once[Found]:
    """What differs after a run of each kind."""
    source = write_dump(folder / "dump", world.database)

    def run(kind: str) -> Found:
        differences: Found = defaultdict(list)
        for shards, rest in (("merge", {}), ("keep", {"provenance": True, "episodes": "keep"})):
            place = new_place(kind)
            options = Options(shards=shards, own_accounts=place.own_accounts, **rest)
            init(place, world.database)
            migrate(place, source, options).ok()
            for each in compare(expect(world.database, options), place.read()):
                differences[_case(world, each)].append(f"--shards {shards}: {each}")
        return differences

    return Once(run)


def _case(world: World, difference: Difference) -> str:
    if difference.name.endswith(EVERYWHERE):
        return EVERYWHERE
    return world.case_of.get(difference.scope.agent, "nobody's")


NAMES = [*CASES, EVERYWHERE, "nobody's"]


@pytest.mark.parametrize(
    ("store", "case"),
    [
        *not_yet.params(NAMES, not_yet.CASES, "sqlite"),
        *not_yet.params(NAMES, not_yet.CASES, "mongodb", pytest.mark.slow),
    ],
)
def test_a_case_of_v1(found: Once[Found], store: str, case: str) -> None:
    assert "\n".join(found[store].get(case, [])) == ""


def test_a_world_is_the_same_for_the_same_seed() -> None:
    assert World(CASES, 3).database == World(CASES, 3).database
    assert World(CASES, 3).database != World(CASES, 4).database
    assert len(CASES) == len(World(CASES).names) > 80
    assert set(World(CASES).database) == set(COLLECTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["gzip", "lines", "array", "live"])
def test_it_is_the_same_from_whatever_it_is_read(
    form: str, request: pytest.FixtureRequest, folder: Path, new_place: NewPlace
) -> None:
    """Extended JSON has no place for times that are numbers of another type, nor for two kinds of
    number: those cases come from BSON alone."""
    names = [name for name in CASES if not name.startswith("dates_")]
    world = World(names)
    memories = []
    for kind in ("bson", form):
        place = new_place("sqlite")
        assert isinstance(place, SqlitePlace)
        init(place)
        source: Path | str = folder / kind
        if kind == "live":
            server = new_place("mongodb")
            load(server.database, world.database)
            source = server.cli.uri
        elif kind in ("bson", "gzip"):
            _write_bson(folder / kind, world, zipped=kind == "gzip")
        else:
            array = kind == "array"
            write_extended_json(folder / kind, world.database, canonical=array, array=array)
        migrate(place, source, Options()).ok()
        assert place.cli("migrate", "verify", last_run(place)).ok()
        memory = place.read()
        memory.reasons.clear()
        memories.append(memory)
    first, second = memories
    assert compare(first, second) == []
    assert first.history == second.history


def _write_bson(folder: Path, world: World, *, zipped: bool) -> None:
    import gzip

    write_dump(folder, world.database)
    for file in list(folder.iterdir()) if zipped else ():
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
        file.unlink()
