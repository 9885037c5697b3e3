"""``edenmem index``, ``doctor --atlas`` and ``fact add --wait``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from edenmem.cli.commands import change
from edenmem.models.ids import new_id
from edenmem.settings.schema import StoreSettings
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core.collections import TEXT_INDEX, VECTOR_INDEX
from tests.cli.conftest import Cli
from tests.support.atlas_server import AtlasServer
from tests.support.builders import make_agent

pytestmark = pytest.mark.slow


def _cli_on(uri: str, folder: Path) -> Iterator[Cli]:
    name = f"test_{new_id()}"
    store = MongoStore(uri, StoreSettings(database=name))
    store.database.initialize()
    store.host.add_agent(make_agent("mira"))
    store.database.close()
    yield Cli(f"{uri.rstrip('/')}/{name}", folder)
    client: MongoClient[Any]
    with MongoClient(uri) as client:
        client.drop_database(name)


@pytest.fixture
def on_atlas(atlas: AtlasServer, tmp_path: Path) -> Iterator[Cli]:
    """edenmem on the stand-in for Atlas, with an agent and no search indexes."""
    yield from _cli_on(atlas.uri, tmp_path)


@pytest.fixture
def on_mongodb(secantus_uri: str, tmp_path: Path) -> Iterator[Cli]:
    """edenmem on a MongoDB without search commands."""
    yield from _cli_on(secantus_uri, tmp_path)


#: There is no embedding model here, and no score of so few facts is over Lucene's floor.
_TEXT = ("--set", "search.recipe=text", "--set", "search.text_floor=0")


def test_from_a_missing_index_to_an_answer(on_atlas: Cli, atlas: AtlasServer) -> None:
    """Known failures 24, 29 and 32, as a person meets them."""
    assert "edenmem index create" in on_atlas("init", "--yes").ok().err
    added = on_atlas("fact", "add", "--agent", "mira", "The walk is on Saturday.").ok()
    assert "--wait" in added.err
    search = ("search", "walk", "--agent", "mira", *_TEXT)

    missing = on_atlas(*search).fails(5)
    assert missing.out == ""
    assert "edenmem index create" in missing.err

    atlas.build_steps = 1000
    assert f"{TEXT_INDEX}: created, building" in on_atlas("index", "create", "--no-wait").ok().out
    on_atlas(*search).fails(5, "edenmem index list --check")
    on_atlas("index", "list", "--check", "--wait", "--timeout", "0.3s").fails(1)

    atlas.build_steps = 1
    assert "ready" in on_atlas("index", "list", "--check", "text", "--wait").ok().out
    assert "Saturday" in on_atlas(*search).ok().out
    assert "text: exists" in on_atlas("index", "create").ok().out


def test_a_difference_is_shown_asked_about_and_changed(on_atlas: Cli) -> None:
    on_atlas("index", "create", "text").ok()
    other = ("--set", "search.analyzer=lucene.standard")
    create = on_atlas("index", "create", "text", *other).fails(1)
    assert "edenmem index create --update" in create.out
    assert on_atlas("index", "list", "--check", "text", *other).code == 1

    dry = on_atlas("index", "create", "--update", "--dry-run", *other).ok()
    assert "content.analyzer: is lucene.english, expected lucene.standard" in dry.err
    assert "would be updated" in dry.out
    on_atlas("index", "create", "--update", *other).fails(2, "--yes")
    on_atlas("index", "create", "--update", "--yes", *other).ok()
    (state,) = on_atlas.json("index", "list", "--check", "text", *other)
    assert (state["name"], state["status"], state["queryable"]) == (TEXT_INDEX, "ready", True)
    assert state["found"]["mappings"]["fields"]["scope"] == [{"type": "token"}]
    assert "match their definitions" in on_atlas("index", "create", "--update", *other).ok().err


def test_dropping_asks_and_keeps_what_protects(on_atlas: Cli) -> None:
    on_atlas("index", "create", "text").ok()
    assert on_atlas("index", "drop", "text").code == 2
    screen = on_atlas.on_terminal("index", "drop", "text", answers=[("Drop", "n")])
    assert "nothing was changed" in screen.out
    dropped = on_atlas.json("index", "drop", "text", "--yes")
    assert [(one["name"], one["outcome"]) for one in dropped] == [(TEXT_INDEX, "dropped")]
    assert on_atlas("index", "drop", "text", "--yes").code == 3
    on_atlas("index", "drop", "fact_dedup_idx", "--yes").fails(4, "prevents duplicates")


def test_a_dry_run_of_drop_is_what_the_run_does(on_mongodb: Cli) -> None:
    eden = on_mongodb
    for name in ("fact_dedup_idx", "fact_scope_idx"):
        for how in ("--dry-run", "--yes"):
            assert eden("index", "drop", "edenmem_usage_time", name, how).code == 4
    planned = {one["name"]: one for one in eden.json("index", "drop", "ordinary", "--dry-run")}
    assert planned["edenmem_usage_time"]["outcome"] == "would_drop"
    for name in ("fact_dedup_idx", "fact_scope_idx", "fact_user_idx"):
        assert planned[name]["outcome"] == "left_out"
    dry = eden("index", "drop", "ordinary", "--dry-run").ok()
    assert (dry.out.count("edenmem_usage_time"), "edenmem_usage_time" in dry.err) == (1, False)
    done = {one["name"]: one for one in eden.json("index", "drop", "ordinary", "--yes")}
    outcomes = {
        name: one["outcome"].replace("would_drop", "dropped") for name, one in planned.items()
    }
    assert {name: one["outcome"] for name, one in done.items()} == outcomes
    states = {one["name"]: one["status"] for one in eden.json("index", "list", "ordinary")}
    dropped = {name for name, outcome in outcomes.items() if outcome == "dropped"}
    assert {name for name, status in states.items() if status == "missing"} == dropped


def test_a_terminal_shows_what_is_waited_for(on_atlas: Cli, atlas: AtlasServer) -> None:
    atlas.build_steps = 8
    screen = on_atlas.on_terminal("index", "create", "text", columns=120)
    assert screen.code == 0
    assert f"building {TEXT_INDEX}" in screen.out
    assert "created" in screen.out


def test_a_fact_can_be_waited_for(
    on_atlas: Cli, atlas: AtlasServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known failure 32: a new document was not yet searchable, and nobody said so."""
    add = ("fact", "add", "--agent", "mira")
    assert on_atlas(*add, "First.", "--wait").code == 5  # there is no index to wait for
    on_atlas("index", "create", "text").ok()
    atlas.lag = 4
    on_atlas(*add, "Second, about lanterns.", "--wait").ok()
    assert "Second" in on_atlas("search", "lanterns", "--agent", "mira", *_TEXT).ok().out
    atlas.lag = 1000
    monkeypatch.setattr(change, "_PATIENCE", 0.3)
    on_atlas(*add, "Third.", "--wait").fails(1, "is stored")


