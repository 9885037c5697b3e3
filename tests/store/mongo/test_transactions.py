"""Transactions: retries, guards against write skew, and servers without transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import Thread
from typing import Any

import msgspec
import pytest
from pymongo import MongoClient
from pymongo.collection import Collection as PymongoCollection
from pymongo.errors import BulkWriteError, DuplicateKeyError

from edenmem.errors import ConflictError, StoreError
from edenmem.models.changes import (
    AddAgent,
    AddFact,
    Change,
    ChangeSet,
    ChangeStatus,
    RemoveAgent,
    RemoveFact,
)
from edenmem.models.forgetting import Forgetting, block
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.store.common import migrations
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.apply import changes as applying
from edenmem.store.mongo.apply.changes import portions
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.filters import policy_id
from tests.store.mongo.conftest import OpenMongo
from tests.store.mongo.faults import WrappedClient
from tests.support.builders import (
    NOW,
    change_set,
    make_agent,
    make_fact,
    make_formation,
    make_messages,
    make_session,
    revision,
)
from tests.support.memory import add_fact, applied, facts_of
from tests.support.vectors import random_unit

pytestmark = pytest.mark.slow

SCOPE = Scope.user(new_id(), new_id())


@contextmanager
def failing(uri: str, commands: list[str], times: int = 1, **data: Any) -> Iterator[None]:
    """A server on which these commands fail the given number of times."""
    with MongoClient[Any](uri) as client:

        def set_point(mode: Any, **data: Any) -> None:
            client.admin.command("configureFailPoint", "failCommand", mode=mode, data=data)

        set_point({"times": times}, failCommands=commands, **data)
        try:
            yield
        finally:
            set_point("off")
            client.admin.command("killAllSessions", [])  # the transaction is still open


def contents(store: MongoStore, scope: Scope = SCOPE) -> list[str]:
    return sorted(fact.content for fact in facts_of(store, scope))


# -- running again -------------------------------------------------------------------------------

#: A failure, and the command that fails. Afterwards the server has executed it, or accepts a retry.
TROUBLE: dict[str, tuple[list[str], dict[str, Any]]] = {
    "a write conflict": (
        ["insert"],
        {"errorCode": 112, "errorLabels": ["TransientTransactionError"]},
    ),
    "a lost connection": (["insert"], {"closeConnection": True}),
    "a failover": (["update"], {"errorCode": 10107, "errorLabels": ["TransientTransactionError"]}),
    "a commit whose answer is lost": (["commitTransaction"], {"closeConnection": True}),
    "a failover at the commit": (
        ["commitTransaction"],
        {"errorCode": 10107, "errorLabels": ["RetryableWriteError"]},
    ),
}


@pytest.mark.parametrize("name", TROUBLE)
def test_transient_failures_are_retried_and_applied_once(mongo: MongoStore, name: str) -> None:
    commands, data = TROUBLE[name]
    twin = add_fact(mongo, SCOPE, "one")
    # After a failover the driver looks for the new primary this often.
    impatient = MongoStore(
        f"{mongo.connection.uri}?heartbeatFrequencyMS=500", mongo.connection.settings
    )
    with closing(impatient.database), failing(mongo.connection.uri, commands, **data):
        results = impatient.changes.apply(
            change_set(
                AddFact(fact=make_fact(SCOPE, "two")),
                RemoveFact(scope=SCOPE, fact_id=twin.id, expected_version=1, at=NOW),
            )
        )
    assert [result.status for result in results] == [ChangeStatus.APPLIED] * 2
    assert contents(mongo) == ["two"]
    assert len(list(mongo.log.audit())) == 3


def test_permanent_failures_are_errors_and_leave_nothing(mongo: MongoStore) -> None:
    with (
        failing(mongo.connection.uri, ["insert"], errorCode=13),
        pytest.raises(StoreError, match="code 13"),
    ):
        add_fact(mongo, SCOPE)
    assert contents(mongo) == []
    assert mongo.memory.revisions([SCOPE]) == {SCOPE: 0}


def test_a_set_that_is_too_large_is_halved(mongo: MongoStore) -> None:
    facts = [make_fact(SCOPE, f"fact {n}") for n in range(5)]
    with failing(mongo.connection.uri, ["commitTransaction"], times=2, errorCode=388):
        results = mongo.changes.apply(change_set(*(AddFact(fact=fact) for fact in facts)))
    assert [result.target_id for result in results] == [fact.id for fact in facts]
    assert len(contents(mongo)) == 5
    with (
        failing(mongo.connection.uri, ["commitTransaction"], errorCode=388),
        pytest.raises(StoreError, match="transaction is too large"),
    ):
        add_fact(mongo, SCOPE, "alone")


@pytest.mark.parametrize("code", [112, 225, 388])
def test_a_transaction_error_can_be_reported_for_one_document(
    mongo: MongoStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    real, left = PymongoCollection.bulk_write, [code, code]

    def written(self: Any, operations: Any, **options: Any) -> Any:
        if left and self.name == names.AUDIT:
            failure = {"index": 0, "code": left.pop(), "errmsg": "no"}
            raise BulkWriteError({"writeErrors": [failure]})
        return real(self, operations, **options)

    monkeypatch.setattr(PymongoCollection, "bulk_write", written)
    facts = [make_fact(SCOPE, f"fact {n}") for n in range(4)]
    results = mongo.changes.apply(change_set(*(AddFact(fact=fact) for fact in facts)))
    assert [result.status for result in results] == [ChangeStatus.APPLIED] * 4
    assert (len(contents(mongo)), len(list(mongo.log.audit())), left) == (4, 4, [])


def test_a_transaction_is_bounded() -> None:
    vector = random_unit(1, 1536)
    small = [AddFact(fact=make_fact(SCOPE, f"fact {n}")) for n in range(1200)]
    large = [
        msgspec.structs.replace(each, fact=msgspec.structs.replace(each.fact, embedding=vector))
        for each in small
    ]
    assert [len(part) for part in portions(small)] == [500, 500, 200]
    parts = list(portions(large))
    assert [change for part in parts for change in part] == large
    assert max(map(len, parts)) < 400  # about 20 KB each
    assert list(portions([])) == []


# -- planned again -------------------------------------------------------------------------------


def in_between(monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any]) -> None:
    """Run something once, after the state was read and before it is written."""
    real, left = applying.plan_all, [work]

    def planned(*args: Any, **options: Any) -> Any:
        effects = real(*args, **options)
        if left:
            left.pop()()
        return effects

    monkeypatch.setattr(applying, "plan_all", planned)


def test_a_concurrent_duplicate_is_detected(
    mongo: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the unique index guards against writes of the platform."""
    twin = add_fact(mongo, SCOPE, "the same")
    raw = mongo.connection.database.memory2_facts
    document = raw.find_one_and_delete({})
    in_between(monkeypatch, lambda: raw.insert_one(document))
    (result,) = mongo.changes.apply(change_set(AddFact(fact=make_fact(SCOPE, "the same"))))
    assert (result.status, result.target_id) == (ChangeStatus.DUPLICATE, twin.id)


