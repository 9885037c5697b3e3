"""Word limits and intervals: the platform's in its database, and a text's own limit above all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bson import ObjectId

from tests.platform.conftest import World, sentences
from tests.platform.double import Platform

pytestmark = pytest.mark.slow

LIMITS = Platform.WORD_LIMITS


def lines(words: int, first: str = "") -> str:
    """A text of this many words."""
    return " ".join([first or "Bees", *["word"] * (words - 1)])


def begin(world: World) -> tuple[Platform, ObjectId]:
    """A shared database with a session, of which the platform has a text of each kind."""
    world.eden("init", "--yes").ok()
    platform = world.platform()
    session = world.put_session(sentences("Anna", *range(4)))
    assert platform.form(session)
    return platform, session


def put_text(world: World, kind: str, session: ObjectId, words: int, **fields: Any) -> None:
    """Write the text of a scope as the platform does, under its own limit."""
    owner = {"user": {"user_id": world.anna}, "session": {"session_id": session}}
    key = {"scope": kind, "agent_id": world.mira, **owner.get(kind, {})}
    content = f"VERSION: 1\n{lines(words)}"
    world.database.memory2_consolidated.update_one(
        key,
        {
            "$set": {"consolidated_content": content, "word_limit": LIMITS[kind], **fields},
            "$setOnInsert": {"unabsorbed_ids": []},
        },
        upsert=True,
    )


def limits(world: World) -> dict[str, int]:
    """The stored limit of each kind of text."""
    return {
        each["scope"]: each["word_limit"] for each in world.database.memory2_consolidated.find()
    }


def answering(world: World, words: int) -> list[str]:
    """Let edenmem's model write texts of this many words; return the prompts it was given."""
    prompts: list[str] = []
    usual = world.answer

    def answer(body: dict[str, Any]) -> str:
        wanted = body["response_format"]["json_schema"]["schema"]["properties"]
        if "text" not in wanted:
            return usual(body)
        prompts.append(body["messages"][-1]["content"])
        return json.dumps({"text": lines(words)})

    world.answer = answer  # type: ignore[method-assign]
    return prompts


def only(kind: str) -> tuple[str, ...]:
    """Options of consolidation for one scope of the agent."""
    return ("--scope", "agent") if kind == "agent" else ()


SCOPES = {
    "agent": ("--agent", "mira"),
    "user": ("--agent", "mira", "--user", "anna"),
}


def test_no_road_lowers_the_limit_of_a_text(world: World) -> None:
    """FAILURES 89: consolidation shrank texts to edenmem's limits and stored those for good."""
    _, session = begin(world)
    scopes = {**SCOPES, "session": ("--session", str(session))}
    for kind, words in (("agent", 1802), ("user", 552), ("session", 1402)):
        put_text(world, kind, session, words)
        prompts = answering(world, words + 10)
        world.eden("reflection", "add", *scopes[kind], "--content", "They keep bees.").ok()
        world.eden("consolidate", *scopes[kind], *only(kind), "--force").ok()
        assert len(prompts) == 1, "nothing was shortened"
        assert f"{LIMITS[kind]}" in prompts[0]
        text = lines(words + 20, "Changed")
        world.eden("consolidation", "edit", *scopes[kind], "--yes", "--content", text).ok()
        owner = {
            "agent": "agent",
            "user": f"user:{scopes['user'][3]}",
            "session": f"session:{session}",
        }
        world.eden("restore", f"mira/{owner[kind]}", "--version", "1", "--yes").ok()
        assert limits(world)[kind] == LIMITS[kind]
    for entry in world.eden.json("log", "--limit", "20"):
        if entry["target_type"] == "consolidation":
            world.eden("undo", entry["id"], "--yes", "--force")
    assert limits(world) == LIMITS
    assert "policy" not in told(world)


def test_a_fifth_over_the_limit_is_tolerated_beside_the_platform(world: World) -> None:
    """FAILURES 89: as on the platform, with a notice; more is shortened."""
    _, session = begin(world)
    put_text(world, "user", session, 400)
    prompts = answering(world, 720)
    world.eden("reflection", "add", *SCOPES["user"], "--content", "They keep bees.").ok()
    told = world.eden("consolidate", *SCOPES["user"], "--force").ok()
    assert "720 words, over the limit of 600" in told.err
    assert len(prompts) == 1
    answering(world, 721)
    world.eden("reflection", "add", *SCOPES["user"], "--content", "They keep hens.").ok()
    assert "721 words" in world.eden("consolidate", *SCOPES["user"], "--force").err


