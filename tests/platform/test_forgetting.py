"""A user who is forgotten while the platform runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from bson import ObjectId

from edenmem.models.ids import utc_now
from tests.platform.conftest import World, learn, sentences
from tests.platform.double import Learned, Message, Session

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


def _put_unreadable(world: World, agent: ObjectId, **owner: Any) -> ObjectId:
    """Store facts, a reflection and a text that no program can place; return the reflection."""
    now = utc_now()
    texts = {"content": "Rows at dawn.", "consolidated_content": "VERSION: 1\nRows."}
    common = {**texts, "agent_id": agent, "formed_at": now, "createdAt": now, **owner}
    world.database.memory2_facts.insert_many(
        [
            {**common, "scope": None, "hash": "1", "access_count": 2},
            {**common, "scope": "session", "hash": "2"},
            {**common, "scope": "team", "hash": "3", "source_message_ids": {"a": 1}},
        ]
    )
    world.database.memory2_consolidated.insert_one({**common, "scope": None})
    inserted = world.database.memory2_reflections.insert_one({**common, "scope": None})
    return inserted.inserted_id


def test_unreadable_documents_of_others_stop_no_command(world: World) -> None:
    """FAILURES 94: one such document ended every erasure, and lists with a KeyError."""
    world.eden("init", "--yes").ok()
    session = world.put_session(sentences("Anna", *range(1, 5)))
    assert world.platform(hours=1).form(session)
    _put_unreadable(world, world.put_agent("nova"), user_id=world.bea)
    for command in ("scope list", "stats", "status", "fact list --agent nova"):
        world.eden(*command.split()).ok()
    doctor = world.eden("doctor", "--full", "--format", "json")
    remarks = {each["name"]: each["remark"] for each in doctor.data}
    assert not [name for name, remark in remarks.items() if "check failed" in remark]
    assert {each["name"]: each["count"] for each in doctor.data}["readable"] == 5

    dry = world.eden("forget", "--user", "anna", "--dry-run", "--json").ok()
    assert dry.data[0]["unreadable"] == []
    world.eden("forget", "--user", "anna", "--yes").ok()
    assert world.facts(user_id=world.anna) == []
    assert world.database.memory2_facts.count_documents({"user_id": world.bea}) == 3


def test_an_unreadable_document_about_the_person_is_named(world: World) -> None:
    """FAILURES 94: it has an ID of hers, so the erasure is done but not complete."""
    world.eden("init", "--yes").ok()
    reflection = _put_unreadable(world, world.mira, user_id=world.anna)
    done = world.eden("forget", "--user", "anna", "--yes")
    assert done.code == 1
    assert f"reflection {reflection} is unreadable and may be about the subject" in done.err
    assert done.err.count("is unreadable") == 5

    documents = _left_in(world, "memory2_facts", "memory2_reflections", "memory2_consolidated")
    world.eden("doctor", "--check", "readable", "--fix", "--yes").ok()
    assert not _left_in(world, "memory2_facts", "memory2_reflections")
    (run,) = {each["actor"]["run_id"] for each in _set_aside(world)}
    world.eden("undo", "--run", run, "--yes").ok()
    put_back = _left_in(world, "memory2_facts", "memory2_reflections", "memory2_consolidated")
    assert put_back == documents

    world.eden("doctor", "--check", "readable", "--fix", "--yes").ok()
    world.eden("forget", "--user", "anna", "--yes").ok()
    assert {each["before"] for each in _set_aside(world)} == {None}
    assert "Rows at dawn." not in _left_of(world)


def _left_in(world: World, *collections: str) -> list[Any]:
    order = [("_id", 1)]
    return [each for name in collections for each in world.database[name].find().sort(order)]


def _set_aside(world: World) -> list[Any]:
    return list(world.database.memory2_audit.find({"action": "set_aside"}))


def _left_of(world: World) -> str:
    """Return all memory and caches in the database, as text."""
    names = [each for each in world.database.list_collection_names() if each.startswith("memory2")]
    stored = [list(world.database[name].find()) for name in (*names, "sessions")]
    return str(stored)


def test_forgotten_memory_that_the_platform_writes_back_is_swept(world: World) -> None:
    """FAILURES 92: it was forgotten while the platform's model was thinking."""
    world.eden("init", "--yes").ok()
    early = world.put_session([*sentences("Anna", 6), *sentences("Everybody", 1, 2, 3)])
    assert world.platform().form(early)
    kept = world.put_session(sentences("Bea", *range(1, 5)), sender=world.bea)
    session = world.put_session([*sentences("Anna", 1, 2, 3), *sentences("Everybody", 7)])

    def forget_meanwhile(messages: Sequence[Message]) -> Learned:
        world.eden("forget", "--user", "anna", "--yes", "--mentions", "keep").ok()
        return learn(messages)

    platform = world.platform(forget_meanwhile)
    assert platform.form(session)
    assert world.platform().form(kept)
    bea = sentences("Bea", *range(1, 5))
    everybody = sentences("Everybody", 1, 2, 3)  # learned before, and kept by choice
    back = [*sentences("Anna", 1, 2, 3), *sentences("Everybody", 7)]
    assert world.facts() == sorted([*bea, *everybody, *back])

    seen = world.eden("doctor", "--check", "forgotten", "--format", "json")
    assert seen.data[0]["count"] == len(back) + 2  # and a reflection on her and on the session
    assert "hive number 1" not in seen.out
    world.eden("cold", "run", "--dry-run").ok()
    assert world.facts() == sorted([*bea, *everybody, *back])
    report = world.eden("cold", "run", "--json").ok().data
    assert (report["forgotten"], report["forgotten_left"]) == (len(back) + 2, 0)
    assert world.facts() == sorted([*bea, *everybody])
    assert "Anna keeps hive number 1." not in _left_of(world)
    assert world.eden("cold", "run", "--json").ok().data["forgotten"] == 0
    world.eden("doctor", "--check", "forgotten").ok()
    forgotten = world.database.memory2_audit.find(
        {"action": "forget", "target_type": {"$ne": "user"}}
    )
    assert all(each["actor"]["command"].startswith("edenmem cold run") for each in forgotten)
    assert world.database.memory2_audit.count_documents({"action": "forget"}) == len(back) + 3