def test_an_edit_and_a_restored_version_can_be_waited_for(
    on_atlas: Cli, atlas: AtlasServer
) -> None:
    """Known failure 32: the index has the fact, and in it the text that was corrected."""
    on_atlas("index", "create", "text").ok()
    add = ("fact", "add", "--agent", "mira", "--format", "json")
    fact = on_atlas(*add, "The ferry brings lanterns.", "--wait").ok().data[0]["id"]

    def found(word: str) -> bool:
        return fact in on_atlas("search", word, "--agent", "mira", *_TEXT, "--format=json").out

    edits = ("fact", "edit", fact, "--yes", "--content")
    assert "--wait waits for that" in on_atlas(*edits, "The ferry brings candles.").ok().err
    atlas.lag = 6
    on_atlas(*edits, "The ferry brings torches.", "--wait").ok()
    assert found("torches")
    assert not found("candles")
    on_atlas("restore", fact, "--version", "1", "--yes", "--wait").ok()
    assert found("lanterns")
    on_atlas("delete", fact, "--yes").ok()
    atlas.lag = 6
    on_atlas("restore", fact, "--wait").ok()
    assert found("lanterns")
    atlas.lag = 0
    on_atlas(*edits, "The ferry brings flares.", "--wait").ok()
    same = on_atlas(*edits, "The ferry brings flares.", "--wait").ok()
    assert "the text is unchanged" in same.err


def test_the_doctor_tries_the_cluster(on_atlas: Cli, atlas: AtlasServer) -> None:
    assert on_atlas("doctor", "--atlas").code == 2
    report = on_atlas("doctor", "--atlas", "--yes").ok()
    assert "all tests passed" in report.out
    assert "failed" not in report.out
    atlas.failure = "no room"
    (data,) = on_atlas("doctor", "--atlas", "--yes", "--format", "json").data
    assert data["passed"] is False
    assert data["removed"] is True
    assert "no room" in str(data["steps"]) or "failed" in str(data["steps"])
    assert on_atlas("doctor", "--atlas", "--yes").code == 1


def test_without_search_commands_it_says_why(on_mongodb: Cli) -> None:
    eden = on_mongodb
    assert "no search commands" in eden("index", "create").ok().out
    eden("index", "drop", "edenmem_usage_time", "--yes").ok()
    assert "edenmem_usage_time: created" in eden("index", "create").ok().out
    states = eden.json("index", "list", "--check")
    assert {one["status"] for one in states} == {"unavailable"}
    assert eden("index", "create", "text").code == 5
    assert eden("doctor", "--atlas", "--yes").code == 5
    eden("fact", "add", "--agent", "mira", "Found at once.", "--wait").ok()
    (fact,) = eden.json("fact", "list", "--agent", "mira")
    edited = eden("fact", "edit", fact["id"], "--content", "At once.", "--yes", "--wait").ok()
    assert "search index" not in edited.err


