"""Each named case of v1, on both stores: what is there is what must be there, and no more."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.v1world.cases import CASES
from tests.v1world.comparer import compare
from tests.v1world.conftest import NewPlace
from tests.v1world.expected import Options, expect
from tests.v1world.places import init, migrate
from tests.v1world.world import COLLECTIONS, World, load, write_dump, write_extended_json


@pytest.mark.parametrize("store", ["sqlite", pytest.param("mongodb", marks=pytest.mark.slow)])
def test_the_cases_of_v1(store: str, tmp_path: Path, new_place: NewPlace) -> None:
    """Each case by its name, with what differs."""
    world = World(CASES)
    source = write_dump(tmp_path / "dump", world.database)
    differences: dict[str, list[str]] = defaultdict(list)
    ways = (("merge", {}), ("keep", {"provenance": True, "episodes": "keep"}))
    for shards, rest in (
        ways if store == "sqlite" else ways[1:]
    ):  # a server takes seven times as long
        place = new_place(store)
        options = Options(shards=shards, own_accounts=place.own_accounts, **rest)
        init(place, world.database)
        migrate(place, source, options).ok()
        for each in compare(expect(world.database, options), place.read()):
            case = world.case_of.get(each.scope.agent, "nobody's")
            differences[case].append(f"--shards {shards}: {each}")
    assert differences == {}


def test_a_world_is_the_same_for_the_same_seed() -> None:
    assert World(CASES, 3).database == World(CASES, 3).database
    assert World(CASES, 3).database != World(CASES, 4).database
    assert len(CASES) == len(World(CASES).names) > 80
    assert set(World(CASES).database) == set(COLLECTIONS)


@pytest.mark.slow
def test_it_is_the_same_from_whatever_it_is_read(tmp_path: Path, new_place: NewPlace) -> None:
    """Extended JSON has no place for times that are numbers of another type, nor for two kinds of
    number: those cases come from BSON alone."""
    names = [name for name in CASES if not name.startswith("dates_")]
    world = World(names)
    memories = []
    for kind in ("bson", "gzip", "lines", "array", "live"):
        place = new_place("sqlite")
        init(place)
        source: Path | str = tmp_path / kind
        if kind == "live":
            server = new_place("mongodb")
            load(server.database, world.database)
            source = server.cli.uri
        elif kind in ("bson", "gzip"):
            _write_bson(tmp_path / kind, world, zipped=kind == "gzip")
        else:
            array = kind == "array"
            write_extended_json(tmp_path / kind, world.database, canonical=array, array=array)
        migrate(place, source, Options()).ok()
        memory = place.read()
        memory.reasons.clear()
        memories.append(memory)
    first = memories[0]
    for other in memories[1:]:
        assert compare(first, other) == []
        assert first.history == other.history


def _write_bson(folder: Path, world: World, *, zipped: bool) -> None:
    import gzip

    write_dump(folder, world.database)
    for file in list(folder.iterdir()) if zipped else ():
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
        file.unlink()
