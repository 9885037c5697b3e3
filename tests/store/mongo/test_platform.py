"""Documents of the platform: old, incomplete or odd, and preserved."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId

from edenmem.errors import StoreError
from edenmem.models.changes import (
    AddFact,
    AddReflection,
    ChangeStatus,
    RemoveReflection,
    SetAgentToggles,
    SetPrivacy,
)
from edenmem.models.host import CachedContext
from edenmem.models.ids import new_id
from edenmem.models.memory import content_hash
from edenmem.models.scope import Scope
from edenmem.store.mongo import MongoStore
from tests.store.mongo.conftest import OpenMongo
from tests.support.builders import (
    NOW,
    change_set,
    make_fact,
    make_formation,
    make_messages,
    make_reflection,
    make_session,
    removal,
    revision,
    some,
    writing,
)
from tests.support.forgetting import forget, make_town
from tests.support.formations import Steps
from tests.support.memory import add_fact, add_reflection, applied, apply_one, facts_of
from tests.support.names import stable
from tests.support.vectors import count_models, random_unit

pytestmark = pytest.mark.slow

LATER = NOW + timedelta(hours=1)
AGENT, USER = ObjectId(), ObjectId()
SCOPE = Scope.user(str(AGENT), str(USER))


def platform_fact(agent: ObjectId, user: ObjectId | None, content: str, **fields: Any) -> Any:
    """A fact of the platform, without edenmem's fields."""
    return {
        "content": content,
        "hash": content_hash(content),
        "embedding": [0.6, 0.8],
        "embedding_model": "text-embedding-3-small",
        "scope": "user" if user else "agent",
        "agent_id": agent,
        "user_id": user,
        "formed_at": NOW,
        "session_id": ObjectId(),
        "source_message_ids": [ObjectId()],
        "access_count": 0,
        "version": 1,
        "createdAt": NOW,
        "updatedAt": NOW,
        **fields,
    }


def test_facts_of_the_platform_are_read_and_changed(mongo: MongoStore, database: Any) -> None:
    stored = platform_fact(AGENT, USER, "Anna paints.", unknown={"kept": [1, 2]})
    database.memory2_facts.insert_one(stored)
    (fact,) = facts_of(mongo, SCOPE, with_vectors=True)
    assert (fact.content, fact.version, fact.private) == ("Anna paints.", 1, False)
    assert fact.embedding is not None
    (entry,) = mongo.history.versions("fact", fact.id)
    assert (entry.version, entry.content, entry.at) == (1, "Anna paints.", NOW)
    applied(
        mongo,
        SetPrivacy(scope=SCOPE, target_type="fact", target_id=fact.id, private=True, at=LATER),
        revision(fact, "New.", scope=SCOPE, at=LATER),
    )
    after = database.memory2_facts.find_one({"_id": stored["_id"]})
    assert after["unknown"] == {"kept": [1, 2]}
    assert (after["content"], after["hash"]) == ("New.", content_hash("New."))
    assert "embedding" not in after
    assert [e.content for e in mongo.history.versions("fact", fact.id)] == ["Anna paints.", "New."]


@pytest.mark.parametrize(
    "odd",
    [
        {"source_message_ids": None},
        {"source_message_ids": {}},
        {"formed_at": None},
        {"formed_at": NOW.replace(tzinfo=None)},
        {"version": None},
        {"embedding": []},
        {"embedding": None},
        {"embedding": [0.0, 0.0]},
        {"session_id": str(ObjectId())},
        {"access_count": None},
        {"access_count": math.inf},
        {"access_count": math.nan},
        {"scope": ["user"]},
        {"hash": None},
    ],
    ids=stable,
)
def test_odd_facts_can_be_read(mongo: MongoStore, database: Any, odd: dict[str, Any]) -> None:
    """Known failures 27 and 39: zeros for a vector, times without a zone."""
    database.memory2_facts.insert_one(platform_fact(AGENT, USER, "Anna paints.", **odd))
    (fact,) = facts_of(mongo, SCOPE, with_vectors=True)
    assert fact.content == "Anna paints."
    assert fact.formed_at == NOW
    assert fact.hash == content_hash("Anna paints.")
    if "embedding" in odd:
        assert fact.embedding is None
        assert mongo.vectors.vector_model_names([fact.home]) == ()
        assert count_models(mongo) == {"": 1}


