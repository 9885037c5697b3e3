"""Reading everything: nothing is lost between pages, and no cursor is left open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bson import ObjectId
from pymongo.monitoring import CommandListener

from edenmem.engine.erasure.passages import walk_passages
from edenmem.models.backup import Document, RecordKind, Selection
from edenmem.models.changes import ReviseFact
from edenmem.models.forgetting import Traces
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core import collection
from edenmem.store.mongo.search import vectors
from edenmem.store.mongo.walk import walk
from tests.store.mongo.conftest import OpenMongo
from tests.store.mongo.faults import wrapped_store
from tests.support.builders import NOW, make_fact
from tests.support.memory import add_fact, add_facts, applied

SCOPE = Scope.user(new_id(), new_id())
OTHER = Scope.agent(SCOPE.agent_id)
OF_AGENT = Selection(agent_ids=(SCOPE.agent_id,))
OF_SCOPE = Selection(traces=Traces(scopes=(SCOPE,)))

pytestmark = pytest.mark.slow
narrowed = pytest.mark.parametrize(
    "selection", [Selection(), OF_AGENT, OF_SCOPE], ids=["all", "agent", "traces"]
)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "BATCH", 2)
    monkeypatch.setattr(walk, "BATCH", 2)
    monkeypatch.setattr(vectors, "BATCH", 2)
    monkeypatch.setattr(walk, "_ROWS", 2)


def add(store: MongoStore, number: int) -> list[str]:
    """Add facts; return their IDs, in order."""
    facts = [make_fact(SCOPE, f"fact {n}") for n in range(number)]
    add_facts(store, *facts)
    return sorted(fact.id for fact in facts)


def revise(store: MongoStore, fact_id: str, version: int) -> None:
    content = f"{fact_id}, {version}"
    change = ReviseFact(
        scope=SCOPE, fact_id=fact_id, expected_version=version, content=content, at=NOW
    )
    applied(store, change)


def documents(store: MongoStore, kind: RecordKind, selection: Selection) -> list[Document]:
    return list(store.walk.documents((kind,), selection))


def ids(store: MongoStore, kind: RecordKind, selection: Selection) -> list[str]:
    return [document.id for document in documents(store, kind, selection)]


@narrowed
def test_each_document_is_read_once(mongo: MongoStore, selection: Selection) -> None:
    """A comparison with an ID of one type skips all other types."""
    facts = add(mongo, 5)
    raw = mongo.connection.database.memory2_facts
    odd: list[Any] = [7, "text", "texts", b"bytes", True, None, {"a": 1}]
    stored = raw.find_one({})
    raw.insert_many([{**stored, "_id": key, "hash": str(key)} for key in odd])
    found = ids(mongo, RecordKind.FACT, selection)
    assert sorted(found) == sorted([*facts, *map(str, odd)])
    assert [key for key in found if key in facts] == facts


def test_each_stale_fact_is_read_once(mongo: MongoStore) -> None:
    facts = add(mongo, 5)
    stored = mongo.connection.facts.find_one({}) or {}
    texts = [f"text {n}" for n in range(3)]
    for key in texts:
        mongo.connection.facts.insert_one({**stored, "_id": key, "hash": key})
    stale = mongo.vectors.stale_facts("model", dimensions=None)
    assert sorted(fact.id for fact in stale) == sorted([*facts, *texts])


@narrowed
def test_versions_are_grouped_by_target(mongo: MongoStore, selection: Selection) -> None:
    facts = add(mongo, 3)
    for fact_id in facts[:2]:
        for version in (1, 2, 3):
            revise(mongo, fact_id, version)
    # For a target whose ID is text, they come before those of others.
    first = {"target_id": ObjectId(facts[0])}
    mongo.connection.history.update_many(first, {"$set": {"target_id": facts[0]}})
    records = [document.record for document in documents(mongo, RecordKind.HISTORY, selection)]
    places = [(record.target_id, record.version) for record in records]  # type: ignore[union-attr]
    assert places == [(key, version) for key in facts[:2] for version in (1, 2, 3, 4)]


@pytest.mark.parametrize("selection", [Selection(), OF_AGENT], ids=["all", "agent"])
def test_documents_larger_than_an_answer_are_read(mongo: MongoStore, selection: Selection) -> None:
    facts = add(mongo, 3)
    large = {"$set": {"previous_content": "x" * 9_000_000}}
    mongo.connection.facts.update_many({}, large)
    assert ids(mongo, RecordKind.FACT, selection) == facts


class _Garbling:
    """A cursor with invalid UTF-8 in its answers."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._raw, name)
        return (lambda *args: _Garbling(method(*args))) if callable(method) else method

    def __enter__(self) -> _Garbling:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    def __next__(self) -> bytes:
        answer: bytes = next(self._raw)
        return answer.replace(b"bad!", b"bad\xff")


def test_invalid_utf8_is_a_fault_of_its_document_only(mongo: MongoStore) -> None:
    """The test server refuses such text; other servers do not."""

    def garble(name: str, work: Callable[[], Any]) -> Any:
        return _Garbling(work()) if name.startswith("find_raw") else work()

    facts = [make_fact(SCOPE, "good"), make_fact(SCOPE, "bad!")]
    add_facts(mongo, *facts)
    garbled = wrapped_store(mongo, garble)
    found = {document.id: document for document in documents(garbled, RecordKind.FACT, OF_AGENT)}
    good, bad = (found[fact.id] for fact in facts)
    assert (good.record is None, good.fault) == (False, "")
    assert (bad.record, bad.agent_id) == (None, SCOPE.agent_id)
    assert "utf-8" in bad.fault
    unread = [each for each in walk_passages(garbled) if each.kind == "unreadable"]
    (fact,) = (each for each in unread if each.target_type == "fact")
    assert fact.target_id == bad.id
    assert SCOPE.agent_id in fact.text


class _Cursors(CommandListener):
    """The open cursors on the server."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.finds = 0

    def started(self, event: Any) -> None:
        if event.command_name == "killCursors":
            self.open -= set(event.command["cursors"])
        self.open.discard(event.command.get("getMore"))

    def succeeded(self, event: Any) -> None:
        cursor = event.reply.get("cursor")
        if cursor is None:
            return
        self.finds += 1
        if cursor["id"]:
            self.open.add(cursor["id"])

    def failed(self, event: Any) -> None:
        pass


@narrowed
def test_no_cursor_is_open_while_a_document_is_processed(
    open_mongo: OpenMongo, selection: Selection
) -> None:
    cursors = _Cursors()
    store = open_mongo(listeners=(cursors,))
    store.database.initialize()
    fact_id, *_ = add(store, 5)
    add_fact(store, OTHER)
    revise(store, fact_id, 1)
    cursors.finds = 0
    for document in store.walk.documents(tuple(RecordKind), selection):
        assert not cursors.open, document
    assert cursors.finds > 10
