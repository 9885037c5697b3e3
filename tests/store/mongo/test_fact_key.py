"""The unique key of facts next to the platform's narrow one, and its replacement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bson import ObjectId
from pymongo.errors import DuplicateKeyError, OperationFailure

from edenmem.errors import ConflictError, FactKeyConflict, StoreError
from edenmem.models.changes import AddFact, AddReflection, AddUser, ChangeStatus, ReviseFact
from edenmem.models.formation import FormationStatus
from edenmem.models.ids import new_id
from edenmem.models.indexes import IndexState, IndexWish
from edenmem.models.scope import Scope
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core.collections import FACT_KEY, GIVEN_KEY, TEMPORARY_FACT_KEY
from tests.store.mongo.conftest import OpenMongo
from tests.store.mongo.faults import Breaker, wrapped_store
from tests.store.mongo.test_platform import LATER, platform_fact
from tests.support.builders import (
    NOW,
    change_set,
    make_fact,
    make_formation,
    make_messages,
    make_reflection,
    make_session,
    make_user,
    removal,
    some,
)
from tests.support.exhaustive import spared
from tests.support.formations import Steps
from tests.support.memory import add_fact, applied, at_once, facts_of

pytestmark = pytest.mark.slow


NARROW = [("hash", 1), ("agent_id", 1)]
WISH = IndexWish(analyzer="lucene.english")


def start_platform(raw: Any) -> None:
    """Create the indexes of facts like a new process of the platform."""
    options = {"background": True}
    raw.create_index(NARROW, name="fact_dedup_idx", unique=True, **options)
    raw.create_index([("agent_id", 1), ("scope", 1)], name="fact_scope_idx", **options)
    raw.create_index([("agent_id", 1), ("user_id", 1)], name="fact_user_idx", **options)


def with_platform(raw: Any) -> None:
    """The platform was first."""
    start_platform(raw)


def with_both(raw: Any) -> None:
    """An operator created the key under another name, and a narrow one."""
    raw.create_index(FACT_KEY.keys, name="by_hand_too", unique=True)
    raw.create_index([("hash", 1)], name="by_hand", unique=True)


AGENT, USER = ObjectId(), ObjectId()
SENTENCE = "Anna paints."
BEFORE = [with_platform, spared(with_both)]


def state(store: MongoStore) -> IndexState:
    (found,) = (one for one in store.indexes.list_indexes(WISH) if one.name == FACT_KEY.name)
    return found


def unique_keys(raw: Any) -> set[str]:
    found = {name for name, index in raw.index_information().items() if index.get("unique")}
    return found - {GIVEN_KEY.name}


def narrow_store(open_mongo: OpenMongo) -> MongoStore:
    """A store where the platform ran first, and `initialize` second."""
    store = open_mongo()
    start_platform(store.connection.database.memory2_facts)
    store.database.initialize()
    return store


# -- before the replacement ----------------------------------------------------------------------


def test_only_facts_are_refused(open_mongo: OpenMongo) -> None:
    """Known failure 54: the narrow index dropped facts, and the run was reported as applied."""
    store = open_mongo()
    raw = store.connection.database.memory2_facts
    start_platform(raw)
    raw.insert_one(platform_fact(AGENT, USER, SENTENCE))
    before = store.connection.database.list_collection_names(), raw.index_information()
    plan = store.database.preparation()
    assert (store.connection.database.list_collection_names(), raw.index_information()) == before
    assert any("edenmem_fact_recent" in step for step in plan.steps)
    assert not any("fact_dedup_idx" in step for step in plan.steps)
    made = store.database.initialize()
    assert list(plan.steps) == made
    (warning,) = store.database.preparation().warnings
    assert "fact_dedup_idx" in warning
    assert "edenmem index create --replace" in warning
    assert store.database.preparation().steps == ()
    assert raw.index_information()["fact_dedup_idx"]["key"] == NARROW
    assert (state(store).status, state(store).replaces) == ("conflicting", ("fact_dedup_idx",))

    (fact,) = facts_of(store, Scope.user(str(AGENT), str(USER)))
    for change in (
        AddFact(fact=make_fact(Scope.agent(str(AGENT)))),
        ReviseFact(
            scope=fact.home, fact_id=fact.id, expected_version=1, content="She draws.", at=LATER
        ),
    ):
        with pytest.raises(FactKeyConflict, match="fact_dedup_idx") as caught:
            applied(store, change)
        assert "edenmem index create --replace" in (caught.value.hint or "")
    assert list(store.log.audit()) == []
    applied(store, AddReflection(reflection=make_reflection(fact.home), word_limit=9))
    applied(store, removal(fact, at=LATER))


def test_a_fact_refused_by_another_index_fails_its_range(mongo: MongoStore) -> None:
    """Known failure 54: it was dropped, and its messages counted as done."""
    raw = mongo.connection.database.memory2_facts
    raw.create_index([("session_id", 1), ("hash", 1)], name="theirs", unique=True)
    (warning,) = mongo.database.preparation().warnings
    assert "theirs" in warning
    session = make_session()
    messages = make_messages(session, 4)
    mongo.host.put_session(session)
    mongo.host.add_messages(session.id, messages)
    agent = session.agents[0]
    one = make_fact(Scope.agent(agent), SENTENCE, session_id=session.id)
    other = make_fact(Scope.user(agent, new_id()), SENTENCE, session_id=session.id)
    formation = make_formation(session, messages)
    assert mongo.formations.claim(formation)
    assert Steps(mongo).record(
        formation.id,
        worker=formation.worker or "",
        changes=change_set(AddFact(fact=one), AddFact(fact=other)),
    )
    for _ in range(2):  # the next run meets the same
        with pytest.raises(ConflictError, match="theirs"):
            Steps(mongo).apply(formation.id, now=NOW)
        kept = some(mongo.formations.formation(formation.id))
        assert kept.status is FormationStatus.RECORDED
        assert "theirs" in (kept.error or "")
    assert list(mongo.log.audit()) == []
    assert facts_of(mongo, one.home) == []

    add_fact(mongo, Scope.group(agent, "choir"), SENTENCE, session_id=session.id)
    lone = add_fact(mongo, other.home, "Anna draws.", session_id=session.id)
    revision = ReviseFact(
        scope=lone.home, fact_id=lone.id, expected_version=1, content=SENTENCE, at=LATER
    )
    with pytest.raises(ConflictError, match="theirs"):
        applied(mongo, revision)
    assert facts_of(mongo, lone.home) == [lone]

    raw.drop_index("theirs")
    statuses = [one.status for one in Steps(mongo).apply(formation.id, now=NOW)]
    assert statuses == [ChangeStatus.APPLIED] * 2
    assert [fact.id for fact in facts_of(mongo, one.home)] == [one.id]
    assert other.id in {fact.id for fact in facts_of(mongo, other.home)}


# -- replacing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("prepare", BEFORE)
def test_a_replacement_can_be_killed_at_every_command(
    open_mongo: OpenMongo, prepare: Callable[[Any], None]
) -> None:
    """Known failures 47 and 54: facts are protected throughout, and a second run completes it."""
    at: int | None = None
    points: list[int] = []
    while True:
        breaker = Breaker(at)
        store = open_mongo()
        raw = store.connection.database.memory2_facts
        raw.insert_one(platform_fact(AGENT, USER, SENTENCE))
        prepare(raw)
        store.database.initialize()
        breaking = wrapped_store(store, breaker.around)
        if at is None:
            breaking.indexes.replace_index(FACT_KEY.name)
            points = [n for n, what in enumerate(breaker.log) if is_index_command(what)]
            assert len(points) >= 8
        else:
            with pytest.raises(StoreError):
                breaking.indexes.replace_index(FACT_KEY.name)
            with pytest.raises(DuplicateKeyError):
                raw.insert_one(platform_fact(AGENT, USER, SENTENCE))
            store.indexes.replace_index(FACT_KEY.name)
        assert unique_keys(raw) == {FACT_KEY.name}
        assert tuple(raw.index_information()[FACT_KEY.name]["key"]) == FACT_KEY.keys
        assert (state(store).status, store.database.preparation().warnings) == ("ready", ())
        assert raw.count_documents({}) == 1
        add_fact(store, Scope.user(str(AGENT), new_id()), SENTENCE)
        if not points:
            return
        at = points.pop()


def is_index_command(what: str) -> bool:
    return what.endswith(("create_index memory2_facts", "drop_index memory2_facts"))


def test_nothing_is_added_with_only_the_temporary_key(open_mongo: OpenMongo) -> None:
    """The platform's next start would delete facts that two users share, for its narrow key."""
    store = narrow_store(open_mongo)
    raw = store.connection.database.memory2_facts
    raw.create_index(TEMPORARY_FACT_KEY.keys, name=TEMPORARY_FACT_KEY.name, unique=True)
    raw.drop_index("fact_dedup_idx")
    scope = Scope.user(str(AGENT), new_id())
    with pytest.raises(FactKeyConflict, match="being replaced"):
        add_fact(store, scope, SENTENCE)
    assert "being replaced" in store.database.preparation().warnings[0]
    store.indexes.replace_index(FACT_KEY.name)
    add_fact(store, scope, SENTENCE)