def test_new_texts_get_the_platforms_limits(world: World) -> None:
    """FAILURES 89: a cold run made documents with edenmem's limits, which the platform obeys."""
    world.eden("init", "--yes").ok()
    world.platform()
    world.import_session("walk", sentences("Anna", *range(4)))
    world.eden("cold", "run").ok()
    session = world.database.sessions.find_one()["_id"]
    for scope in (SCOPES["agent"], ("--session", str(session))):
        world.eden("reflection", "add", *scope, "--content", "They keep bees.").ok()
    assert limits(world) == LIMITS
    world.eden("consolidate", "--agent", "mira", "--force").ok()
    assert limits(world) == LIMITS
    rows = world.eden.json("scope", "list", "--agent", "mira")
    shown = {row["scope"]: row for row in rows}
    assert {kind: each["word_limit"] for kind, each in shown.items()} == LIMITS
    assert {kind: each["consolidate_at"] for kind, each in shown.items()} == Platform.THRESHOLDS


def test_the_configuration_says_whose_defaults_apply(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAILURES 89: what was configured wins over both, and only the defaults change."""
    numbers = ("formation.message_interval", "scopes.user.word_limit")
    world.eden("init", "--yes").ok()

    def shown() -> dict[str, tuple[int, str]]:
        rows = world.eden.json("config", "show", *numbers)
        return {row["key"]: (row["value"], row["origin"]) for row in rows}

    assert shown() == {numbers[0]: (45, "default"), numbers[1]: (300, "default")}
    world.platform()
    theirs = "default, the platform's: it uses this database"
    assert shown() == {numbers[0]: (25, theirs), numbers[1]: (600, theirs)}
    monkeypatch.setenv("EDENMEM_SCOPES_USER_WORD_LIMIT", "300")
    assert shown()[numbers[1]] == (300, "EDENMEM_SCOPES_USER_WORD_LIMIT")
    world.eden("reflection", "add", *SCOPES["user"], "--content", "They keep bees.").ok()
    assert limits(world) == {"user": 300}


def told(world: World) -> str:
    """What doctor finds about word limits."""
    return json.dumps(world.eden.json("doctor", "--check", "limits"))


def test_only_an_explicit_policy_changes_the_limit_of_a_text(world: World) -> None:
    """FAILURES 89: doctor names the difference, until the next version stores the limit."""
    _, session = begin(world)
    put_text(world, "user", session, 100)
    answering(world, 90)
    for limit in (800, 400):
        world.eden("scope", "policy", *SCOPES["user"], "--word-limit", str(limit)).ok()
        assert f"the policy's limit is {limit} words" in told(world)
        world.eden("reflection", "add", *SCOPES["user"], "--content", f"Hive {limit}.").ok()
        world.eden("consolidate", *SCOPES["user"], "--force").ok()
        assert limits(world)["user"] == limit
    entry = world.eden.json("log", "--limit", "1")[0]
    world.eden("undo", entry["id"], "--yes").ok()
    assert limits(world)["user"] == 800


def test_a_repaired_buffer_has_the_platforms_limit(world: World) -> None:
    """FAILURES 89: the platform obeys 400 words for a text without a limit."""
    begin(world)
    world.database.memory2_consolidated.delete_many({})  # it ended between two of its writes
    world.eden("doctor", "--check", "buffers", "--fix", "--yes")
    assert limits(world)
    assert limits(world) == {kind: LIMITS[kind] for kind in limits(world)}


def test_a_text_that_is_undone_is_blank_for_the_platform(world: World) -> None:
    """HOST.md: a text that is not empty, such as a version line, is shown to the agent."""
    begin(world)
    only_user = ("--agent", "mira", "--user", "anna")
    world.eden("consolidation", "edit", *only_user, "--content", "Anna likes bees.", "--yes").ok()
    [entry, *_] = world.eden.json("log", "--agent", "mira")
    world.eden("undo", entry["id"], "--yes").ok()
    key = {"scope": "user", "user_id": world.anna}
    stored = world.database.memory2_consolidated.find_one(key)
    assert stored["consolidated_content"] == ""
    world.eden("consolidation", "edit", *only_user, "--content", "Anna keeps bees.", "--yes").ok()
    shown = world.eden("consolidation", "show", *only_user, "--json").ok().data
    assert (shown["version"], shown["consolidated_content"]) == (3, "Anna keeps bees.")
