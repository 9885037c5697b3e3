"""Running again after v1 went on, and what the ledger tells of runs."""

from __future__ import annotations

import copy
import itertools
import json
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.exhaustive import spared
from tests.v1world.again import KEPT, NEW_VERSIONS, STORIES, GoesOn, Here
from tests.v1world.comparer import compare
from tests.v1world.conftest import NewPlace
from tests.v1world.expected import Options, expect
from tests.v1world.memory import Memory
from tests.v1world.places import Place, SqlitePlace, init, last_run, migrate
from tests.v1world.world import World, write_dump

pytestmark = pytest.mark.slow

#: What is absorbed meanwhile is absorbed at some time: of v1's text, or of the second run. What
#: stands in the log of a text is of its first run.
FREE = ("absorbed_at", "consolidation time", "related users", "user missing", "text not marked")


#: A revision has a number and a time of its own.
REVISED = {"directive_reworded_in_v1_follows_it": ("reflection version", "reflection updated")}


@dataclass
class Twice:
    """Two runs with a part of v1's life between them."""

    world: World
    first: Memory
    between: Memory
    after: Memory
    third: Memory
    wanted: Memory
    #: Sources of what the second run has kept, with its words for it.
    kept: dict[str, str]
    verified: int


def _twice(place: Place, dump: Path) -> Twice:
    world = World(STORIES)
    before = copy.deepcopy(world.database)
    options = Options(own_accounts=place.own_accounts)
    init(place, world.database)
    migrate(place, write_dump(dump, before), options).ok()
    memory = place.read()
    for name, do in Here.items():
        do(place, world.cases[name], memory)
    between = place.read()
    for name, goes_on in GoesOn.items():
        goes_on(world.cases[name])
    database = {
        collection: [each for case in world.cases.values() for each in case.database[collection]]
        for collection in world.database
    }
    write_dump(dump, database)
    migrate(place, dump, options).ok()
    (second,) = place.cli.json("migrate", "status", last_run(place))
    kept = {each["source"]: each["reason"] for each in second["problems"]}
    verified = place.cli("migrate", "verify", last_run(place)).code
    after = place.read()
    migrate(place, dump, options).ok()
    # What v1 has absorbed is here, absorbed: as it would be if provenance had been asked for.
    wanted = expect(database, Options(provenance=True, own_accounts=place.own_accounts))
    return Twice(world, memory, between, after, place.read(), wanted, kept, verified)


@pytest.mark.parametrize("store", ["sqlite", spared("mongodb")])
def test_running_again_after_v1_went_on(store: str, new_place: NewPlace, tmp_path: Path) -> None:
    """Each story by its name, with what differs; and what the second run says of itself."""
    runs = _twice(new_place(store), tmp_path / "dump")
    differing = {name: found for name in STORIES if (found := _find_wrong(runs, name))}
    assert differing == {}
    assert runs.verified == 0
    assert [str(each) for each in compare(runs.after, runs.third)] == []
    # What is kept is listed; what is the same here as in v1 is not called so.
    changed = ("text_edited_here_is_kept", "text_consolidated_here_is_kept")
    texts = [runs.world.cases[name].database["memory_user"][0]["_id"] for name in changed]
    assert all(any(str(text) in source for source in runs.kept) for text in texts)
    ours = {
        str(each["_id"])
        for name in KEPT
        for documents in runs.world.cases[name].database.values()
        for each in documents
    }
    assert {k: v for k, v in runs.kept.items() if not any(each in k for each in ours)} == {}


def _find_wrong(runs: Twice, name: str) -> list[str]:
    agent = str(runs.world.cases[name].agent)
    if name not in KEPT:
        wanted = _with_later_versions(runs.wanted, runs.between)
        found = _differences(wanted, runs.after, agent)
        free = REVISED.get(name, ("text version",) if name in NEW_VERSIONS else ("nothing",))
        return [each for each in found if not each.startswith(free)]
    # What is here stays, but for what comes from v1 beside it.
    differences = _differences(runs.between, runs.after, agent)
    wrong = [each for each in differences if " extra " not in each and "buffer" not in each]
    have = Counter(_contents(runs.after, agent))
    wrong += [f"twice: {content}" for content, times in have.items() if times > 1]
    new = set(_contents(runs.wanted, agent)) - set(_contents(runs.first, agent))
    if "forgotten" not in name and "reworded" not in name:
        wrong += [f"missing: {content}" for content in new - have.keys()]
    return wrong