# -- write skew ----------------------------------------------------------------------------------


class Meanwhile:
    """Work of another client that starts during a transaction, and must wait for its end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any]) -> None:
        self._found: list[Any] = []
        self._thread = Thread(target=lambda: self._found.append(work()))
        in_between(monkeypatch, self._thread.start)

    def result(self) -> Any:
        self._thread.join()
        return self._found[0]


@pytest.fixture
def other(mongo: MongoStore, open_mongo: OpenMongo) -> MongoStore:
    """Another client of the same database."""
    return open_mongo(database=mongo.connection.database.name)


def test_concurrent_removals_conflict(
    mongo: MongoStore, other: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fact = add_fact(mongo, SCOPE, "one")
    removal = RemoveFact(scope=SCOPE, fact_id=fact.id, expected_version=1, at=NOW)
    again = msgspec.structs.replace(removal, id=new_id())
    meanwhile = Meanwhile(monkeypatch, lambda: other.changes.apply(change_set(again)))
    (result,) = mongo.changes.apply(change_set(removal))
    (second,) = meanwhile.result()
    assert (result.status, second.status) == (ChangeStatus.APPLIED, ChangeStatus.MISSING)
    assert len(list(mongo.log.audit(target_id=fact.id))) == 2


def test_one_of_two_mutually_replacing_facts_stays(
    mongo: MongoStore, other: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would be replaced by the other one, which it read."""
    one, two = add_fact(mongo, SCOPE, "one"), add_fact(mongo, SCOPE, "two")

    def revise(fact: Fact, content: str) -> ChangeSet:
        change = revision(fact, content, scope=SCOPE)
        return change_set(change)

    meanwhile = Meanwhile(monkeypatch, lambda: other.changes.apply(revise(two, "one")))
    (result,) = mongo.changes.apply(revise(one, "two"))
    (second,) = meanwhile.result()
    assert (result.status, second.status) == (ChangeStatus.DUPLICATE, ChangeStatus.APPLIED)
    assert contents(mongo) == ["one"]


