"""Two formers on one database: what each reads, and what of it is named."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any

import pytest
from bson import ObjectId

from tests.platform.conftest import World, learn, sentences
from tests.platform.double import Learned, Platform, Session

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _initialized(world: World) -> None:
    world.eden("init", "--yes").ok()


def setting(monkeypatch: pytest.MonkeyPatch, former: str) -> None:
    monkeypatch.setenv("EDENMEM_FORMATION_FORMER", former)


def readings(world: World) -> dict[str, dict[str, int]]:
    """What doctor says of each session, by check."""
    found: dict[str, dict[str, int]] = {"unread": {}, "read-twice": {}}
    for check in world.eden.json("doctor", "--check", "unread", "--check", "read-twice"):
        for example in check["examples"]:
            count = int(example["detail"].split()[0])
            found[check["name"]][example["target_id"]] = count
    return found


def test_a_claim_is_visible_to_the_platform(world: World) -> None:
    """FAILURES 90: a session that it loads after the claim has nothing new."""
    session = world.put_session(sentences("Anna", *range(4)))
    other = world.put_agent("otto", user_memory_enabled=True, agent_memory_enabled=True)
    world.database.sessions.update_one({"_id": session}, {"$push": {"agents": other}})
    platform = world.platform()
    seen: list[Any] = []

    def look() -> None:
        context = world.context_of(session)
        names = ("messages_since_memory_formation", "weighted_tokens_since_memory_formation")
        seen.extend([platform.form(session), *(context[name] for name in names)])
        seen.append(world.database.memory2_formations.count_documents({"unfinished": True}))

    world.meanwhile = look
    world.eden("form", str(session), "--agent", "mira").ok()
    assert seen == [False, 0, 0, 2]  # two: one for each agent
    world.eden("cold", "run").ok()
    assert Counter(world.read) == dict.fromkeys(sentences("Anna", *range(4)), 2)
    assert world.eden.json("cold", "status") == []


def test_an_old_copy_reads_what_edenmem_claimed(world: World) -> None:
    """FAILURES 90: it cannot be prevented. Nothing is stored twice, and it is named."""
    session = world.put_session(sentences("Anna", *range(4)))
    platform = world.platform()
    held = platform.load(Session, session)
    world.meanwhile = lambda: platform._form(held)
    ran = world.eden("form", str(session)).ok()
    assert "4 messages also read by the platform" in ran.err
    assert world.facts() == sentences("Anna", *range(4))
    ours = {"formation_id": {"$exists": True, "$ne": None}}
    assert world.database.memory2_reflections.count_documents(ours) == 0
    assert readings(world)["read-twice"] == {str(session): 4}
    assert "4 messages" in world.eden("status").ok().out


def test_messages_that_nothing_read_are_named_and_formed_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAILURES 91: of 130 the platform reads 101 to 130, and the rest has no proof."""
    setting(monkeypatch, "platform")
    session = world.put_session(sentences("Anna", *range(130)))
    platform = world.platform()
    assert platform.form(session)
    first = 130 - len(platform.read)
    assert 75 <= first <= 105
    assert readings(world)["unread"] == {str(session): first}
    assert f"{first} messages" in world.eden("show", str(session)).ok().out
    assert f"skipped     {first} messages" in world.eden("status").ok().out
    world.eden("cold", "run").ok()
    assert world.read == []  # the platform may still be at work
    world.age(minutes=16)
    ran = world.eden("cold", "run").ok().out
    assert "platform (formation.former is set)" in ran
    assert f"{first} messages passed by the platform" in ran
    assert sorted(world.read) == sorted(sentences("Anna", *range(first)))
    assert readings(world) == {"unread": {}, "read-twice": {}}
    world.eden("cold", "run").ok()
    assert len(world.read) == first


def test_a_cursor_that_was_put_back_is_moved_forward(world: World) -> None:
    """FAILURES 93: by `form`, by the cold run, and by `doctor --fix`."""
    session = world.put_session(sentences("Anna", *range(4)))
    platform = world.platform()
    held = platform.load(Session, session)
    world.eden("form", str(session)).ok()
    for command in (
        ("form", str(session)),
        ("cold", "run"),
        ("doctor", "--check", "progress", "--fix", "--yes"),
    ):
        platform._write_context(held)
        assert world.cursor(session) is None
        assert world.eden("doctor", "--check", "progress").code == 1
        world.eden(*command)
        assert world.all_is_formed(session), command
        assert not world.platform().form(session)
    assert world.eden("doctor", "--check", "progress").code == 0


def test_auto_follows_the_platforms_memory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = world.put_session(sentences("Anna", *range(4)))
    world.platform()  # its indexes
    assert "edenmem (no memory of the platform in 7 days)" in world.eden("status").ok().out
    world.eden("cold", "run").ok()
    assert len(world.read) == 4
    assert world.platform().form(world.put_session(sentences("Anna", *range(4, 8))))
    assert "platform (its newest memory is from" in world.eden("status").ok().out
    left = world.put_session(sentences("Anna", *range(8, 12)))
    ran = world.eden("cold", "run").ok()
    assert len(world.read) == 4
    assert "left to platform  4 messages" in ran.out
    world.age(days=3)  # out of the platform's reach
    world.eden("cold", "run").ok()
    assert sorted(world.read[4:]) == sentences("Anna", 10, 11, 8, 9)
    assert {first, left} <= set(world.database.memory2_formations.distinct("session_id"))
    setting(monkeypatch, "edenmem")
    found = world.eden("doctor", "--check", "former")
    assert found.code == 1
    assert "the platform stored memory at" in found.out
    also = world.put_session(sentences("Anna", *range(12, 16)))
    assert "the platform may also read 4 messages" in world.eden("form", str(also)).ok().err


