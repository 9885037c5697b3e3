"""A set interrupted at any command is applied whole or not at all, and completed by applying it
again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from edenmem.errors import StoreError
from edenmem.models.changes import (
    AddAgent,
    AddFact,
    AddReflection,
    AddUser,
    Change,
    ChangeResult,
    ChangeSet,
    ChangeStatus,
    RemoveAgent,
    RemoveFact,
    RemovePolicy,
    RemoveReflection,
    RemoveUser,
    RestoreReflection,
    RevertConsolidation,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    SetPrivacy,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.formation import FormationStatus
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.store.mongo import MongoStore
from edenmem.store.protocol.store import Store
from tests.store.mongo.faults import Breaker, Template, wrapped_store
from tests.support.builders import (
    NOW,
    change_set,
    make_agent,
    make_fact,
    make_formation,
    make_messages,
    make_policy,
    make_reflection,
    make_session,
    make_user,
    some,
    writing,
)
from tests.support.formations import Steps
from tests.support.memory import facts_of
from tests.support.vectors import random_unit

pytestmark = pytest.mark.slow


LATER = NOW + timedelta(hours=1)
AGENT = make_agent("eve", created_at=NOW)
OTHER, SPARE_AGENT = make_agent("adam", created_at=NOW), make_agent("abel", created_at=NOW)
USER, SPARE_USER = make_user("anna", created_at=NOW), make_user("otto", created_at=NOW)
SCOPE = Scope.user(AGENT.id, new_id())
SAME: dict[str, Any] = {"scope": SCOPE, "at": LATER}

FACTS = [
    make_fact(SCOPE, f"fact {n}", embedding=random_unit(n, 4), embedding_model="m")
    for n in range(5)
]
REFLECTIONS = [
    make_reflection(SCOPE, f"thought {n}", formed_at=NOW + timedelta(seconds=n)) for n in range(7)
]
BEFORE = change_set(
    *(AddFact(fact=fact) for fact in FACTS[:4]),
    *(
        AddReflection(reflection=reflection, word_limit=300)
        for reflection in (*REFLECTIONS[:5], REFLECTIONS[6])
    ),
    WriteConsolidation(
        expected_version=0,
        content="One.",
        word_limit=9,
        absorbed_ids=(REFLECTIONS[0].id,),
        **SAME,
    ),
    WritePolicy(policy=make_policy(SCOPE, word_limit=5), expected_version=0, at=NOW),
)
CHANGES: dict[str, tuple[Change, ...]] = {
    "additions": (
        AddFact(fact=FACTS[4]),
        AddFact(fact=make_fact(SCOPE, "fact 0")),
        AddFact(fact=make_fact(SCOPE, "after a duplicate")),
        AddReflection(reflection=REFLECTIONS[5], word_limit=300),
    ),
    "revisions": (
        ReviseFact(fact_id=FACTS[0].id, expected_version=1, content="fact 0, again", **SAME),
        ReviseFact(
            fact_id=FACTS[1].id,
            expected_version=7,
            content="instead",
            or_add=make_fact(SCOPE, "instead"),
            **SAME,
        ),
        ReviseFact(fact_id=FACTS[1].id, expected_version=1, content="fact 2", **SAME),
    ),
    "removal and restoration": (
        RemoveFact(fact_id=FACTS[3].id, expected_version=1, **SAME),
        AddFact(fact=FACTS[3]),
    ),
    "reflections": (
        ReviseReflection(
            reflection_id=REFLECTIONS[1].id, expected_version=1, content="again", **SAME
        ),
        RemoveReflection(reflection_id=REFLECTIONS[2].id, expected_version=1, **SAME),
        SetPrivacy(target_type="reflection", target_id=REFLECTIONS[3].id, private=True, **SAME),
    ),
    "consolidation": (
        WriteConsolidation(
            expected_version=1,
            content="Two.",
            word_limit=9,
            absorbed_ids=(REFLECTIONS[3].id, REFLECTIONS[4].id),
            **SAME,
        ),
    ),
    "settings": (
        WritePolicy(policy=make_policy(SCOPE, word_limit=7), expected_version=1, at=LATER),
        SetAgentToggles(agent_id=AGENT.id, user_memory_enabled=False, at=LATER),
    ),
    "consolidation taken back": (
        RevertConsolidation(
            expected_version=2,
            content="One.",
            word_limit=300,
            released_ids=(REFLECTIONS[3].id, REFLECTIONS[4].id),
            reverted_versions=(2,),
            **SAME,
        ),
    ),
    "reflection restored": (
        RemoveReflection(reflection_id=REFLECTIONS[6].id, expected_version=1, **SAME),
        RestoreReflection(
            reflection=msgspec.structs.replace(REFLECTIONS[6], version=2), word_limit=300
        ),
    ),
    "policy removed": (RemovePolicy(scope=SCOPE, expected_version=2, at=LATER),),
    "accounts": (
        AddUser(user=USER),
        AddAgent(agent=OTHER),
        RemoveUser(user_id=SPARE_USER.id),
        RemoveAgent(agent_id=SPARE_AGENT.id),
    ),
    "first text of a scope": (
        writing(Scope.group(AGENT.id, "g"), "By hand.", word_limit=9, at=LATER),
    ),
}


def _prepare(store: Store) -> None:
    store.database.initialize()
    store.host.add_agent(AGENT)
    store.host.add_agent(SPARE_AGENT)
    store.host.add_user(SPARE_USER)
    assert all(result.ok for result in store.changes.apply(BEFORE))


def _state(store: Store) -> dict[str, Any]:
    """Everything that the changes could alter, with new IDs normalized."""
    scopes = (SCOPE, Scope.group(AGENT.id, "g"))
    texts = store.memory.consolidations(scopes)
    names = {text.id: scope.key for scope, text in texts.items()}

    def named(value: Any) -> Any:
        shown = msgspec.json.encode(value).decode()
        for made, name in names.items():
            shown = shown.replace(made, name)
        return msgspec.json.decode(shown)

    histories = {
        scope.key: store.history.versions("consolidation", "", scope=scope) for scope in scopes
    }
    histories |= {fact.id: store.history.versions("fact", fact.id) for fact in FACTS}
    entries = {entry.id: entry for entry in store.log.audit()}
    return {
        "facts": named({fact.id: fact for fact in facts_of(store, SCOPE, with_vectors=True)}),
        "reflections": named({r.id: r for r in store.memory.reflections([SCOPE])}),
        "pending": [r.id for r in store.memory.pending(SCOPE)],
        "texts": named(list(texts.values())),
        "policy": named(store.memory.policies([SCOPE]).get(SCOPE)),
        "agent": named(store.host.agent(AGENT.id)),
        "accounts": named([*store.host.agents(), *store.host.users()]),
        "histories": named(
            {
                key: [msgspec.structs.replace(entry, id="") for entry in history]
                for key, history in histories.items()
            }
        ),
        "audit": named({key: (e.action, e.target_id, e.status) for key, e in entries.items()}),
    }


#: Independent changes of every kind, one of them refused.
EVERYTHING = change_set(
    *(change for changes in CHANGES.values() for change in changes),
    RemoveFact(fact_id=new_id(), expected_version=1, **SAME),
    at=LATER,
)


Opener = Callable[[int | None], tuple[MongoStore, Breaker]]


@pytest.fixture
def breaking(mongo: MongoStore) -> Opener:
    """A function that reopens the prepared memory, to fail at a point."""
    _prepare(mongo)

    def open_one(at: int | None) -> tuple[MongoStore, Breaker]:
        breaker = Breaker(at=at)
        return wrapped_store(mongo, breaker.around), breaker

    return open_one


def test_a_set_interrupted_at_any_command_is_atomic(mongo: MongoStore, breaking: Opener) -> None:
    """Known failures 16 and 9, for every kind of change: a crash left changes half applied."""
    template, before = Template(mongo.connection.database), _state(mongo)
    store, breaker = breaking(None)
    expected = [result.ok for result in store.changes.apply(EVERYTHING)]
    points, wanted = breaker.points, _state(mongo)
    assert expected == [True] * (len(expected) - 1) + [False]
    assert points > 30
    for point in {*range(0, points, 32), points - 2, points - 1}:
        template.restore()
        store, breaker = breaking(point)
        with pytest.raises(StoreError):
            store.changes.apply(EVERYTHING)
        where = breaker.log[-1]
        assert _state(mongo) == (wanted if where == "after commit" else before), where
        assert [result.ok for result in store.changes.apply(EVERYTHING)] == expected, where
        assert _state(mongo) == wanted, where
    again = mongo.changes.apply(EVERYTHING)
    assert _state(mongo) == wanted
    assert {r.status for r in again if r.ok} <= {ChangeStatus.ALREADY, ChangeStatus.DUPLICATE}


def test_a_step_interrupted_anywhere_is_applied_once_and_continues(
    mongo: MongoStore, breaking: Opener
) -> None:
    """Known failure 69: facts are stored before reflections are requested."""
    session = make_session([AGENT])
    messages = make_messages(session, 4)
    mongo.host.put_session(session)
    mongo.host.add_messages(session.id, messages)
    formation = make_formation(session, messages)
    assert mongo.formations.claim(formation)
    outcome: dict[str, Any] = {"worker": "worker-1", "decisions": (), "usage": (), "counts": {}}
    fact = change_set(AddFact(fact=make_fact(SCOPE, "formed")))
    assert Steps(mongo).record(formation.id, changes=fact, next_step="reflections", **outcome)
    template, (store, breaker) = Template(mongo.connection.database), breaking(None)
    Steps(store).apply(formation.id, now=LATER)
    points, log = breaker.points, breaker.log
    for point in range(log.index("before commit"), points):
        template.restore()
        store, _ = breaking(point)
        with pytest.raises(StoreError):
            Steps(store).apply(formation.id, now=LATER)
        Steps(mongo).apply(formation.id, now=LATER)
        found = some(mongo.formations.formation(formation.id))
        assert (found.status, found.changes) == (FormationStatus.RELEASED, None), log[point]
        assert [fact.content for fact in facts_of(mongo, SCOPE)].count("formed") == 1
        taken = some(
            Steps(mongo).claim(formation.id, worker="worker-1", now=LATER, lease_until=LATER)
        )
        assert taken.next_step == "reflections"
        assert Steps(mongo).record(formation.id, now=LATER, **outcome)
        Steps(mongo).apply(formation.id, now=LATER)
        progress = mongo.connection.database["sessions"].find_one()["memory_context"]
        assert str(progress["last_memory_message_id"]) == messages[-1].id


def test_applying_a_step_late_keeps_the_record_of_the_next(
    mongo: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session([AGENT])
    messages = make_messages(session, 4)
    mongo.host.put_session(session)
    mongo.host.add_messages(session.id, messages)
    formation = make_formation(session, messages)
    assert mongo.formations.claim(formation)
    outcome: dict[str, Any] = {"worker": "worker-1", "decisions": (), "usage": (), "counts": {}}
    fact = change_set(AddFact(fact=make_fact(SCOPE, "formed")))
    thought = change_set(AddReflection(reflection=make_reflection(SCOPE), word_limit=300))
    assert Steps(mongo).record(formation.id, changes=fact, next_step="reflections", **outcome)
    apply = mongo.changes.apply

    def overtaken(changes: ChangeSet) -> Sequence[ChangeResult]:
        """Between reading the record and applying it, its worker takes the next step."""
        monkeypatch.setattr(mongo.changes, "apply", apply)
        Steps(mongo).apply(formation.id, now=NOW, worker="worker-1")
        assert Steps(mongo).record(formation.id, changes=thought, **outcome)
        return apply(changes)

    monkeypatch.setattr(mongo.changes, "apply", overtaken)
    Steps(mongo).apply(formation.id, now=NOW)
    found = some(mongo.formations.formation(formation.id))
    assert (found.status, found.changes) == (FormationStatus.RECORDED, thought)


def test_a_formation_interrupted_anywhere_is_applied_once(
    mongo: MongoStore, breaking: Opener
) -> None:
    """Known failures 12 and 13: messages were marked done before their memory existed."""
    session = make_session([AGENT])
    messages = make_messages(session, 4)
    mongo.host.put_session(session)
    mongo.host.add_messages(session.id, messages)
    formation = make_formation(session, messages)
    assert mongo.formations.claim(formation)
    changes = change_set(
        AddFact(fact=make_fact(SCOPE, "formed")),
        AddReflection(reflection=make_reflection(SCOPE, "formed"), word_limit=300),
    )
    assert Steps(mongo).record(formation.id, changes=changes, counts={"facts": 1})
    template, (store, breaker) = Template(mongo.connection.database), breaking(None)
    Steps(store).apply(formation.id, now=LATER)
    points, log, wanted = breaker.points, breaker.log, _state(mongo)
    for point in range(log.index("before commit"), points):
        template.restore()
        store, _ = breaking(point)
        with pytest.raises(StoreError):
            Steps(store).apply(formation.id, now=LATER)
        Steps(mongo).apply(formation.id, now=LATER)
        found = some(mongo.formations.formation(formation.id))
        assert found.status is FormationStatus.APPLIED
        assert found.changes is None
        assert _state(mongo) == wanted, log[point]
        progress = mongo.connection.database["sessions"].find_one()["memory_context"]
        assert str(progress["last_memory_message_id"]) == messages[-1].id
        assert progress["messages_since_memory_formation"] == 0
        assert mongo.formations.backlog(session.id, AGENT.id, limit=9).total == 0
