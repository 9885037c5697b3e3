"""What edenmem writes is what the platform can load; and what each serves of the other."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from edenmem.errors import ExitCode
from tests.platform.conftest import World, sentences
from tests.platform.double import Fact, Session

pytestmark = pytest.mark.slow


OFF = {"user_memory_enabled": False, "agent_memory_enabled": False}
UNKNOWN = {"user_memory_enabled": None, "agent_memory_enabled": None}
SWITCHES = tuple(OFF)


def test_the_double_is_as_strict_as_the_platform(world: World) -> None:
    """One session without an owner ends its whole cold run; one odd vector hides all facts."""
    good = world.put_session(sentences("Anna", *range(4)))
    platform = world.platform()
    bad = world.put_session(sentences("Anna", *range(4)))
    world.database.sessions.update_one({"_id": bad}, {"$unset": {"owner": 1}})
    assert platform.cold_run() == []
    [error] = platform.errors
    assert isinstance(error, ValidationError)
    platform.errors.clear()
    assert platform.form(good)
    world.database.memory2_facts.update_one({}, {"$set": {"embedding": b"\x27\x00"}})
    with pytest.raises(ValidationError):
        platform.find(Fact, {})


def test_a_day_with_edenmem_leaves_documents_that_the_platform_loads(world: World) -> None:
    """Known failure 60: import, form, consolidate, edit, undo, forget, context."""
    eden = world.eden
    eden("init", "--yes").ok()
    platform = world.platform()
    platform.errors.clear()
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        {"tool": "look", "args": {"deep": 1}, "status": "done", "result": "Found."},
        {"tool": "look"},
    ]
    world.import_session("with-tools", sentences("Anna", *range(4)), tool_calls=calls)
    world.import_session("of-nobody", sentences("Anna", *range(4, 8)), users=[])
    own = world.put_session(sentences("Anna", *range(8, 12)))
    assert eden("agent", "add", "otto").code == ExitCode.USAGE
    eden("agent", "add", "otto", "--owner", "anna").ok()
    eden("user", "add", "cleo").ok()
    for session in ("with-tools", "of-nobody", str(own)):
        eden("form", session).ok()
    owner = ("--agent", "mira", "--scope", "user", "--user", "anna")
    eden("fact", "add", *owner, "--content", "Anna swims.").ok()
    eden("reflection", "add", *owner, "--content", "Anna is brief.").ok()
    eden("consolidate", "--force", "--agent", "mira").ok()
    [swims] = eden.json("fact", "list", "--agent", "mira", "--user", "anna", "--limit", "1")
    eden("fact", "edit", swims["id"], "--content", "Anna dives.", "--yes").ok()
    [entry] = eden.json("log", "--limit", "1")
    eden("undo", entry["id"], "--yes").ok()
    eden("context", str(own)).ok()
    eden("forget", "--user", "bea", "--yes").ok()
    eden("forget", "--session", "of-nobody", "--yes").ok()

    assert platform.load_everything() > 30
    assert world.cold_run_of_the_platform() == []
    shown = platform.context(own, world.anna)
    assert "Anna swims." in shown
    assert "VERSION: 1" in shown
    world.put_messages(own, sentences("Anna", *range(12, 16)))
    assert platform.form(own)
    platform.demand_no_errors()
    assert eden("doctor").code == 0


def test_vectors_that_the_platform_cannot_load_are_refused(world: World) -> None:
    """Known failure 60: one such vector hides every fact from the platform's context."""
    world.eden("init", "--yes").ok()
    world.put_session(sentences("Anna", 1))
    binary = ("--set", "store.embedding_storage=bindata")
    owner = ("--agent", "mira", "--scope", "agent")
    refused = world.eden(*binary, "fact", "add", *owner, "--content", "The sea is cold.")
    assert refused.code != 0
    world.eden("fact", "add", *owner, "--content", "The sea is warm.").ok()
    assert world.platform().find(Fact, {})[0].content == "The sea is warm."


@pytest.mark.parametrize(
    ("unset", "fields"), [(SWITCHES, {}), ((), UNKNOWN), ((), OFF)], ids=["missing", "null", "off"]
)
def test_switches_that_are_not_on_are_off(
    world: World, unset: tuple[str, ...], fields: dict[str, bool | None]
) -> None:
    """Known failure 56: both sides form for the session and for nobody else."""
    world.eden("init", "--yes").ok()
    platform = world.platform()
    agent = world.put_agent("quiet", *unset, **fields)
    lines = [*sentences("Anna", 1, 2), *sentences("Everybody", 1, 2)]
    ours, theirs = (world.put_session(lines, agents=[agent]) for _ in range(2))
    world.eden("form", str(ours)).ok()
    assert platform.form(theirs)
    assert world.facts() == []
    assert world.database.memory2_reflections.distinct("scope") == ["session"]
    assert world.database.memory2_reflections.count_documents({}) == 2


def test_looking_at_a_context_leaves_the_platforms_cache_alone(world: World) -> None:
    """Known failure 59: what is shown for one person is never served to the next."""
    world.eden("init", "--yes").ok()
    for name in ("anna", "bea"):
        owner = ("--agent", "mira", "--scope", "user", "--user", name)
        world.eden("fact", "add", *owner, "--content", f"Secret of {name}.").ok()
    session = world.put_session(sentences("Anna", 1))
    before = world.database.sessions.find_one({"_id": session})
    world.eden("context", str(session), "--user", "bea").ok()
    world.eden("context", str(session), "--refresh").ok()
    assert world.database.sessions.find_one({"_id": session}) == before
    served = world.platform().context(session, world.anna)
    assert "Secret of anna." in served
    assert "Secret of bea." not in served


def test_a_context_that_edenmem_caches_is_one_that_the_platform_may_serve(world: World) -> None:
    """It is built for the person of the session, and in a group for nobody."""
    world.eden("init", "--yes").ok()
    for name in ("anna", "bea"):
        owner = ("--agent", "mira", "--scope", "user", "--user", name)
        world.eden("fact", "add", *owner, "--content", f"Secret of {name}.").ok()
    alone = world.put_session(sentences("Anna", *range(4)))
    group = world.put_session(
        [*sentences("Anna", 4, 5), *sentences("Everybody", 1, 2)], users=[world.anna, world.bea]
    )
    platform = world.platform()
    for session in (alone, group):
        world.eden("form", str(session)).ok()
    served = platform.context(alone, world.anna)
    assert served == world.context_of(alone)["cached_memory_context"]
    assert "Secret of anna." in served
    assert "Secret of" not in platform.context(group, world.bea)
    assert platform.load(Session, group).memory_context is not None


def test_edenmem_shows_no_context_that_the_platform_built(world: World) -> None:
    """The platform's cache has no word on what it was built of, and does not escape."""
    world.eden("init", "--yes").ok()
    platform = world.platform()
    session = world.put_session(sentences("Anna", *range(4)))
    assert platform.form(session)
    shown = world.eden("context", str(session)).ok().out
    assert shown.count("Anna keeps hive") >= 4
    assert "<MemoryContext>" in shown