@pytest.mark.parametrize("starts", [1, 99])
def test_the_platform_can_create_its_index_first(open_mongo: OpenMongo, starts: int) -> None:
    store = narrow_store(open_mongo)
    left = starts

    def start_after_a_drop(name: str, work: Callable[[], Any]) -> Any:
        nonlocal left
        if not left or not name.startswith("drop_index"):
            return work()
        before = raw.index_information().keys()
        work()
        if FACT_KEY.name in before - raw.index_information().keys():
            left -= 1
            start_platform(raw)
        return None

    raw = store.connection.database.memory2_facts
    quick = wrapped_store(store, start_after_a_drop)
    if starts == 1:
        quick.indexes.replace_index(FACT_KEY.name)
        assert state(store).status == "ready"
        return
    with pytest.raises(ConflictError, match="gave up"):
        quick.indexes.replace_index(FACT_KEY.name)
    assert TEMPORARY_FACT_KEY.name in unique_keys(store.connection.database.memory2_facts)
    store.indexes.replace_index(FACT_KEY.name)
    assert unique_keys(store.connection.database.memory2_facts) == {FACT_KEY.name}


def test_a_restart_of_the_platform_deletes_nothing(mongo: MongoStore, database: Any) -> None:
    """Known failure 54: the wide index had another name."""
    raw = database.memory2_facts
    agent = new_id()
    for user in (new_id(), new_id()):
        add_fact(mongo, Scope.user(agent, user), SENTENCE)
    with pytest.raises(OperationFailure) as caught:  # a DuplicateKeyError would delete facts
        start_platform(raw)
    assert caught.value.code == 86
    assert not isinstance(caught.value, DuplicateKeyError)
    raw.create_index([("agent_id", 1), ("scope", 1)], name="fact_scope_idx", background=True)
    raw.create_index([("agent_id", 1), ("user_id", 1)], name="fact_user_idx", background=True)
    (lost,) = mongo.indexes.platform_conflicts()
    assert lost.text == SENTENCE
    assert raw.count_documents({"_id": ObjectId(lost.related[0])}) == 1
    assert lost.related[0] != lost.target_id