def _differences(wanted: Memory, found: Memory, agent: str) -> list[str]:
    return [
        str(each)
        for each in compare(wanted, found)
        if each.scope.agent == agent and not each.name.endswith(FREE)
    ]


def _contents(memory: Memory, agent: str) -> list[str]:
    items = (*memory.facts, *memory.reflections)
    return [each.content for each in items if each.scope.agent == agent]


def _with_later_versions(wanted: Memory, before: Memory) -> Memory:
    """Number texts as a store does: a new text is a new version, and none goes back."""
    standing = {text.scope: text for text in before.texts}
    texts = []
    for text in wanted.texts:
        own = standing.get(text.scope)
        if own is not None:
            same = own.content == text.content
            version = own.version if same else max(own.version + 1, text.version)
            text = replace(text, version=version)
        texts.append(text)
    return replace(wanted, texts=texts)


# -- the ledger ----------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> SqlitePlace:
    """A store with one run, of the dump in its folder."""
    place = SqlitePlace(tmp_path)
    init(place)
    migrate(
        place,
        write_dump(tmp_path / "dump", World(["active_shard", "texts_of_two_users"]).database),
        Options(),
    ).ok()
    return place


def _states(place: Place) -> list[str]:
    """The states of all runs, oldest first."""
    runs = place.cli.json("migrate", "status")[0]["runs"]
    return [run["state"] for run in reversed(runs)]


def _undone_and_made_again(place: SqlitePlace) -> None:
    """No rollback is needed first: the second run brings all of it, and is verified."""
    whole = place.read()
    place.cli("undo", "--run", last_run(place), "--yes").ok()
    assert not place.read().facts
    assert _states(place) == ["rolled_back"]
    done = migrate(place, place.folder / "dump", Options())
    assert done.code == 0, done.out
    _compare_but_for_versions(whole, place.read())
    assert _states(place)[1] == "done"
    assert place.cli("migrate", "verify", last_run(place)).code == 0


def _compare_but_for_versions(whole: Memory, again: Memory) -> None:
    differences = compare(whole, again)
    versions = ("text version", "fact version")
    assert [str(each) for each in differences if not each.name.startswith(versions)] == []


def _rolled_back_and_made_again(place: SqlitePlace) -> None:
    """A verified run is repeated only after a change of v1, of the store or of its log."""
    whole, dump = place.read(), place.folder / "dump"

    def is_repeated() -> bool:
        return "nothing to do" not in migrate(place, dump, Options()).ok().err

    assert not is_repeated()
    first, fact = last_run(place), place.read().facts[0]
    place.cli("fact", "edit", fact.id, "--content", "Edited here.", "--yes").ok()
    assert (is_repeated(), is_repeated()) == (True, False)
    place.execute("UPDATE users SET subscription_tier = 3 WHERE id = (SELECT min(id) FROM users)")
    assert (is_repeated(), is_repeated()) == (True, False)
    (entry,) = place.entries(target_id=fact.id, action="revise_fact")
    place.cli("undo", entry, "--yes").ok()
    assert (is_repeated(), is_repeated()) == (True, False)
    place.cli("migrate", "rollback", first, "--yes").ok()
    assert (is_repeated(), is_repeated()) == (True, False)
    _compare_but_for_versions(whole, place.read())
    assert _states(place)[0] == "rolled_back"


def _undone_is_not_verified(place: SqlitePlace) -> None:
    """An empty store is not what a run made."""
    run = last_run(place)
    place.cli("undo", "--run", run, "--yes").ok()
    assert place.cli("migrate", "verify", run).code in (1, 4)


def _one_entry_undone(place: SqlitePlace) -> None:
    """The log says that it was taken back; the run stands."""
    (entry,) = place.entries(target_id=place.read().facts[0].id)
    place.cli("undo", entry, "--yes").ok()
    check = place.cli.json("migrate", "verify", last_run(place))[0]
    assert (check["complete"], check["changed"]) == (True, 1)