def test_a_fact_of_two_kinds_belongs_to_the_user_alone(mongo: MongoStore, database: Any) -> None:
    database.memory2_facts.insert_one(
        platform_fact(AGENT, USER, "Anna paints.", scope=["user", "agent"])
    )
    assert facts_of(mongo, Scope.agent(str(AGENT))) == []
    assert len(facts_of(mongo, SCOPE)) == 1


def test_written_documents_have_the_types_of_the_platform(mongo: MongoStore, database: Any) -> None:
    session = new_id()
    add_fact(
        mongo,
        SCOPE,
        embedding=random_unit(1, 4),
        embedding_model="m",
        session_id=session,
        source_message_ids=(new_id(),),
    )
    add_reflection(mongo, SCOPE, session_id=session)
    document = database.memory2_facts.find_one()
    assert {type(document[name]) for name in ("_id", "agent_id", "user_id", "session_id")} == {
        ObjectId
    }
    assert all(isinstance(key, ObjectId) for key in document["source_message_ids"])
    assert all(type(number) is float for number in document["embedding"])
    assert document["scope"] == "user"
    for name in ("memory2_facts", "memory2_reflections", "memory2_consolidated", "memory2_audit"):
        document = database[name].find_one()
        assert isinstance(document["createdAt"], datetime), name
        assert isinstance(document["updatedAt"], datetime), name
    assert isinstance(database.memory2_consolidated.find_one()["unabsorbed_ids"][0], ObjectId)


def test_vectors_may_be_binary_and_both_forms_are_read(open_mongo: OpenMongo) -> None:
    store = open_mongo(embedding_storage="bindata")
    store.database.initialize()
    scope = Scope.user(new_id(), new_id())
    fact = add_fact(store, scope, "binary", embedding=random_unit(1, 8), embedding_model="m")
    raw = store.connection.database.memory2_facts
    assert raw.find_one()["embedding"].subtype == 9
    raw.insert_one(
        platform_fact(
            ObjectId(scope.agent_id),
            ObjectId(scope.owner),
            "array",
            embedding=[1.0] + [0.0] * 7,
            embedding_model="m",
        )
    )
    facts = {f.content: f for f in facts_of(store, scope, with_vectors=True)}
    assert facts["binary"].embedding == random_unit(1, 8)
    assert facts["array"].embedding is not None
    (near,) = store.search.semantic_candidates(
        filter=_all(scope), vectors=[random_unit(1, 8)], model="m", limit=9
    )
    assert near[0].fact_id == fact.id
    assert len(near) == 2
    assert count_models(store) == {"m": 2}


def _all(scope: Scope) -> Any:
    from edenmem.models.search import FactFilter

    return FactFilter(scopes=(scope,))


# -- consolidated texts --------------------------------------------------------------------------


def platform_text(agent: ObjectId, user: ObjectId, content: str, **fields: Any) -> Any:
    return {
        "scope": "user",
        "agent_id": agent,
        "user_id": user,
        "session_id": None,
        "consolidated_content": content,
        "word_limit": 400,
        "unabsorbed_ids": [],
        "last_consolidated_at": NOW,
        "createdAt": NOW,
        "updatedAt": NOW,
        **fields,
    }