def test_memory_of_deleted_messages_is_swept(world: World) -> None:
    """FAILURES 92: the messages were deleted after the erasure, before the next cold run."""
    world.eden("init", "--yes").ok()
    session = world.put_session(sentences("Anna", 1, 2, 3, 4))

    def forget_meanwhile(messages: Sequence[Message]) -> Learned:
        world.eden("forget", "--user", "anna", "--yes").ok()
        return learn(messages)

    assert world.platform(forget_meanwhile).form(session)
    world.database.messages.delete_many({"session": session})
    assert len(world.facts()) == 4
    assert world.eden("doctor", "--check", "forgotten").code == 1
    assert world.eden("cold", "run", "--json").ok().data["forgotten"] == 6
    assert world.facts() == []


def test_a_forgotten_context_that_an_old_copy_restores_is_dropped(world: World) -> None:
    """FAILURES 92: the platform writes back sessions that it loaded before."""
    world.eden("init", "--yes").ok()
    session = world.put_session(sentences("Anna", *range(1, 5)))
    platform = world.platform()
    assert platform.form(session)
    held = platform.load(Session, session)
    world.eden("forget", "--user", "anna", "--yes").ok()
    assert "Anna keeps hive number 1." not in _left_of(world)
    other = world.put_session(
        sentences("Bea", 1, 2, 3, 4),
        sender=world.bea,
        users=[world.bea],
        agents=[world.put_agent("nova", user_memory_enabled=True)],
    )
    assert world.platform().form(other)
    world.eden("forget", "--user", "anna", "--yes").ok()  # drops no context of nova
    cached = world.context_of(other)["cached_memory_context"]
    assert cached
    platform.say(held, world.anna, "Hello again.")
    assert "Anna keeps hive number 1." in _left_of(world)
    assert world.eden("doctor", "--check", "forgotten").code == 1
    world.eden("doctor", "--check", "forgotten", "--fix", "--yes").ok()
    assert "Anna keeps hive number 1." not in _left_of(world)
    assert world.context_of(other)["cached_memory_context"] == cached