def _superseded(place: SqlitePlace) -> None:
    """A later run of the same v1 that went on takes the place of the first."""
    world = World(["active_shard", "texts_of_two_users"])
    (shard,) = world.database["memory_agent"]
    shard["content"] = "VERSION: 9\nAll is new."
    write_dump(place.folder / "dump", world.database)
    migrate(place, place.folder / "dump", Options()).ok()
    assert _states(place) == ["superseded", "done"]


def _superseded_run_is_told_from_damage(place: SqlitePlace) -> None:
    first = last_run(place)
    _superseded(place)
    said = place.cli("migrate", "verify", first)
    assert "superseded" in said.out + said.err


def _lists_of_v1_are_followed_after_a_rollback(place: SqlitePlace) -> None:
    """What was dropped in v1, absorbed here and taken back, is absorbed again."""
    name = "pending_directives_in_order"
    world, source = World([name]), place.folder / "lists"
    text = world.database["memory_user"][0]
    text["content"] = "VERSION: 3\nBe brief."
    migrate(place, write_dump(source, world.database), Options(), "--allow-incomplete").ok()
    text["unabsorbed_memory_ids"] = text["unabsorbed_memory_ids"][2:]
    write_dump(source, world.database)
    agent, waiting = str(world.cases[name].agent), list[int]()

    def count() -> None:
        (found,) = (v for k, v in place.read().pending.items() if k.agent == agent)
        waiting.append(len(found))

    for _ in range(2):
        migrate(place, source, Options(), "--allow-incomplete").ok()
        count()
        place.cli("migrate", "verify", last_run(place)).ok()
        place.cli("migrate", "rollback", last_run(place), "--yes").ok()
        count()
    assert waiting == [3, 5, 3, 5]


def _verified_again_after_damage(place: SqlitePlace) -> None:
    """The ledger keeps the latest outcome; of a run that was taken back there is none."""
    run = last_run(place)

    def outcome() -> object:
        (found,) = place.cli.json("migrate", "status", run)
        return (found["verification"] or {}).get("outcome")

    assert outcome() == "verified"
    fact = place.read().facts[0]
    place.set("facts", fact.id, content="Mallory is the owner.")
    assert place.cli("migrate", "verify", run).code == 1
    assert outcome() == "differences"
    assert "1 difference" in place.cli("migrate", "status").out
    place.set("facts", fact.id, content=fact.content)
    place.cli("migrate", "verify", run).ok()
    assert outcome() == "verified"
    place.cli("migrate", "rollback", run, "--yes").ok()
    assert outcome() is None


def _unfinished(place: SqlitePlace) -> None:
    """A run that was cut off says so when it is verified, and is not called verified."""
    run = last_run(place)
    ((document,),) = place.execute("SELECT document FROM migration_runs WHERE id = ?", (run,))
    cut_off = {**json.loads(document), "state": "failed", "error": "interrupted", "done": 1}
    cut_off["verification"] = None
    place.execute("UPDATE migration_runs SET document = ? WHERE id = ?", (json.dumps(cut_off), run))
    check = place.cli("migrate", "verify", run)
    assert check.code == 1
    assert "unfinished" in check.out
    (found,) = place.cli.json("migrate", "status", run)
    assert (found["state"], found["verification"]) == ("interrupted", None)
    assert "nothing to do" not in migrate(place, place.folder / "dump", Options()).ok().err
    (found,) = place.cli.json("migrate", "status", run)
    assert (found["state"], found["verification"]["outcome"]) == ("done", "verified")


def _a_damaged_log(place: SqlitePlace) -> None:
    """The next run says so: the memory is there, but nothing tells who wrote it."""
    dump = place.folder / "dump"
    (entry,) = place.entries(target_id=place.read().facts[0].id)
    place.set("audit", entry, after="{")
    again = migrate(place, dump, Options())
    assert again.code == 1
    assert "1 difference" in again.out