@pytest.mark.parametrize(
    ("content", "version", "text"),
    [
        ("VERSION: 7\nAnna paints.", 7, "Anna paints."),
        ("Anna paints.", 1, "Anna paints."),
        ("", 0, ""),
        (None, 0, ""),
        ("VERSION: 3", 3, ""),
        ("Their VERSION: 9\nstands.", 1, "Their VERSION: 9\nstands."),
    ],
)
def test_texts_of_the_platform_bring_their_version(
    mongo: MongoStore,
    database: Any,
    content: str,
    version: int,
    text: str,
) -> None:
    stored = platform_text(AGENT, USER, content, unknown="kept")
    database.memory2_consolidated.insert_one(stored)
    found = mongo.memory.consolidations([SCOPE])[SCOPE]
    assert (found.version, found.consolidated_content) == (version, text)
    change = writing(SCOPE, "Ours.", expected_version=version, at=LATER)
    applied(mongo, change)
    after = database.memory2_consolidated.find_one({"_id": stored["_id"]})
    assert after["consolidated_content"] == f"VERSION: {version + 1}\nOurs."
    assert (after["version"], after["unknown"]) == (version + 1, "kept")
    history = mongo.history.versions("consolidation", "", scope=SCOPE)
    before = [(version, text)] if version else []
    assert [(e.version, e.content) for e in history] == [*before, (version + 1, "Ours.")]


def test_a_text_rewritten_by_the_platform_is_a_newer_version(
    mongo: MongoStore, database: Any
) -> None:
    """Known failure 15: a writer based on an older version does not overwrite the newer one."""
    ours = writing(SCOPE, "Ours.")
    applied(mongo, ours)
    database.memory2_consolidated.update_one(
        {}, {"$set": {"consolidated_content": "VERSION: 2\nTheirs.", "last_consolidated_at": LATER}}
    )
    found = mongo.memory.consolidations([SCOPE])[SCOPE]
    assert (found.version, found.consolidated_content) == (2, "Theirs.")
    late = writing(SCOPE, "Late.", expected_version=1, at=LATER)
    assert apply_one(mongo, late).status is ChangeStatus.CONFLICT
    next_one = writing(SCOPE, "Next.", expected_version=2, at=LATER)
    applied(mongo, next_one)
    contents = [e.content for e in mongo.history.versions("consolidation", "", scope=SCOPE)]
    assert contents == ["Ours.", "Theirs.", "Next."]


def test_a_text_of_the_platform_under_a_taken_number_is_kept(
    mongo: MongoStore, database: Any
) -> None:
    """FAILURES 95: history lacked it, so that 'restore' brought ours of that number."""

    def write(content: str, version: int) -> None:
        change = writing(SCOPE, content, expected_version=version, at=LATER)
        applied(mongo, change)

    def contents() -> dict[int, str]:
        found = mongo.history.versions("consolidation", "", scope=SCOPE)
        return {entry.version: entry.content for entry in found}

    def rewrite(text: str) -> None:
        database.memory2_consolidated.update_one({}, {"$set": {"consolidated_content": text}})

    write("Ours.", 0)
    write("Ours, too.", 1)
    rewrite("VERSION: 2\nTheirs.")
    found = mongo.memory.consolidations([SCOPE])[SCOPE]
    assert (found.version, found.consolidated_content, found.absorbed_ids) == (3, "Theirs.", ())
    write("Next.", 3)
    rewrite("VERSION: 4\nNext.")  # nothing new
    assert mongo.memory.consolidations([SCOPE])[SCOPE].version == 4
    texts = {1: "Ours.", 2: "Ours, too.", 3: "Theirs.", 4: "Next."}
    assert contents() == texts
    # The platform clears the memory, and begins again.
    document = database.memory2_consolidated.find_one_and_delete({})
    database.memory2_consolidated.insert_one(
        platform_text(AGENT, USER, "VERSION: 1\nAnother life.")
    )
    assert document["version"] == 4
    assert contents()[1] == "Another life."
    write("Last.", 1)
    assert contents() == {**texts, 1: "Another life.", 2: "Last."}


