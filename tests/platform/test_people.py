"""Memory under the account that a message came from, and the person behind the account."""

from __future__ import annotations

import pytest
from bson import ObjectId

from tests.platform.conftest import World, sentences
from tests.platform.double import User

pytestmark = pytest.mark.slow


def linked(world: World) -> ObjectId:
    """Anna's account on Discord."""
    return world.put(User(username="anna-on-discord", eden_user_id=world.anna))


def test_memory_of_a_linked_account_is_the_persons(world: World) -> None:
    """Known failure 57: what the platform wrote under the raw sender is found for the person."""
    world.eden("init", "--yes").ok()
    discord = linked(world)
    session = world.put_session(sentences("Anna", *range(4)), sender=discord)
    assert world.platform().form(session)
    assert world.facts(user_id=discord) == sentences("Anna", *range(4))
    about = ("--agent", "mira", "--user", "anna")
    assert len(world.eden.json("fact", "list", *about)) == 4
    assert len(world.eden.json("search", "hive", *about, "--recipe", "text")) == 4
    assert (
        len(world.eden.json("search", "hive", *about, "--account", "anna", "--recipe", "text")) == 0
    )
    visit = world.put_session(["Hello."])
    for each in (visit, session):
        assert world.eden("context", str(each)).ok().out.count("keeps hive") >= 4
    assert world.eden("doctor").code == 0


def test_edenmem_writes_under_the_account_that_the_platform_reads(world: World) -> None:
    """A fact that is known about the person's other account is no second one."""
    world.eden("init", "--yes").ok()
    discord = linked(world)
    platform = world.platform()
    assert platform.form(world.put_session(sentences("Anna", *range(4))))
    session = world.put_session(sentences("Anna", *range(2, 8)), sender=discord)
    world.eden("form", str(session)).ok()
    assert world.facts(user_id=world.anna) == sentences("Anna", *range(4))
    assert world.facts(user_id=discord) == sentences("Anna", *range(4, 8))
    recent = platform.recent_facts(world.mira, discord, ["user"])
    assert sorted(fact.content for fact in recent) == sentences("Anna", *range(4, 8))


def test_forgetting_a_person_forgets_every_account(world: World) -> None:
    """Both for edenmem and for the platform's next cold run."""
    world.eden("init", "--yes").ok()
    discord = linked(world)
    platform = world.platform()
    for sender, numbers in ((world.anna, range(4)), (discord, range(4, 8))):
        assert platform.form(world.put_session(sentences("Anna", *numbers), sender=sender))
    world.put_session(sentences("Anna", *range(8, 12)), sender=discord)
    world.eden("forget", "--user", "anna", "--yes").ok()
    assert world.cold_run_of_the_platform() == []
    assert world.facts() == []


def test_sentences_of_linked_accounts_are_named_and_merged(world: World) -> None:
    """FAILURES 99: after a merge of users the platform writes on under the old account, and the
    person has every sentence twice."""
    world.eden("init", "--yes").ok()
    discord = linked(world)
    platform = world.platform()
    assert platform.form(world.put_session(sentences("Anna", *range(4)), sender=discord))
    world.eden("user", "merge", str(discord), "anna", "--yes").ok()
    assert world.facts(user_id=world.anna) == sentences("Anna", *range(4))
    assert platform.form(world.put_session(sentences("Anna", *range(2, 6)), sender=discord))
    twice = sentences("Anna", 2, 3)
    sources = {
        each["content"]: set(each["source_message_ids"])
        for each in world.database.memory2_facts.find({"user_id": discord})
    }

    def named() -> int:
        told = world.eden("doctor", "--check", "duplicates", "--format", "json").out
        return told.count("a linked account has the same text")

    assert named() == 2
    world.eden("doctor", "--check", "duplicates", "--fix", "--yes").ok()
    assert world.facts() == sentences("Anna", *range(6))
    assert world.facts(user_id=discord) == sentences("Anna", 4, 5)
    for kept in world.database.memory2_facts.find({"content": {"$in": twice}}):
        assert sources[kept["content"]] <= set(kept["source_message_ids"])
    assert named() == 0
    run = world.eden.json("log", "--limit", "1")[0]["actor"]["run_id"]
    world.eden("undo", "--run", run, "--yes").ok()
    assert world.facts(user_id=discord) == sentences("Anna", *range(2, 6))
