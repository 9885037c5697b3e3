"""The index of source messages in a SQLite file: made on request, whole after a kill, and clean."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from edenmem.engine.indexes import IndexKeeper
from edenmem.errors import ConflictError, StoreError
from edenmem.models.backup import RecordKind, StoredMessage
from edenmem.models.host import Message
from edenmem.models.ids import new_id
from edenmem.models.indexes import IndexState, IndexWish
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.sqlite import SqliteStore
from edenmem.store.sqlite.core import source_words
from tests.support.builders import make_fact, make_message, removal
from tests.support.forgetting import Town, forget, make_town
from tests.support.memory import add_facts, applied
from tests.support.runtime import make_runtime

WISH = IndexWish(analyzer="lucene.english")
INDEX = "facts_source"


@pytest.fixture
def town(tmp_path: Path) -> Town:
    store = SqliteStore(tmp_path / "memory.db", busy_timeout=0.2)
    store.database.initialize()
    return make_town(store)


def learn(town: Town, count: int) -> list[tuple[Fact, Message]]:
    """Add facts, each from one message of Bruno, and one fact without a source."""
    scope, store = town.his(), town.store
    said = [
        make_message(town.shared, f"The gearbox{n} of the trawler.", sender=town.bruno.id)
        for n in range(count)
    ]
    store.host.add_messages(town.shared.id, said)
    facts = [
        make_fact(scope, f"Fact number {n}.", source_message_ids=(message.id,))
        for n, message in enumerate(said)
    ]
    add_facts(store, *facts, make_fact(scope, "A fact without a source."))
    return list(zip(facts, said, strict=True))


def state(store: SqliteStore) -> IndexState:
    (found,) = [one for one in store.indexes.list_indexes(WISH) if one.name == INDEX]
    return found


def load(store: SqliteStore, messages: Sequence[Message]) -> None:
    """Load messages as from a backup."""
    records = [StoredMessage(**msgspec.structs.asdict(message)) for message in messages]
    store.walk.load(RecordKind.MESSAGE, records)


def awaited(store: SqliteStore) -> set[str]:
    """Return the messages that facts wait for."""
    with store.connections.reading() as connection:
        rows = connection.execute("SELECT message_id FROM facts_source_awaited").fetchall()
    return {message_id for (message_id,) in rows}


def found(town: Town, query: str, scope: Scope | None = None) -> set[str]:
    filter = FactFilter(scopes=(scope or town.his(),))
    (one,) = town.store.search.text_candidates(filter, [query], limit=99, source=True)
    return {each.fact_id for each in one}


def test_the_index_is_made_on_request_and_dropped_again(town: Town) -> None:
    store = town.store
    pairs = learn(town, 5)
    assert state(store).status == "unwanted"
    with pytest.raises(StoreError):
        found(town, "gearbox1")
    store.indexes.create_index(INDEX, WISH)
    assert (state(store).status, state(store).note) == ("ready", "FTS5 of the sources, 5 facts")
    assert found(town, "trawler") == {fact.id for fact, _ in pairs}
    assert found(town, "gearbox3") == {pairs[3][0].id}
    store.indexes.drop_index(INDEX, dry_run=True)
    assert state(store).status == "ready"
    store.indexes.drop_index(INDEX)
    assert state(store).status == "unwanted"
    assert not store.search.search_ability().source_words


def test_a_killed_run_is_finished_by_the_next(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    store = town.store
    monkeypatch.setattr(source_words, "BATCH", 2)
    pairs = learn(town, 7)
    whole = source_words.index_batch

    def killed(connection: sqlite3.Connection, after: int) -> int | None:
        if after >= 4:
            raise KeyboardInterrupt
        return whole(connection, after)

    with monkeypatch.context() as patch:
        patch.setattr(source_words, "index_batch", killed)
        with pytest.raises(KeyboardInterrupt):
            store.indexes.create_index(INDEX, WISH)
    assert state(store).status == "missing"
    assert "index create facts_source" in state(store).note
    assert not store.search.search_ability().source_words
    with pytest.raises(StoreError, match="incomplete"):
        found(town, "trawler")
    done: list[int] = []

    def counted(connection: sqlite3.Connection, after: int) -> int | None:
        done.append(after)
        return whole(connection, after)

    with monkeypatch.context() as patch:
        patch.setattr(source_words, "index_batch", counted)
        (action,) = IndexKeeper(make_runtime(store)).create([INDEX])
    assert (action.outcome, action.state.status) == ("made", "ready")
    assert len(done) == 3  # the rest alone: 5 and 6, 7 and the fact without a source, the end
    assert store.search.search_ability().source_words
    assert found(town, "trawler") == {fact.id for fact, _ in pairs}


def test_a_build_of_a_dropped_index_stops_with_an_error(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = town.store
    learn(town, 3)
    whole = source_words.index_batch

    def dropped(connection: sqlite3.Connection, after: int) -> int | None:
        source_words.drop_index(connection)
        return whole(connection, after)

    with monkeypatch.context() as patch:
        patch.setattr(source_words, "index_batch", dropped)
        with pytest.raises(ConflictError, match="dropped by another process"):
            store.indexes.create_index(INDEX, WISH)


def test_others_can_write_between_the_steps_of_a_build(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is a short transaction: 200 facts, or some pages of a merge."""
    store = town.store
    learn(town, 60)
    monkeypatch.setattr(source_words, "BATCH", 10)
    monkeypatch.setattr(source_words, "_MERGE_PAGES", 1)
    other = SqliteStore(store.database.info().location, busy_timeout=0)
    written: list[int] = []

    def write() -> None:
        said = make_message(town.lone, "Later.", sender=town.bruno.id)
        other.host.add_messages(town.lone.id, [said])
        written.append(1)

    monkeypatch.setattr(source_words, "yield_to_writers", write)
    store.indexes.create_index(INDEX, WISH)
    assert len(written) > 7 + 1  # batches and more than one step of the merge
    assert state(store).status == "ready"