@pytest.mark.parametrize(
    "line", ["0", "-3", "2147483649", "9223372036854775808", "9" * 5000], ids=lambda text: text[:19]
)
def test_an_absurd_version_line_is_no_version(mongo: MongoStore, database: Any, line: str) -> None:
    """FAILURES 95: a number over 2^63 ended the consolidation of the scope."""
    database.memory2_consolidated.insert_one(
        platform_text(AGENT, USER, f"VERSION: {line}\nTheirs.")
    )
    for version, text in ((1, "Theirs."), (3, "Again.")):
        found = mongo.memory.consolidations([SCOPE])[SCOPE]
        assert (found.version, found.consolidated_content) == (version, text)
        change = writing(SCOPE, "Ours.", expected_version=version, at=LATER)
        applied(mongo, change)
        again = {"consolidated_content": f"VERSION: {line}\nAgain."}
        database.memory2_consolidated.update_one({}, {"$set": again})


def test_versions_after_the_greatest_of_the_platform_are_ours(
    mongo: MongoStore, database: Any
) -> None:
    """FAILURES 95: 2^31 is the last number that is believed of the platform."""
    last = 2**31
    database.memory2_consolidated.insert_one(
        platform_text(AGENT, USER, f"VERSION: {last}\nTheirs.")
    )
    for version in (last, last + 1):
        change = writing(SCOPE, f"{version}", expected_version=version, word_limit=9, at=LATER)
        applied(mongo, change)


@pytest.mark.parametrize("buffer", [None, {}, "missing", "text"])
def test_odd_buffers_take_reflections(mongo: MongoStore, database: Any, buffer: Any) -> None:
    old = make_reflection(SCOPE, "old")
    document = platform_text(AGENT, USER, "VERSION: 1\nText.", unabsorbed_ids=buffer)
    if buffer == "missing":
        del document["unabsorbed_ids"]
    elif buffer == "text":
        applied(mongo, AddReflection(reflection=old, word_limit=9))
        database.memory2_consolidated.delete_many({})
        document["unabsorbed_ids"] = [old.id]
    database.memory2_consolidated.insert_one(document)
    new = add_reflection(mongo, SCOPE, "new", formed_at=LATER)
    expected = [old.id, new.id] if buffer == "text" else [new.id]
    assert [r.id for r in mongo.memory.pending(SCOPE)] == expected
    change = writing(
        SCOPE, "Next.", expected_version=1, word_limit=9, at=LATER, absorbed_ids=tuple(expected)
    )
    applied(mongo, change)
    assert mongo.memory.pending(SCOPE) == []
    assert list(mongo.memory.reflections([SCOPE], absorbed=False)) == []


def test_a_reflection_whose_id_is_text_in_the_buffer_can_be_removed(
    mongo: MongoStore, database: Any
) -> None:
    reflection = add_reflection(mongo, SCOPE)
    database.memory2_consolidated.update_one({}, {"$set": {"unabsorbed_ids": [reflection.id]}})
    applied(
        mongo,
        RemoveReflection(scope=SCOPE, reflection_id=reflection.id, expected_version=1, at=LATER),
    )
    assert database.memory2_consolidated.find_one()["unabsorbed_ids"] == []


def test_groups_and_shards_are_compatible_with_the_platforms_unique_index(
    mongo: MongoStore, database: Any
) -> None:
    """The platform's (agent, user, session, scope) is unique; groups of an agent would be equal."""
    database.memory2_consolidated.create_index(
        [("agent_id", 1), ("user_id", 1), ("session_id", 1), ("scope", 1)],
        unique=True,
        name="consolidated_scope_idx",
    )
    agent = new_id()
    scopes = [
        *(Scope.group(agent, name) for name in ("one", "two")),
        *(Scope.shard(agent, name) for name in ("one", "two")),
    ]
    for scope in scopes:
        add_reflection(mongo, scope)
    texts = mongo.memory.consolidations(scopes)
    assert texts.keys() == set(scopes)
    assert {text.session_id for text in texts.values()} == {None}


# -- the host's own documents --------------------------------------------------------------------