@pytest.mark.parametrize("former", ["platform", "edenmem"])
def test_two_cold_runs_beside_two_of_the_platform(
    world: World, monkeypatch: pytest.MonkeyPatch, former: str
) -> None:
    """FAILURES 90 and 91: nothing is stored twice or unread, and each double reading is named."""
    setting(monkeypatch, former)
    made: dict[ObjectId, list[str]] = {}
    for number in range(4):
        size = 20 if number == 0 else 6
        said = sentences("Anna", *range(100 * number, 100 * number + size))
        crashed = 4 if number in (1, 2) else 0  # its cursor has moved, and it read nothing
        made[world.put_session(said, formed=crashed)] = said
    platforms = [world.platform(), world.platform()]
    ready = Barrier(4)

    def begin(platform: Platform) -> None:
        ready.wait()
        platform.cold_run()

    def begin_other() -> None:
        ready.wait()
        environment = {"EDENMEM_EMBEDDING_PROVIDER": "openai"}
        # A consolidation may be refused (exit 1): the texts of the double are no real ones.
        assert world.process.process("cold", "run", env=environment).code in (0, 1)

    threads = [Thread(target=begin, args=(platform,)) for platform in platforms]
    threads.append(Thread(target=begin_other))
    for thread in threads:
        thread.start()
    ready.wait()
    assert world.eden("cold", "run").code in (0, 1)
    for thread in threads:
        thread.join()
    world.age(minutes=16)
    assert world.eden("cold", "run").code in (0, 1)

    theirs = {text for platform in platforms for text in platform.read}
    assert max(Counter(world.read).values(), default=0) <= 1
    assert theirs | set(world.read) == {text for said in made.values() for text in said}
    assert world.facts() == sorted(text for said in made.values() for text in said)
    ours = world.database.memory2_reflections.find({"formation_id": {"$ne": None}})
    cited = Counter((each["scope"], id) for each in ours for id in each["source_message_ids"])
    assert max(cited.values(), default=0) <= 1
    twice = {
        str(session): count
        for session, said in made.items()
        if (count := len(theirs & set(world.read) & set(said)))
    }
    named = {
        str(session): each["twice"]
        for session in [key for key in made if str(key) in twice][:3] or list(made)[:2]
        for each in world.eden.json("show", str(session))[0]["readings"]
        if each["twice"]
    }
    assert named.items() <= twice.items()
    [seen] = world.eden.json("doctor", "--check", "read-twice")
    assert seen["count"] == len(twice)
    assert readings(world)["unread"] == {}
    if former == "platform":
        assert twice == {}


def test_a_text_that_the_platform_may_be_writing_waits(world: World) -> None:
    """FAILURES 90: it replaces the text, and loses what edenmem has absorbed since it read it."""
    for number in range(3):
        said = sentences("Anna", *range(10 * number, 10 * number + 4))
        assert world.platform().form(world.put_session(said))
    session = world.put_session(sentences("Anna", *range(50, 54)))
    world.eden("form", str(session)).ok()

    def text_of_anna() -> Any:
        return world.database.memory2_consolidated.find_one({"user_id": world.anna})

    ran = world.eden("consolidate", "--agent", "mira", "--user", "anna").ok()
    assert "the platform may be writing this text" in ran.err
    world.eden("cold", "run").ok()
    assert len(text_of_anna()["unabsorbed_ids"]) == 4
    for each in world.database.memory2_reflections.find():
        earlier = {"formed_at": each["formed_at"] - timedelta(minutes=16)}
        world.database.memory2_reflections.update_one({"_id": each["_id"]}, {"$set": earlier})
    world.eden("cold", "run").ok()
    assert text_of_anna()["unabsorbed_ids"] == []
    assert "They keep bees" in text_of_anna()["consolidated_content"]


def test_an_empty_extraction_is_read_once_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves no proof."""
    setting(monkeypatch, "platform")
    session = world.put_session(sentences("Anna", *range(4)))
    assert world.platform(lambda messages: Learned()).form(session)
    world.age(minutes=16)
    for _ in range(2):
        world.eden("cold", "run").ok()
    assert world.read == sentences("Anna", *range(4))
    assert learn([]).facts == []


def test_a_cursor_on_a_deleted_message_is_moved_forward(world: World) -> None:
    """FAILURES 93: without its message the platform begins at the first one."""
    session = world.put_session(sentences("Anna", *range(4)))
    world.eden("form", str(session)).ok()
    world.database.messages.delete_one({"_id": world.cursor(session)})
    world.eden("cold", "run").ok()
    world.eden("form", str(session)).ok()
    assert not world.platform().form(session)