def test_a_message_loaded_after_its_fact_is_found(town: Town) -> None:
    store, scope = town.store, town.his()
    store.indexes.create_index(INDEX, WISH)
    late = make_message(town.shared, "The gearbox of the trawler.", sender=town.bruno.id)
    fact = make_fact(scope, "It leaks.", source_message_ids=(late.id,))
    add_facts(store, fact)
    assert found(town, "trawler") == set()
    before = store.memory.revisions([scope])[scope]
    for _ in range(2):
        store.walk.load(RecordKind.MESSAGE, [StoredMessage(**msgspec.structs.asdict(late))])
        assert found(town, "trawler") == {fact.id}
        assert store.memory.revisions([scope])[scope] == before + 1


def test_late_messages_cost_no_look_at_other_facts(town: Town) -> None:
    """Each batch of messages of an import read all facts."""
    store, scope = town.store, town.his()
    store.indexes.create_index(INDEX, WISH)
    learn(town, 30)
    late = [
        make_message(town.shared, f"The capstan{n} of the trawler.", sender=town.bruno.id)
        for n in range(3)
    ]
    sources = [(late[0].id, late[1].id), (late[1].id,), (late[2].id,)]
    facts = [
        make_fact(scope, f"Late fact {n}.", source_message_ids=ids) for n, ids in enumerate(sources)
    ]
    add_facts(store, *facts)
    statements: set[str] = set()
    with store.connections.writing() as connection:
        connection.set_trace_callback(statements.add)
    load(store, late[:2])
    with store.connections.writing() as connection:
        connection.set_trace_callback(None)
        assert any("facts_source" in one and "MATCH" not in one for one in statements)
        plans = [
            plan[-1]
            for one in statements
            if one.startswith(("SELECT", "INSERT", "UPDATE", "DELETE")) and "facts" in one
            for plan in connection.execute(f"EXPLAIN QUERY PLAN {one}")
        ]
    assert "SEARCH f USING INTEGER PRIMARY KEY (rowid=?)" in plans
    scans = re.compile(r"SCAN (f|facts|a|facts_source_awaited)\b")
    assert [plan for plan in plans if scans.match(plan)] == []
    assert found(town, "capstan0") == {facts[0].id}
    assert found(town, "capstan1") == {facts[0].id, facts[1].id}
    assert awaited(store) == {late[2].id}


def test_awaited_messages_go_with_their_fact_and_with_the_index(town: Town) -> None:
    store, scope = town.store, town.his()
    store.indexes.create_index(INDEX, WISH)
    fact = make_fact(scope, "It leaks.", source_message_ids=(new_id(),))
    add_facts(store, fact)
    assert awaited(store) == set(fact.source_message_ids)
    applied(store, removal(fact, scope=scope))
    assert awaited(store) == set()
    store.indexes.drop_index(INDEX)
    with pytest.raises(StoreError, match="no such table"):
        awaited(store)


def test_a_message_that_changes_takes_its_old_words_along(town: Town) -> None:
    store = town.store
    ((fact, message), *_) = learn(town, 2)
    store.indexes.create_index(INDEX, WISH)
    changed = make_message(town.shared, "The winch.", id=message.id, sender=town.bruno.id)
    assert found(town, "gearbox0") == {fact.id}
    store.host.put_message(changed)
    assert found(town, "gearbox0") == set()
    assert found(town, "winch") == {fact.id}


def test_deleted_messages_leave_no_word_in_the_file(town: Town, tmp_path: Path) -> None:
    """Known failure 49: the index keeps words of deleted rows until it is merged."""
    store = town.store
    store.indexes.create_index(INDEX, WISH)
    said = make_message(town.shared, "Quincemarmalade.", sender=town.zenobia_on_discord.id)
    store.host.add_messages(town.shared.id, [said])
    fact = make_fact(town.group, "The harbour opens at six.", source_message_ids=(said.id,))
    add_facts(store, fact)
    assert found(town, "quincemarmalade", town.group) == {fact.id}
    assert forget(store, user="zenobia", messages=True).complete
    assert found(town, "quincemarmalade", town.group) == set()
    assert state(store).status == "ready"
    content = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert b"uincemarmalad" not in content.lower()
    assert store.memory.fact(fact.id) is not None