@pytest.mark.parametrize("context", [None, "missing", {}, {"last_activity": NOW}])
def test_progress_is_written_into_any_memory_context(
    mongo: MongoStore, database: Any, context: Any
) -> None:
    """Known failure 14: the session's document is never rewritten."""
    agent = new_id()
    session = make_session([agent])
    mongo.host.put_session(session)
    fields = {"unknown": 7, "memory_context": context}
    database.sessions.update_one({}, {"$set": fields})
    if context == "missing":
        database.sessions.update_one({}, {"$unset": {"memory_context": ""}})
    messages = make_messages(session, 4)
    mongo.host.add_messages(session.id, messages)
    formation = make_formation(session, messages)
    assert mongo.formations.claim(formation)
    assert Steps(mongo).record(formation.id)
    Steps(mongo).apply(formation.id, now=NOW)
    mongo.contexts.cache_context(
        session.id, agent, CachedContext(xml="<x/>", fingerprint="f", built_at=LATER)
    )
    after = database.sessions.find_one()
    assert after["unknown"] == 7
    written = after["memory_context"]
    assert written["last_memory_message_id"] == ObjectId(messages[-1].id)
    assert written["messages_since_memory_formation"] == 0
    assert written["cached_memory_context"] == "<x/>"
    assert written["memory_context_timestamp"].replace(tzinfo=UTC) == LATER
    assert written["last_activity"].replace(tzinfo=UTC) == messages[-1].created_at


def test_a_claim_of_any_agent_moves_the_progress_to_the_end_and_never_back(
    mongo: MongoStore, database: Any
) -> None:
    first, second = new_id(), new_id()
    session = make_session([first, second])
    mongo.host.put_session(session)
    messages = make_messages(session, 6)
    mongo.host.add_messages(session.id, messages)

    def form(agent: str, seq: int, part: list[Any], *, failed: bool = False) -> str:
        formation = make_formation(session, part, agent_id=agent, seq=seq)
        assert mongo.formations.claim(formation)
        if failed:
            assert Steps(mongo).fail(formation.id, worker="worker-1", now=NOW, error="no")
        else:
            finish(formation.id, "worker-1")
        return formation.id

    def finish(formation_id: str, worker: str) -> None:
        outcome: dict[str, Any] = {"decisions": (), "usage": (), "counts": {}, "now": NOW}
        assert Steps(mongo).record(formation_id, worker=worker, **outcome)
        Steps(mongo).apply(formation_id, now=NOW)

    def progress() -> Any:
        return database.sessions.find_one()["memory_context"].get("last_memory_message_id")

    form(second, 1, messages[:4])
    assert str(progress()) == messages[5].id
    older = form(first, 1, messages[:2], failed=True)
    form(first, 2, messages[2:6])
    assert str(progress()) == messages[5].id
    assert Steps(mongo).retry(older, now=NOW)
    assert Steps(mongo).claim(older, worker="worker-2", now=NOW, lease_until=LATER)
    finish(older, "worker-2")
    assert str(progress()) == messages[5].id


def test_a_context_written_by_the_platform_is_recognized(mongo: MongoStore, database: Any) -> None:
    """Known failure 7: a cached context is only valid with its fingerprint."""
    agent = new_id()
    session = make_session([agent])
    mongo.host.put_session(session)
    mongo.contexts.cache_context(
        session.id, agent, CachedContext(xml="a", fingerprint="f", built_at=NOW)
    )
    assert mongo.contexts.find_context(session.id, agent) is not None
    database.sessions.update_one(
        {},
        {
            "$set": {
                "memory_context.cached_memory_context": "theirs",
                "memory_context.memory_context_timestamp": LATER,
            }
        },
    )
    assert mongo.contexts.find_context(session.id, agent) is None