def test_stored_duplicates_drop_no_index(open_mongo: OpenMongo) -> None:
    """Known failure 47, where the new index is impossible."""
    store = open_mongo()
    raw = store.connection.database.memory2_facts
    raw.create_index(NARROW, unique=True, name="partial", partialFilterExpression={"shard": "x"})
    twins = [platform_fact(AGENT, USER, SENTENCE) for _ in range(2)]
    raw.insert_many(twins)
    store.database.initialize()
    before = raw.index_information()
    with pytest.raises(StoreError, match="cannot create") as caught:
        store.indexes.replace_index(FACT_KEY.name)
    assert all(str(twin["_id"]) in caught.value.message for twin in twins)
    assert raw.index_information() == before
    raw.delete_one({"_id": twins[0]["_id"]})
    store.indexes.replace_index(FACT_KEY.name)
    assert unique_keys(raw) == {FACT_KEY.name}


def test_a_key_of_another_name_is_replaced(open_mongo: OpenMongo) -> None:
    """Known failure 54: it does not keep the platform from creating its narrow index."""
    store = open_mongo()
    raw = store.connection.database.memory2_facts
    raw.create_index(FACT_KEY.keys, name="by_hand_too", unique=True)
    store.database.initialize()
    scope = Scope.user(new_id(), new_id())
    with pytest.raises(FactKeyConflict, match="by_hand_too"):
        add_fact(store, scope, SENTENCE)
    assert state(store).status == "conflicting"
    assert "--replace" in store.database.preparation().warnings[0]
    with pytest.raises(ConflictError) as caught:
        store.indexes.update_index(FACT_KEY.name, WISH)
    assert "--replace" in (caught.value.hint or "")
    store.indexes.replace_index(FACT_KEY.name)
    add_fact(store, scope, SENTENCE)


def test_an_unsuitable_shard_key_is_unsupported(open_mongo: OpenMongo) -> None:
    store = open_mongo()
    namespace = f"{store.connection.database.name}.memory2_facts"
    shards = store.connection.database.client["config"]["collections"]
    shards.insert_one({"_id": namespace, "key": {"hash": 1}})
    try:
        assert state(store).status == "unavailable"
        assert any("unsupported" in line for line in store.database.preparation().warnings)
        for work in (
            store.database.initialize,
            lambda: store.indexes.create_index(FACT_KEY.name, WISH),
        ):
            with pytest.raises(StoreError, match=r"unsupported.*sharded by \{hash: 1\}"):
                work()
        shards.update_one({"_id": namespace}, {"$set": {"key": {"agent_id": 1, "scope": 1}}})
        store.database.initialize()
        assert state(store).status == "ready"
    finally:
        shards.delete_one({"_id": namespace})


# -- names of accounts ---------------------------------------------------------------------------


def test_usernames_are_not_unique_in_the_platforms_collection(open_mongo: OpenMongo) -> None:
    """Known failure 61: a unique index of edenmem made the platform fail."""
    store = open_mongo()
    store.database.initialize()
    raw = store.connection.database.users3
    raw.insert_many([{"type": "user", "username": "anna"} for _ in range(2)])
    assert store.database.preparation().warnings == ()
    assert len(list(store.host.users())) == 2


def test_one_of_many_workers_adds_an_account(mongo: MongoStore) -> None:
    users = [make_user("anna") for _ in range(6)]
    results = at_once(6, lambda n: mongo.changes.apply(change_set(AddUser(user=users[n]))))
    assert [one.ok for (one,) in results].count(True) == 1
    bens = [make_user("ben") for _ in range(6)]
    assert at_once(6, lambda n: mongo.host.add_user(bens[n])).count(True) == 1
    assert [user.username for user in mongo.host.users()] == ["anna", "ben"]
    assert (
        mongo.connection.database.memory2_migrations.count_documents({"_id": {"$regex": "^lease/"}})
        == 0
    )
