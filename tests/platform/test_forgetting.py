"""A user who is forgotten while the platform runs."""

from __future__ import annotations

import pytest

from tests.platform.conftest import World, sentences
from tests.platform.double import Session

pytestmark = pytest.mark.slow


def test_known_failure_58_what_was_forgotten_is_not_formed_again(world: World) -> None:
    """Neither by the platform nor by edenmem; what others said is formed once, by one of them."""
    world.eden("init", "--yes").ok()
    session = world.put_session(
        sentences("Anna", 1, 2), formed=2, users=[world.anna, world.bea], owner=world.anna
    )
    world.put_messages(session, sentences("Bea", 1), sender=world.bea)
    world.put_messages(session, sentences("Anna", 3))
    world.put_messages(session, sentences("Bea", *range(2, 6)), sender=world.bea)
    world.eden("forget", "--user", "anna", "--yes").ok()

    platform = world.platform(hours=1)
    assert platform.form(session)
    world.eden("form", str(session)).ok()

    assert platform.read == sentences("Bea", *range(2, 6))
    assert world.read == sentences("Bea", 1)
    assert world.all_is_formed(session)


def test_an_old_copy_of_a_session_that_is_written_back_is_seen(world: World) -> None:
    """The platform would form the messages again: doctor tells, and forgetting again helps."""
    world.eden("init", "--yes").ok()
    session = world.put_session(sentences("Anna", *range(1, 5)))
    platform = world.platform()
    held = platform.load(Session, session)
    world.eden("forget", "--user", "anna", "--yes").ok()
    platform.say(held, world.anna, sentences("Anna", 5)[0])

    seen = world.eden("doctor", "--check", "progress", "--format", "json")
    assert [each["target_id"] for each in seen.data[0]["examples"]] == [str(session)]
    world.eden("forget", "--user", "anna", "--yes").ok()
    world.eden("doctor", "--check", "progress").ok()
    assert not platform.form(session)


def test_a_fact_of_the_platform_is_erased_and_not_formed_again(world: World) -> None:
    """The platform names all messages that it formed together as the sources of each fact."""
    world.eden("init", "--yes").ok()
    session = world.put_session(sentences("Anna", *range(1, 5)))
    assert world.platform(hours=1).form(session)
    cached = {"memory_context.cached_memory_context": f"<m>{sentences('Anna', 1)[0]}</m>"}
    world.database.sessions.update_one({"_id": session}, {"$set": cached})
    (fact,) = world.database.memory2_facts.find({"content": sentences("Anna", 1)[0]})

    done = world.eden("forget", "--fact", str(fact["_id"]), "--mentions", "remove", "--yes")

    assert done.code == 0, done.err
    assert world.facts() == sentences("Anna", *range(2, 5))
    assert "cached_memory_context" not in world.context_of(session)
    for collection in ("memory2_facts", "memory2_reflections", "memory2_history", "memory2_audit"):
        texts = str(list(world.database[collection].find()))
        assert sentences("Anna", 1)[0] not in texts, collection
    assert not world.platform(hours=2).form(session)
    for option in ("--again", "--from-start"):
        world.eden("form", str(session), option)
        assert world.read == []
    # The platform's own progress stands: later messages are formed as before.
    world.put_messages(session, sentences("Anna", 5))
    world.eden("form", str(session)).ok()
    assert world.read == sentences("Anna", 5)