def test_old_sessions_and_messages_are_read(mongo: MongoStore, database: Any) -> None:
    agent, user, session = ObjectId(), ObjectId(), ObjectId()
    database.sessions.insert_one(
        {
            "_id": session,
            "agents": [str(agent), agent],
            "users": None,
            "extras": None,
            "memory_context": None,
            "createdAt": NOW,
            "updatedAt": LATER,
        }
    )
    database.messages.insert_many(
        [
            {
                "_id": ObjectId(),
                "session": [ObjectId(), session],
                "role": role,
                "content": None,
                "tool_calls": calls,
                "trigger": trigger,
                "sender": user,
                "createdAt": NOW,
            }
            for role, calls, trigger in (
                ("user", None, None),
                ("assistant", {}, None),
                ("tool", [{"tool": "x", "args": {}, "cost": 1}], ObjectId()),
                ("unheard of", [], None),
            )
        ]
    )
    found = some(mongo.host.session(str(session)))
    assert (found.users, found.incognito, found.last_activity) == ((), False, LATER)
    assert [s.id for s in mongo.host.sessions(agent_id=str(agent))] == [str(session)]
    messages = list(mongo.host.messages(str(session)))
    assert [m.trigger for m in messages] == [False, False, True, False]
    assert {m.session_id for m in messages} == {str(session)}
    assert messages[2].tool_calls[0].tool == "x"
    mongo.host.put_session(make_session([new_id()], [str(user)], id=str(session)))
    after = database.sessions.find_one({"_id": session})
    assert after["users"] == [user]
    assert len(after["agents"]) == 3


def test_a_message_without_a_time_has_the_time_of_its_id(mongo: MongoStore, database: Any) -> None:
    """A retried formation reads its messages by ID."""
    session = ObjectId()
    first, second, third = (ObjectId.from_datetime(NOW + n * timedelta(hours=1)) for n in range(3))
    fields = {"session": [session], "role": "user", "content": "Hello."}
    database.messages.insert_many(
        [
            {"_id": third, "createdAt": NOW + timedelta(hours=2), **fields},
            {"_id": second, **fields},
            {"_id": first, "createdAt": NOW, **fields},
        ]
    )
    ids = [str(first), str(second), str(third)]
    messages = list(mongo.host.messages(str(session), ids=ids))
    assert [message.id for message in messages] == ids
    assert messages[1].created_at == LATER


def test_toggles_touch_two_fields(mongo: MongoStore, database: Any) -> None:
    agent = ObjectId()
    document = {"_id": agent, "type": "agent", "username": "eve", "deleted": False, "other": [1]}
    database.users3.insert_one(dict(document))
    applied(mongo, SetAgentToggles(agent_id=str(agent), at=NOW, user_memory_enabled=False))
    after = database.users3.find_one()
    assert after.pop("updatedAt")
    assert after == {**document, "user_memory_enabled": False}


# -- indexes -------------------------------------------------------------------------------------


def test_nothing_is_added_without_its_unique_index(open_mongo: OpenMongo) -> None:
    """On an unprepared database, every worker would get every claim."""
    store = open_mongo()
    session = make_session()
    messages = make_messages(session, 4)
    store.host.put_session(session)
    store.host.add_messages(session.id, messages)
    scope = Scope.agent(session.agents[0])
    fact, thought = make_fact(scope), make_reflection(scope)
    attempts: list[Callable[[], object]] = [
        lambda: store.formations.claim(make_formation(session, messages)),
        lambda: store.changes.apply(change_set(AddFact(fact=fact))),
        lambda: store.changes.apply(change_set(AddReflection(reflection=thought, word_limit=9))),
    ]
    for attempt in attempts:
        with pytest.raises(StoreError, match="not initialized") as caught:
            attempt()
        assert caught.value.hint == "run 'edenmem init'"
    assert list(store.log.audit()) == []
    store.database.initialize()
    for attempt in attempts:
        assert attempt()


def test_duplicates_that_prevent_a_key_can_be_removed(open_mongo: OpenMongo) -> None:
    store = open_mongo()
    agent = ObjectId()
    twice = [platform_fact(agent, None, "Same.") for _ in range(2)]
    store.connection.database.memory2_facts.insert_many(twice)
    with pytest.raises(StoreError, match="fact_dedup_idx"):
        store.database.initialize()
    one, _ = facts_of(store, Scope.agent(str(agent)))
    applied(store, removal(one, at=LATER))
    store.database.initialize()
    assert len(facts_of(store, one.home)) == 1