def test_a_forgetting_sees_memory_being_learned(
    mongo: MongoStore, other: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Write skew: a formation read no forgetting, and the forgetting did not read its memory."""
    blocks = (block("scope", SCOPE.key),)
    begun = Forgetting(id=new_id(), kind="user", begun_at=NOW, blocks=blocks)

    def forget() -> list[str]:
        other.erasure.begin_forgetting(begun)
        return contents(other)

    meanwhile = Meanwhile(monkeypatch, forget)
    (result,) = mongo.changes.apply(change_set(AddFact(fact=make_fact(SCOPE, "just learned"))))
    assert result.status is ChangeStatus.APPLIED
    assert meanwhile.result() == ["just learned"]
    (result,) = mongo.changes.apply(change_set(AddFact(fact=make_fact(SCOPE, "too late"))))
    assert (result.status, "erased" in result.detail) == (ChangeStatus.CONFLICT, True)


def test_an_agent_used_meanwhile_is_not_removed(
    mongo: MongoStore, other: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_agent()
    applied(mongo, AddAgent(agent=agent))
    removal = change_set(RemoveAgent(agent_id=agent.id))
    meanwhile = Meanwhile(monkeypatch, lambda: other.changes.apply(removal))
    add_fact(mongo, Scope.user(agent.id, new_id()))
    (result,) = meanwhile.result()
    assert (result.status, "has facts" in result.detail) == (ChangeStatus.CONFLICT, True)
    assert mongo.host.agent(agent.id) is not None


def test_of_two_agents_with_one_name_one_is_added(
    mongo: MongoStore, other: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile = Meanwhile(monkeypatch, lambda: other.host.add_agent(make_agent("eve")))
    (result,) = mongo.changes.apply(change_set(AddAgent(agent=make_agent("eve"))))
    assert (result.status, meanwhile.result()) == (ChangeStatus.APPLIED, False)
    assert len(list(mongo.host.agents())) == 1


def test_a_set_without_effect_writes_nothing(mongo: MongoStore) -> None:
    fact = add_fact(mongo, SCOPE, "one")
    before = mongo.memory.revisions([SCOPE])
    removal = RemoveFact(scope=SCOPE, fact_id=fact.id, expected_version=7, at=NOW)
    (result,) = mongo.changes.apply(change_set(removal))
    assert result.status is ChangeStatus.CONFLICT
    assert mongo.memory.revisions([SCOPE]) == before


# -- servers -------------------------------------------------------------------------------------


def test_a_standalone_server_is_read_only(mongo: MongoStore) -> None:
    fact = add_fact(mongo, SCOPE, "one")
    session = make_session()
    mongo.host.put_session(session)
    messages = make_messages(session, 2)
    mongo.host.add_messages(session.id, messages)

    class Admin:
        def command(self, name: str) -> dict[str, Any]:
            assert name == "hello"
            return {"isWritablePrimary": True, "maxWireVersion": 21}

    class Client(WrappedClient):
        admin = Admin()

    client = Client(mongo.connection.client, lambda name, work: work())
    store = MongoStore(mongo.connection.uri, mongo.connection.settings, client=client)
    assert contents(store) == ["one"]
    assert "standalone" in store.database.info().write_obstacle
    assert "standalone" in " ".join(store.database.preparation().warnings)
    assert [found.id for found in store.history.versions("fact", fact.id)]
    removal: Change = RemoveFact(scope=SCOPE, fact_id=fact.id, expected_version=1, at=NOW)
    for write in (
        lambda: store.changes.apply(change_set(removal)),
        lambda: store.formations.claim(make_formation(session, messages)),
        lambda: store.erasure.begin_forgetting(Forgetting(id=new_id(), kind="user", begun_at=NOW)),
        lambda: store.host.add_agent(make_agent()),
        store.database.require_writable,
        store.database.initialize,
    ):
        with pytest.raises(StoreError, match="standalone") as caught:
            write()
        assert "--replSet" in (caught.value.hint or "")
        assert "rs.initiate()" in (caught.value.hint or "")


def test_a_database_of_another_schema_is_not_written(mongo: MongoStore, open_mongo: Any) -> None:
    changes = change_set(AddFact(fact=make_fact(SCOPE)))
    name = mongo.connection.database.name
    ledger = mongo.connection.database.memory2_migrations
    own = ledger.find_one_and_update({"number": 1}, {"$set": {"digest": "0"}})
    with pytest.raises(StoreError, match="unreleased edenmem"):
        open_mongo(database=name).changes.apply(changes)
    ledger.update_one({"number": 1}, {"$set": {"digest": own["digest"]}})
    newer = migrations.newest() + 1
    ledger.insert_one({"_id": "schema/9999_later", "number": newer, "name": "9999_later"})
    with pytest.raises(StoreError, match=f"schema {newer} is newer"):
        open_mongo(database=name).changes.apply(changes)
    ledger.delete_one({"number": newer})
    assert open_mongo(database=name).changes.apply(changes)[0].ok


@pytest.mark.parametrize("acknowledged", [0, 1])
def test_a_uri_that_reads_from_secondaries_can_write(mongo: MongoStore, acknowledged: int) -> None:
    uri = f"{mongo.connection.uri}?readPreference=secondaryPreferred&w={acknowledged}"
    store = MongoStore(uri, mongo.connection.settings)
    with closing(store.database):
        fact = add_fact(store, SCOPE, f"written with w={acknowledged}")
        assert contents(store) == [fact.content]
        vectors = {fact.id: (fact.hash, random_unit(1, 4))}
        assert store.vectors.set_vectors(vectors, model="m") == 1


def test_locks_of_a_killed_client_expire(
    mongo: MongoStore, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction is open until the server's limit."""
    add_fact(mongo, SCOPE, "one")
    with MongoClient[Any](mongo.connection.uri) as dead, dead.start_session() as session:
        session.start_transaction()
        policies = dead[mongo.connection.database.name].memory2_policies
        policies.update_one({"_id": policy_id(SCOPE)}, {"$inc": {"revision": 1}}, session=session)
        late = time.time() + 61
        server = request.getfixturevalue("_secantus")
        monkeypatch.setattr(server.transactions, "_time", lambda: late)
        add_fact(mongo, SCOPE, "two")
    assert contents(mongo) == ["one", "two"]


def test_endless_conflicts_are_an_error(mongo: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fact = add_fact(mongo, SCOPE, "one")
    monkeypatch.setattr(applying.Writer, "write", _raise_duplicate)
    with pytest.raises(ConflictError, match="gave up after 3 conflicting writes"):
        applied(mongo, RemoveFact(scope=SCOPE, fact_id=fact.id, expected_version=1, at=NOW))


def _raise_duplicate(*_: Any) -> None:
    raise DuplicateKeyError("of another process")
