"""Other worlds, other ways to run over them, and who is found in what came."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings

from tests.engine.migration_runs.databases import databases, options
from tests.support.v1_files import Database as AnyDatabase
from tests.v1world.cases import CASES
from tests.v1world.comparer import compare
from tests.v1world.conftest import NewPlace
from tests.v1world.expected import Options, expect
from tests.v1world.memory import Item
from tests.v1world.places import Place, SqlitePlace, init, last_run, migrate
from tests.v1world.world import COLLECTIONS, Database, World, write_dump

pytestmark = pytest.mark.slow


@given(database=databases(), wanted=options())
@settings(max_examples=15)
def test_any_world_becomes_what_it_must(database: AnyDatabase, wanted: dict[str, Any]) -> None:
    """The judge and the migration read dirt alike, and neither knows of the other."""
    documents: Database = {name: list(database.get(name, ())) for name in COLLECTIONS}  # type: ignore[arg-type]
    given = Options(**wanted)
    with TemporaryDirectory() as folder:
        place = SqlitePlace(Path(folder))
        init(place)
        source = write_dump(Path(folder) / "dump", documents)
        # A file without documents is not whole, and lists name memories that are nowhere.
        migrate(place, source, given, "--allow-incomplete").ok()
        assert compare(expect(documents, given), place.read()) == []
        (check,) = place.cli("migrate", "verify", last_run(place), "--format", "json").data
        assert (check["complete"], check["differing"]) == (True, 0)


def test_another_seed_ends_the_same(new_place: NewPlace, folder: Path) -> None:
    place, world = new_place("sqlite"), World(CASES, 2)
    init(place)
    migrate(place, write_dump(folder / "seed", world.database), Options()).ok()
    assert compare(expect(world.database, Options()), place.read()) == []


def test_one_agent_alone(new_place: NewPlace, folder: Path) -> None:
    """Of the others nothing comes, and nothing of theirs is missed."""
    names = ["active_shard", "pending_directives_in_order", "several_active_shards"]
    place, world = new_place("sqlite"), World(names)
    dump = write_dump(folder / "three", world.database)
    init(place)
    chosen = world.cases["active_shard"], world.cases["pending_directives_in_order"]
    agents = [argument for case in chosen for argument in ("--agent", str(case.agent))]
    migrate(place, dump, Options(), *agents).ok()
    alone = World(names[:2]).database
    assert compare(expect(alone, Options()), place.read()) == []
    place.cli("migrate", "verify", last_run(place)).ok()


@pytest.mark.parametrize("store", ["sqlite", pytest.param("mongodb", marks=pytest.mark.slow)])
def test_forget_finds_the_people_that_memory_is_about(
    store: str, new_place: NewPlace, folder: Path
) -> None:
    """What is only about the person goes, what is about others, too, stays without them."""
    case = "related_users_of_collective_memory"
    place, world = new_place(store), World([case])
    init(place, world.database)
    dump = write_dump(folder / f"{store} related", world.database)
    # Of texts of users there are none, so their file is empty.
    migrate(place, dump, Options(own_accounts=place.own_accounts), "--allow-incomplete").ok()
    lena = str(world.cases[case].id("person lena"))
    before = _items(place)
    forgotten = place.cli("forget", "--user", lena, "--learned", "remove", "--yes")
    # A person without any memory of their own is not known on SQLite, unless they come along.
    assert forgotten.code == 0, forgotten.err
    after = _items(place)
    only, both, other = (each["content"] for each in world.database["memory_sessions"])
    assert {only, both, other} == before.keys()
    assert only not in after
    assert len(before[both].related or ()) == 2
    assert lena not in (after[both].related or {lena})
    assert before[other].related
    assert after[other] == before[other]


@pytest.mark.parametrize("store", ["sqlite", pytest.param("mongodb", marks=pytest.mark.slow)])
def test_a_fact_that_was_here_before_is_found_for_the_people_of_v1(
    store: str, new_place: NewPlace, folder: Path
) -> None:
    """The scope has the sentence of its own: v1's document becomes no fact, but relates people."""
    case = "related_users_of_collective_memory"
    place, world = new_place(store), World([case])
    init(place, world.database)
    agent = str(world.cases[case].agent)
    both = world.database["memory_sessions"][1]
    if store == "sqlite":
        place.cli("agent", "add", "mira", "--id", agent).ok()
    place.command("fact", "add", str(both["content"]), "--agent", agent, "--allow-long")
    dump = write_dump(folder / f"{store} before", world.database)
    given = (dump, Options(own_accounts=place.own_accounts), "--allow-incomplete")
    migrate(place, *given).ok()
    after = _items(place)
    assert len(after[both["content"]].related or ()) == 2
    assert after[both["content"]].version == 2
    migrate(place, *given).ok()
    assert _items(place) == after
    place.cli("migrate", "verify", last_run(place)).ok()


@pytest.mark.parametrize("store", ["sqlite", pytest.param("mongodb", marks=pytest.mark.slow)])
def test_the_order_of_one_moment_outlasts_export_and_import(
    store: str, new_place: NewPlace, folder: Path
) -> None:
    case = "pending_directives_of_one_moment_with_ids_out_of_order"
    place, other, world = new_place("sqlite"), new_place(store), World([case])
    init(place)
    dump = write_dump(folder / f"{store} order", world.database)
    migrate(place, dump, Options(), "--allow-incomplete").ok()
    backup = folder / f"{store}.jsonl"
    place.cli("export", str(backup)).ok()
    init(other, world.database)
    other.cli("import", str(backup), "--yes").ok()
    (wanted,) = place.read().pending.values()
    assert list(other.read().pending.values()) == [wanted]


def _items(place: Place) -> dict[str, Item]:
    memory = place.read()
    return {each.content: each for each in (*memory.facts, *memory.reflections)}
