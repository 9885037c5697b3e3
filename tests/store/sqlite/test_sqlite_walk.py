"""The one walk over the file: order, pages, narrowing, and rows of which nothing can be made."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edenmem.engine.erasure.survey import count_traces
from edenmem.models.backup import Document, RecordKind, Selection
from edenmem.models.changes import HoldItem
from edenmem.models.forgetting import Traces
from edenmem.models.formation import UsageEntry
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.sqlite import SqliteStore
from edenmem.store.sqlite.walk import walk
from tests.store.sqlite.test_sqlite_plans import full_scans
from tests.support.builders import NOW, change_set, make_formation, make_held, removal, revision
from tests.support.forgetting import Town, fill, make_town
from tests.support.memory import applied, set_policy

ALL = tuple(RecordKind)


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    store = SqliteStore(tmp_path / "memory.db")
    store.database.initialize()
    town = make_town(store)
    fill(town)
    facts = list(store.walk.documents([RecordKind.FACT], Selection()))
    revise(store, facts[0].record)
    delete(store, facts[1].record)
    set_policy(store, town.his(), memory_instructions="Be brief.")
    store.usage.add_usage(UsageEntry(id=new_id(), at=NOW, agent_id=new_id(), work="x", calls=()))
    applied(store, HoldItem(held=make_held(town.his())))
    for session in (town.own, town.shared):
        formation = make_formation(session, list(store.host.messages(session.id))[:2])
        assert store.formations.claim(formation)
    yield town
    store.database.close()


def revise(store: SqliteStore, fact: Any) -> None:
    changed = revision(fact, "else")
    assert all(result.ok for result in store.changes.apply(change_set(changed)))


def delete(store: SqliteStore, fact: Any) -> None:
    gone = removal(fact)
    assert all(result.ok for result in store.changes.apply(change_set(gone)))


def whole(store: Any, **how: Any) -> list[Document]:
    return list(store.walk.documents(ALL, Selection(), **how))


@pytest.mark.parametrize("how", [{}, {"snapshot": True}, {"unwritten": True}])
def test_the_size_of_pages_changes_nothing(
    town: Town, monkeypatch: pytest.MonkeyPatch, how: dict[str, bool]
) -> None:
    expected = whole(town.store, **how)
    assert {document.kind for document in expected} == set(ALL)
    assert not [document for document in expected if document.fault]
    for name, size in (("KEYS", 3), ("BATCH", 2), ("PAGE_BYTES", 1)):
        monkeypatch.setattr(walk, name, size)
        assert whole(town.store, **how) == expected, name


def test_a_page_ends_where_it_becomes_too_long(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "PAGE_BYTES", 1)
    read: list[str] = []
    store: Any = town.store
    with store.connections.reading() as connection:
        connection.set_trace_callback(read.append)
    facts = list(store.walk.documents([RecordKind.FACT], Selection()))
    assert len([each for each in read if "FROM facts" in each or "facts f ON" in each]) > len(facts)


def read_whole(connection: sqlite3.Connection, statement: str) -> Iterator[str]:
    """What reads a whole table, or all of it from where the last keys ended."""
    yield from (scan for scan, _ in full_scans(connection, statement))
    if f"LIMIT {walk.KEYS}" in statement:
        for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {statement}"):
            if re.search(r"\(\w+>\?|\(\(", detail):
                yield detail


# -- narrowing ---------------------------------------------------------------------------------


def _in_scopes(*scopes: Scope) -> Callable[[Document], bool]:
    return lambda document: scope_of(document) in scopes


def scope_of(document: Document) -> Scope | None:
    record: Any = document.record
    return getattr(record, "home", None) or getattr(record, "scope", None)


def test_a_selection_finds_what_it_means_and_reads_no_whole_table(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "KEYS", 2)
    store: Any = town.store
    documents = whole(store)
    memory = [
        RecordKind.POLICY,
        RecordKind.CONSOLIDATION,
        RecordKind.REFLECTION,
        RecordKind.FACT,
        RecordKind.HISTORY,
    ]
    of_memory = [document for document in documents if document.kind in memory]
    agent = of_memory[0].agent_id
    users = {s for s in map(scope_of, of_memory) if s and s.kind is ScopeKind.USER}
    user = sorted(users)[0]
    statements: set[str] = set()
    with store.connections.reading() as connection:
        connection.set_trace_callback(statements.add)
    for selection, is_meant in (
        (Selection(agent_ids=(agent,)), lambda found: found.agent_id == agent),
        (
            Selection(user_ids=(user.owner,)),
            _in_scopes(*(s for s in users if s.owner == user.owner)),
        ),
        (
            Selection(agent_ids=(agent,), kinds=(ScopeKind.USER,)),
            lambda found: found.agent_id == agent and scope_of(found) in users,
        ),
    ):
        found = list(store.walk.documents(memory, selection))
        assert found == [each for each in of_memory if is_meant(each)]
        assert 0 < len(found) < len(of_memory)
    for kind in (RecordKind.AUDIT, RecordKind.FORMATION):
        found = list(store.walk.documents([kind], Selection(agent_ids=(agent,))))
        assert found == [d for d in documents if d.kind is kind and d.agent_id == agent]
    list(
        store.walk.documents(
            [RecordKind.SESSION, RecordKind.MESSAGE], Selection(agent_ids=(agent,))
        )
    )
    with store.connections.reading() as connection:
        connection.set_trace_callback(None)
        scans = [scan for one in sorted(statements) for scan in read_whole(connection, one)]
    assert scans == []


def test_traces_are_found_by_scope_and_by_source(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "KEYS", 2)
    store: Any = town.store
    kinds = [RecordKind.CONSOLIDATION, RecordKind.REFLECTION, RecordKind.FACT]
    documents = list(store.walk.documents(kinds, Selection()))
    scopes = sorted({scope_of(document) for document in documents})[:2]
    sources = sorted({s for d in documents if (s := getattr(d.record, "session_id", None))})[:2]
    assert sources
    traces = Traces(scopes=tuple(scopes), sources=tuple(sources))
    statements: set[str] = set()
    with store.connections.reading() as connection:
        connection.set_trace_callback(statements.add)
    found = list(store.walk.documents(kinds, Selection(traces=traces)))
    assert found == [
        d
        for d in documents
        if scope_of(d) in scopes
        or (d.kind is not RecordKind.CONSOLIDATION and d.record.session_id in sources)  # type: ignore[union-attr]
    ]
    assert 0 < len(found) < len(documents)
    counts = count_traces(store, traces, [])
    assert counts["facts"] == len([d for d in found if d.kind is RecordKind.FACT])
    with store.connections.reading() as connection:
        connection.set_trace_callback(None)
        scans = [scan for one in sorted(statements) for scan in read_whole(connection, one)]
    assert scans == []


# -- what cannot be read -----------------------------------------------------------------------

_NO_TEXT = "CAST(x'41ff42' AS TEXT)"
_DAMAGE = {
    RecordKind.AGENT: f"UPDATE agents SET persona = {_NO_TEXT}",
    RecordKind.USER: "UPDATE users SET feature_flags = '7'",
    RecordKind.SESSION: f"UPDATE sessions SET title = {_NO_TEXT}",
    RecordKind.MESSAGE: "UPDATE messages SET tool_calls = '[{'",
    RecordKind.POLICY: f"UPDATE policies SET memory_instructions = {_NO_TEXT}",
    RecordKind.CONSOLIDATION: "UPDATE consolidations SET absorbed_ids = '[7]'",
    RecordKind.REFLECTION: "UPDATE reflections SET propagated_from = '[[]]'",
    RecordKind.FACT: "UPDATE facts SET source_message_ids = 'none'",
    RecordKind.HELD: f"UPDATE held SET quote = {_NO_TEXT}",
    RecordKind.FORMATION: "UPDATE formations SET decisions = '[7]'",
    RecordKind.USAGE: "UPDATE usage_entries SET work = CAST(x'41ff' AS TEXT)",
    RecordKind.AUDIT: "UPDATE audit SET after = '7'",
    RecordKind.HISTORY: "UPDATE history SET snapshot = x'00ff'",
}
_IDS = {
    RecordKind.FACT: "UPDATE facts SET id = CAST(x'41ff' || CAST(id AS BLOB) AS TEXT)",
    RecordKind.MESSAGE: "UPDATE messages SET id = CAST(x'41ff' || CAST(id AS BLOB) AS TEXT)",
    RecordKind.FORMATION: "UPDATE formations SET id = CAST(x'41ff' || CAST(id AS BLOB) AS TEXT)",
}


@pytest.mark.parametrize("kind", ALL)
def test_one_bad_row_is_carried_along_with_its_fault(
    town: Town, monkeypatch: pytest.MonkeyPatch, kind: RecordKind
) -> None:
    monkeypatch.setattr(walk, "BATCH", 2)
    before = {document.id: document for document in whole(town.store)}
    victim = [document for document in before.values() if document.kind is kind][-1]
    key = "id"
    run(town, f"{_DAMAGE[kind]} WHERE {key} = ?", victim.id)
    after = {document.id: document for document in whole(town.store)}
    assert after.keys() == before.keys()
    assert (after[victim.id].record, after[victim.id].fault != "") == (None, True)
    changed = [id for id in before if after[id] != before[id]]
    assert changed == [victim.id]


@pytest.mark.parametrize("kind", _IDS)
def test_an_id_that_is_not_text_does_not_stop_a_walk(
    town: Town, monkeypatch: pytest.MonkeyPatch, kind: RecordKind
) -> None:
    monkeypatch.setattr(walk, "BATCH", 2)
    monkeypatch.setattr(walk, "KEYS", 2)
    count = len(list(town.store.walk.documents([kind], Selection())))  # type: ignore[attr-defined]
    run(town, f"{_IDS[kind]} WHERE rowid = (SELECT min(rowid) FROM {kind}s)")
    found = list(town.store.walk.documents([kind], Selection()))  # type: ignore[attr-defined]
    assert len(found) == count
    assert [document.fault for document in found if document.fault] == ["text is not UTF-8"]


def run(town: Town, statement: str, *values: str) -> None:
    store: Any = town.store
    with sqlite3.connect(store.connections.path) as connection:
        done = connection.execute(statement, values)
        assert done.rowcount == 1
    connection.close()


# -- while others write ------------------------------------------------------------------------


def test_between_pages_one_may_write(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "BATCH", 2)
    store: Any = town.store
    ids = [document.id for document in store.walk.documents([RecordKind.FACT], Selection())]
    seen = []
    for document in store.walk.documents([RecordKind.FACT], Selection()):
        seen.append(document.id)
        delete(store, document.record)
    assert seen == ids
    assert not list(store.walk.documents([RecordKind.FACT], Selection()))


def test_a_snapshot_is_of_one_moment(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "BATCH", 2)
    store: Any = town.store
    expected = whole(store)
    found = store.walk.documents(ALL, Selection(), snapshot=True)
    seen = [next(found)]
    for document in list(store.walk.documents([RecordKind.FACT], Selection())):
        delete(store, document.record)
    assert [*seen, *found] == expected
    assert whole(store) != expected
