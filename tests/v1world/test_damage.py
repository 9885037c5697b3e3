"""The catalog of damage: a check finds each kind on both stores, and lets pass what the log
explains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.exhaustive import EXHAUSTIVE, sample
from tests.v1world.comparer import Difference, compare
from tests.v1world.conftest import NewPlace, Once
from tests.v1world.damage import CASES, DAMAGES
from tests.v1world.expected import Options, expect
from tests.v1world.later import CHANGES
from tests.v1world.memory import Memory
from tests.v1world.places import Place, init, last_run, migrate
from tests.v1world.whole import Whole
from tests.v1world.world import World, write_dump

pytestmark = pytest.mark.slow


@dataclass
class Migrated:
    """A clean run, and what it made."""

    place: Place
    run: str
    whole: Whole
    wanted: Memory
    differences: list[Difference]


@pytest.fixture(scope="module")
def migrated(folder: Path, new_place: NewPlace) -> Once[Migrated]:
    return Once(lambda kind: _migrate(new_place(kind), folder / kind))


def _migrate(place: Place, dump: Path) -> Migrated:
    world = World(CASES)
    options = Options(provenance=True, episodes="keep", own_accounts=place.own_accounts)
    init(place, world.database)
    migrate(place, write_dump(dump, world.database), options).ok()
    run = last_run(place)
    memory, wanted = place.read(), expect(world.database, options)
    whole = Whole(world, memory)
    place.cli("migrate", "verify", run).ok()
    return Migrated(place, run, whole, wanted, compare(wanted, memory))


def _on(store: str) -> list[str]:
    """List the damages of a store: on MongoDB a sixth, since a server takes ten times as long.

    EDENMEM_TESTS=all selects all of them. What only MongoDB can have is always selected.
    """
    names = [name for name, each in DAMAGES.items() if store in each.stores]
    if store == "sqlite" or EXHAUSTIVE:
        return names
    shared = [name for name in names if "sqlite" in DAMAGES[name].stores]
    return [name for name in names if name not in shared or name in shared[::12]]


#: The catalog is checked in parts, which the workers share.
PARTS = 6
STORES = [
    *(("sqlite", part) for part in range(PARTS)),
    *(pytest.param("mongodb", part, marks=pytest.mark.slow) for part in range(2)),
]


@pytest.mark.parametrize(("store", "part"), STORES)
def test_damage_is_found(migrated: Once[Migrated], store: str, part: int) -> None:
    clean, missed = migrated[store], []
    for name in _on(store)[part :: PARTS if store == "sqlite" else 2]:
        damage = DAMAGES[name]
        with clean.place.damaged() as place:
            damage.do(place, clean.whole)
            # The judge is judged as well: what it says is only worth what it sees.
            if damage.unseen is not None:
                is_seen = set(compare(clean.wanted, place.read())) != set(clean.differences)
                assert is_seen is not damage.unseen, name
            if place.cli("migrate", "verify", clean.run).code != 1:
                missed.append(name)
    assert missed == []


@pytest.mark.parametrize("store", ["sqlite", pytest.param("mongodb", marks=pytest.mark.slow)])
def test_a_later_change_is_told_from_damage(migrated: Once[Migrated], store: str) -> None:
    clean = migrated[store]
    for name in CHANGES if store == "sqlite" else sample(CHANGES, 6):
        with clean.place.damaged() as place:
            CHANGES[name](place, clean.whole)
            (check,) = place.cli.json("migrate", "verify", clean.run)
        assert check["complete"], name
        was_forgotten = name.endswith("forgotten")
        noticed = check["changed"] or (was_forgotten and check["kept"])
        assert bool(noticed) is (name not in UNRELATED), name


#: Changes that touch nothing of v1's.
UNRELATED = {"facts_added_later"}


def test_the_catalog_is_long_enough() -> None:
    assert len(_on("sqlite")) >= 40
    assert sum("mongodb" in each.stores for each in DAMAGES.values()) >= 40
    assert len(_on("mongodb")) >= 12
    assert len(CHANGES) >= 10