def test_on_sqlite_they_are_reported_and_made_anew(cli: Cli) -> None:
    states = {one["name"]: one for one in cli.json("index", "list")}
    assert states.pop("facts_source")["status"] == "unwanted"
    assert {one["status"] for one in states.values()} == {"ready"}
    assert states["facts_text"]["kind"] == "text"
    assert "match their definitions" in cli("index", "create", "--update").ok().err
    anew = cli("index", "create", "--update", "--rebuild", "--yes", "--format", "json").ok().data
    assert [one["outcome"] for one in anew] == ["updated", "updated", "left_out"]
    assert cli("index", "create", "facts_source").ok()
    found = cli("search", "anything", "--agent", "mira", "--recipe", "text+source").ok()
    assert "facts_source" not in found.err
    assert cli("index", "drop", "facts_source", "--yes").ok()
    cli("search", "anything", "--agent", "mira", "--recipe", "text+source").fails(
        5, "index create facts_source"
    )
    assert cli("index", "drop", "facts_text", "--yes").code == 4
    assert cli("index", "list", "nonsense").code == 3
    assert "lanterns" in cli("search", "lanterns", "--agent", "mira", "--user", "lena", *_TEXT).out


def test_without_a_model_the_vector_index_is_left_out(on_atlas: Cli) -> None:
    made = {one["name"]: one for one in on_atlas.json("index", "create", "--no-wait")}
    assert made[VECTOR_INDEX]["outcome"] == "left_out"
    assert "embedding model" in made[VECTOR_INDEX]["note"]
    assert on_atlas("index", "create", "vector").code == 5


def test_the_platforms_index_is_replaced_on_request(on_mongodb: Cli) -> None:
    """Known failure 54, as a person meets it."""
    eden = on_mongodb
    uri, _, name = on_mongodb.uri.rpartition("/")
    client: MongoClient[Any]
    with MongoClient(uri) as client:
        facts = client[name].memory2_facts
        facts.drop_index("fact_dedup_idx")
        facts.create_index([("hash", 1), ("agent_id", 1)], name="fact_dedup_idx", unique=True)
    checked = eden("init", "--dry-run").ok()
    assert checked.err.rstrip().endswith("until you replace it: edenmem index create --replace")
    assert "nothing to create" in checked.out
    listed = eden("index", "list").ok().out  # its note is below the table, whole
    assert "\nfact_dedup_idx: The platform's unique index fact_dedup_idx lets each agent" in listed
    eden("fact", "add", "--agent", "mira", "It rains.").fails(4, "index create --replace")
    assert "conflicting" in eden("index", "list", "--check", "--format", "json").fails(1).out
    examined = eden("doctor", "--check", "indexes").fails(1)
    assert "> edenmem index create --replace" in examined.out
    assert "create ordinary" not in examined.out
    assert eden("index", "create", "--replace").code == 2  # it asks
    keys = "(hash, agent_id) → (agent_id, scope, user_id, group_id, shard, hash)"
    shown = eden("index", "create", "--replace", "--dry-run").ok()
    assert " ".join(shown.out.split()).count(keys) == 1
    assert keys not in shown.err
    planned = eden.json("index", "create", "--replace", "--dry-run")
    assert (planned[0]["outcome"], planned[0]["note"]) == ("would_replace", keys)
    replaced = eden.json("index", "create", "--replace", "--yes")
    assert (replaced[0]["name"], replaced[0]["outcome"]) == ("fact_dedup_idx", "replaced")
    eden("doctor", "--check", "indexes").ok()
    for user in ("anna", "bea"):
        eden("user", "add", user).ok()
        options = ("--agent", "mira", "--scope", "user", "--user", user)
        eden("fact", "add", *options, "She keeps bees.").ok()
    (lost,) = eden.json("index", "list", "--conflicts")
    assert (lost["content"], lost["scope"]) == ("She keeps bees.", "user")
    assert "She keeps bees." in eden("index", "list", "--conflicts").ok().out
    assert "kept" in eden("index", "list", "--conflicts", "--format", "csv").ok().out


def test_an_empty_database_is_told_from_the_platforms(secantus_uri: str, tmp_path: Path) -> None:
    """A misspelled name gave the same list as the right one."""
    name = f"test_{new_id()}"
    eden = Cli(f"{secantus_uri.rstrip('/')}/{name}", tmp_path)
    checked = eden("init", "--dry-run").ok()
    assert f"{name} has no users3 collection" in checked.err
    assert "indexes: memory2_facts" in checked.out
    assert f"{name} (" not in checked.out  # the database once
    (plan,) = eden.json("init", "--dry-run")
    assert "memory2_facts: index fact_dedup_idx" in plan["would_make"]
    assert "users3" in plan["notes"][0]
    assert "using eden" in eden("init", "--dry-run", "--uri", secantus_uri.rstrip("/")).ok().err


def test_one_fact_is_counted_in_the_singular(empty_cli: Cli) -> None:
    empty_cli("init", "--yes").ok()
    empty_cli("agent", "add", "mira").ok()
    empty_cli("fact", "add", "--agent", "mira", "The walk is on Saturday.").ok()
    for command in ("list", "create"):
        shown = " ".join(empty_cli("index", command).ok().out.split())
        assert "1 fact" in shown
        assert "1 facts" not in shown