def test_memory_that_others_may_have_taught_is_left_and_named(world: World) -> None:
    """FAILURES 92: the platform names all messages of a range as the sources of each fact."""
    world.eden("init", "--yes").ok()
    session = world.put_session(sentences("Everybody", 1), users=[world.anna, world.bea])
    world.put_messages(session, sentences("Everybody", 2, 3, 4), sender=world.bea)

    def forget_meanwhile(messages: Sequence[Message]) -> Learned:
        world.eden("forget", "--user", "anna", "--yes").ok()
        return learn(messages)

    assert world.platform(forget_meanwhile).form(session)
    report = world.eden("cold", "run", "--json").ok().data
    assert (report["forgotten"], report["forgotten_left"]) == (0, 5)
    assert world.facts() == sentences("Everybody", 1, 2, 3, 4)
    fixed = world.eden("doctor", "--check", "forgotten", "--fix", "--yes")
    assert fixed.code == 1
    assert "it may also come from messages of others" in " ".join(fixed.out.split())
    world.eden("forget", "--user", "anna", "--learned", "remove", "--yes")
    world.eden("doctor", "--check", "forgotten").ok()


def test_new_messages_are_formed_after_a_sweep(world: World) -> None:
    """FAILURES 92: an old copy formed forgotten and new messages, and its proof was noted."""
    world.eden("init", "--yes").ok()
    session = world.put_session(sentences("Anna", 1, 2, 3))
    platform = world.platform()
    held = platform.load(Session, session)
    world.eden("forget", "--user", "anna", "--yes", "--mentions", "keep").ok()
    new = sentences("Anna", 4, 5, 6, 7)
    world.put_messages(session, new, after=utc_now())
    platform._form(held)
    assert "Anna keeps hive number 1." in world.facts()
    world.eden("form", str(session))  # notes what the platform read
    world.eden("cold", "run").ok()
    assert not set(world.facts()) & set(sentences("Anna", 1, 2, 3))
    world.eden("form", str(session)).ok()
    assert set(new) <= set(world.facts())


def test_a_deleted_fact_of_the_platform_is_not_formed_again(world: World) -> None:
    """Its sources were all that proved that the messages were read."""
    world.eden("init", "--yes").ok()
    session = world.put_session(sentences("Anna", *range(4)))
    assert world.platform().form(session)
    for fact in world.eden.json("fact", "list", "--agent", "mira", "--user", "anna"):
        world.eden("delete", fact["id"], "--yes").ok()
    world.database.memory2_reflections.delete_many({})
    world.age(minutes=30)
    world.eden("cold", "run").ok()
    assert world.read == []
    assert world.facts() == []


def test_a_text_that_the_platform_wrote_meanwhile_is_named(world: World) -> None:
    """FAILURES 92: its model had begun with what was forgotten."""
    world.eden("init", "--yes").ok()
    session = world.put_session([*sentences("Anna", 1, 2), *sentences("Everybody", 1, 2)])
    assert world.platform().form(session)
    world.eden("forget", "--user", "anna", "--yes", "--mentions", "keep").ok()
    key = {"scope": "agent", "agent_id": world.mira}
    text = {"consolidated_content": "VERSION: 1\nAnna keeps hives.", "word_limit": 2000}
    world.database.memory2_consolidated.update_one(
        key,
        {"$set": {**text, "last_consolidated_at": utc_now()}, "$setOnInsert": {"_id": ObjectId()}},
        upsert=True,
    )
    seen = world.eden("doctor", "--check", "forgotten", "--json")
    assert seen.code == 1
    assert "check or edit the text" in seen.out
    edited = ("--content", "The hives are old.", "--yes")
    world.eden("consolidation", "edit", "--agent", "mira", *edited).ok()
    world.eden("doctor", "--check", "forgotten").ok()