def test_names_of_collections_are_settings(open_mongo: OpenMongo) -> None:
    store = open_mongo(sessions_collection="s", messages_collection="m", users_collection="people")
    store.database.initialize()
    session = make_session()
    store.host.put_session(session)
    store.host.add_messages(session.id, make_messages(session, 2))
    counts = store.database.info().counts
    assert (counts["sessions"], counts["messages"], counts["users"]) == (1, 2, 0)


def test_additions_take_few_round_trips(open_mongo: OpenMongo) -> None:
    """Known failure 9, and its cost: three hundred facts are not three hundred writes."""
    from tests.store.mongo.test_indexes import Watcher

    watcher = Watcher()
    store = open_mongo(listeners=(watcher,))
    store.database.initialize()
    scope = Scope.user(new_id(), new_id())
    facts = [make_fact(scope, f"fact {n % 270}") for n in range(300)]
    reflections = [make_reflection(scope, f"thought {n}") for n in range(100)]
    watcher.commands = 0
    results = store.changes.apply(
        change_set(
            *(AddFact(fact=fact) for fact in facts),
            *(AddReflection(reflection=r, word_limit=9) for r in reflections),
        )
    )
    assert [result.status for result in results].count(ChangeStatus.DUPLICATE) == 30
    assert watcher.commands < 50


@pytest.mark.parametrize("cursor", ["none", "null", "old", "deleted"])
def test_forgetting_writes_only_its_own_fields_of_a_session(
    mongo: MongoStore, database: Any, cursor: str
) -> None:
    """Known failures 7, 49 and 58: memory was left in the platform's caches, with its old
    cursor."""
    town = make_town(mongo)
    key = {"_id": ObjectId(town.shared.id)}
    messages = list(mongo.host.messages(town.shared.id))
    later = make_messages(town.shared, 2, start=LATER, sender=town.bruno.id)
    mongo.host.add_messages(town.shared.id, later)
    # The message at the cursor was deleted: the platform formed everything up to then.
    gone = ObjectId.from_datetime(LATER + timedelta(seconds=10))
    leftovers = {
        "cached_episode_memories": [{"content": "quince"}],
        "episode_memories_timestamp": NOW,
        "agent_memory_timestamp": NOW,
        "user_memory_timestamp": NOW,
    }
    context = {
        "cached_memory_context": "<m>quince</m>",
        "memory_context_timestamp": NOW,
        "last_activity": NOW,
        "last_memory_message_id": {"old": ObjectId(messages[0].id), "deleted": gone}.get(cursor),
        "messages_since_memory_formation": 7,
        "weighted_tokens_since_memory_formation": 70,
        "unknown": 1,
        **leftovers,
    }
    change = {
        "none": {"$unset": {"memory_context": ""}},
        "null": {"$set": {"memory_context": None}},
    }
    database.sessions.update_one(key, change.get(cursor, {"$set": {"memory_context": context}}))
    before = database.sessions.find_one(key)

    assert forget(mongo, user="zenobia").complete

    after = database.sessions.find_one(key)
    last = later[-1] if cursor == "deleted" else messages[-1]
    passed: dict[str, Any] = {
        "last_memory_message_id": ObjectId(last.id),
        "messages_since_memory_formation": 0 if cursor == "deleted" else 2,
    }
    if cursor in ("old", "deleted"):
        kept = before["memory_context"]
        tokens = 0 if cursor == "deleted" else 70
        passed |= {"last_activity": kept["last_activity"], "unknown": 1}
        passed["weighted_tokens_since_memory_formation"] = tokens
    written = {name: after["memory_context"].get(name) for name in passed}
    assert written == passed
    assert "quince" not in repr(after)
    caches = {*leftovers, "cached_memory_context", "memory_context_timestamp"}
    assert caches.isdisjoint(after["memory_context"])
    assert after | {"memory_context": None} == before | {"memory_context": None}