def _restored_from_a_backup(place: SqlitePlace) -> None:
    """A restored store knows its runs, and from its log what was undone (FAILURES 121)."""
    whole, run, file = place.read(), last_run(place), place.folder / "backup.jsonl"
    other = SqlitePlace(place.folder, "restored.db")
    place.cli("migrate", "rollback", run, "--yes").ok()
    place.cli("export", str(file)).ok()
    init(other)
    other.cli("import", str(file), "--yes").ok()
    assert _states(other) == ["rolled_back"]
    migrate(other, place.folder / "dump", Options()).ok()
    _compare_but_for_versions(whole, other.read())
    other.cli("migrate", "rollback", last_run(other), "--yes").ok()
    memory = other.read()
    left = (memory.facts, memory.reflections, memory.texts, memory.policies)
    assert not any(left)


def _repaired(place: SqlitePlace) -> None:
    """What is missing or damaged is written again, what was edited or deleted stays so."""
    run, dump, whole = last_run(place), place.folder / "dump", place.read()
    first, second, third = sorted(whole.facts, key=lambda each: each.id)[:3]
    place.command("fact", "add", "Of its own.", "--agent", first.scope.agent)
    place.command("delete", third.id, "--yes")
    kept = place.read()
    place.delete("facts", first.id)
    place.set("facts", second.id, content="Mallory is the owner.", formed_at=0)
    place.set("consolidations", whole.texts[0].scope, content="Mallory's.")
    (looked,) = place.cli("migrate", "repair", run, "--dry-run", "--format", "json").data
    assert looked["repaired"] == {"fact": 2, "consolidation": 1}
    place.cli("migrate", "repair", run, "--from", str(dump), "--yes").ok()
    _compare_but_for_versions(kept, place.read())
    place.cli("migrate", "verify", run).ok()
    place.cli("migrate", "rollback", run, "--yes")  # the agent has a fact of its own
    memory = place.read()
    assert [each.content for each in memory.facts] == ["Of its own."]
    assert not any((memory.texts, memory.policies))


def _other_places_are_refused(place: SqlitePlace) -> None:
    """Until the run that used them is undone."""
    refused = migrate(place, place.folder / "dump", Options(shards="keep"))
    assert (refused.code, "--shards merge" in refused.err) == (4, True)
    place.cli("undo", "--run", last_run(place), "--yes").ok()
    migrate(place, place.folder / "dump", Options(shards="keep")).ok()


def _rolled_back_in_any_order(place: SqlitePlace) -> None:
    """Later runs build on earlier ones; the last rollback leaves nothing of any."""
    world = World(["active_shard", "texts_of_two_users"])
    (shard,) = world.database["memory_agent"]
    dump = place.folder / "dump"
    for version in (9, 10):
        shard["content"] = f"VERSION: {version}\nAll is new: {version}."
        shard["last_updated_at"] = datetime(2026, 1, version, tzinfo=UTC)
        write_dump(dump, world.database)
        migrate(place, dump, Options()).ok()
    runs = [run["id"] for run in place.cli.json("migrate", "status")[0]["runs"]]
    whole = place.path.read_bytes()
    for order in itertools.permutations(runs):
        for file in place.folder.glob("memory.db*"):
            file.unlink()
        place.path.write_bytes(whole)
        for run in order:
            place.cli("migrate", "rollback", run, "--yes")
        memory = place.read()
        left = (memory.facts, memory.reflections, memory.texts, memory.policies, memory.people)
        assert not any(left), order
        assert set(_states(place)) == {"rolled_back"}


LEDGER = {
    do.__name__.strip("_"): do
    for do in (
        _undone_and_made_again,
        _rolled_back_and_made_again,
        _undone_is_not_verified,
        _one_entry_undone,
        _superseded,
        _superseded_run_is_told_from_damage,
        _lists_of_v1_are_followed_after_a_rollback,
        _verified_again_after_damage,
        _unfinished,
        _a_damaged_log,
        _restored_from_a_backup,
        _repaired,
        _other_places_are_refused,
        _rolled_back_in_any_order,
    )
}


@pytest.mark.parametrize("name", LEDGER)
def test_the_ledger_tells_what_became_of_a_run(place: SqlitePlace, name: str) -> None:
    LEDGER[name](place)
