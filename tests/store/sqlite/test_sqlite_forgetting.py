"""After a forgetting the bytes are gone: from the file, its log and the log's index."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from edenmem.models.forgetting import Compaction
from edenmem.models.indexes import IndexWish
from edenmem.models.memory import Fact
from edenmem.models.search import FactFilter
from edenmem.store.sqlite import SqliteStore
from tests.store.sqlite.test_sqlite_plans import full_scans
from tests.support.builders import removal, revision, some
from tests.support.forgetting import Town, fill, forget, make_town
from tests.support.leak import EARLIER, SECRET, VECTORS, make_leak
from tests.support.memory import add_fact, applied
from tests.support.vectors import random_unit

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    store = SqliteStore(tmp_path / "memory.db", busy_timeout=0.2)
    store.database.initialize()
    return store


def _bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def test_the_bytes_are_gone(store: SqliteStore, tmp_path: Path) -> None:
    """Known failure 49: a deleted row stays in free pages, in segments of the full-text index, in
    the write-ahead log and in rows that were moved."""
    town = make_town(store)
    said = fill(town)
    vectors = [random_unit(n, 64) for n in range(40)]
    many: list[Fact] = []
    for n, vector in enumerate(vectors):
        text = f"Zenobia planted quincetree{n:03d}."
        fact = add_fact(store, town.her(), text, embedding=vector, embedding_model="m")
        many.append(fact)
        said.append(text)
    revised = many[0]
    applied(store, revision(revised, "A quinceshrub instead.", scope=town.her()))
    said.append("A quinceshrub instead.")
    kept = add_fact(
        store, town.his(), "Bruno mends nets.", embedding=random_unit(99, 64), embedding_model="m"
    )
    before = _bytes(tmp_path)
    assert all(text.encode() in before for text in said)
    assert vectors[3] in before
    assert b"quincetree007" in before

    report = forget(store, user="zenobia", messages=True)

    assert report.complete, (report.remains, report.unfinished)
    after = _bytes(tmp_path)  # while the store is open: the log is there, and empty
    assert [text for text in said if text.encode() in after] == []
    for word in (b"zenobia", b"Zenobia", b"quince", b"zen#1234"):
        assert word not in after
    # The index cuts words that follow each other down to what is new in them.
    assert b"uincetree" not in after
    assert b"quincetre" not in after
    assert all(vector not in after for vector in vectors)
    assert kept.content.encode() in after
    (found,) = store.search.text_candidates(_his_facts(town), ["nets"], limit=3)
    assert [one.fact_id for one in found] == [kept.id]
    (near,) = store.search.semantic_candidates(
        _his_facts(town), [random_unit(99, 64)], model="m", limit=1
    )
    assert [one.fact_id for one in near] == [kept.id]


@pytest.mark.parametrize("messages", [False, True])
def test_the_bytes_of_a_single_fact_are_gone(
    store: SqliteStore, tmp_path: Path, messages: bool
) -> None:
    """A key stayed in the history and the log after 'delete', and in the file after that."""
    leak = make_leak(store)
    town = leak.town
    tombstone = add_fact(
        store,
        town.his(),
        "The barn opens with quinceoak.",
        embedding=random_unit(9, 64),
        embedding_model="m",
    )
    applied(store, removal(tombstone, scope=town.his()))
    if messages:  # else the text stays where it was said
        for message in leak.sources:
            store.host.put_message(msgspec.structs.replace(message, content=SECRET))
    store.indexes.create_index("facts_source", IndexWish(analyzer="lucene.english"))
    near = add_fact(
        store, town.his(), "Bruno owns a safe.", source_message_ids=(leak.sources[0].id,)
    )
    before = _bytes(tmp_path)
    for part in (SECRET.encode(), EARLIER.encode(), b"quinceoak", *VECTORS):
        assert part in before

    report = forget(store, facts=[leak.fact.id, tombstone.id], messages=messages)

    assert report.complete, (report.remains, report.unfinished)
    after = _bytes(tmp_path)
    for part in (b"quince", b"uince", b"opens", *VECTORS, random_unit(9, 64)):
        assert part not in after
    for kept in (leak.other, near):
        assert kept.content.encode() in after
    left = list(store.host.messages(town.lone.id, ids=[leak.sources[0].id]))
    assert bool(left) is not messages


def _his_facts(town: Town) -> FactFilter:
    return FactFilter(scopes=(town.his(),))


def test_conversations_and_accounts_go_if_they_are_ours(store: SqliteStore) -> None:
    town = make_town(store)
    fill(town)
    report = forget(store, user="zenobia", messages=True)
    assert report.complete
    assert store.host.session(town.own.id) is None
    shared = some(store.host.session(town.shared.id))
    assert shared.users == (town.bruno.id,)
    assert {message.sender for message in store.host.messages(town.shared.id)} == {None}
    assert store.host.user(town.zenobia.id) is None
    assert store.host.user(town.bruno.id) == town.bruno
    assert report.removed["messages"] == 4
    assert report.removed["messages in shared sessions"] == 2
    assert report.removed["accounts"] == 2


def test_a_file_in_use_is_finished_later(store: SqliteStore, tmp_path: Path) -> None:
    """Whoever reads an older state of the file keeps its pages in the log. What can be done is
    done and what is left is said; the same command finishes it, also when nobody of that name is
    known any more."""
    town = make_town(store)
    fill(town)
    with closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM facts").fetchone()
        report = forget(store, user="zenobia", messages=True)
        assert not report.complete
        (left,) = report.unfinished
        assert "uses the file" in left or "older state" in left
        assert b"quince" in _bytes(tmp_path)
        reader.execute("COMMIT")
    assert store.host.user(town.zenobia.id) is None
    report = forget(store, user="zenobia", messages=True)
    assert report.complete, (report.remains, report.unfinished)
    assert b"quince" not in _bytes(tmp_path)


def test_nothing_is_found_by_reading_a_whole_table(store: SqliteStore) -> None:
    """But for the look at every text, which walks keys a page at a time."""
    town = make_town(store)
    fill(town)
    store.database.compact = lambda: Compaction()  # type: ignore[method-assign]
    statements: set[str] = set()
    with store.connections.reading() as connection:
        connection.set_trace_callback(statements.add)
    forget(store, facts=[add_fact(store, town.her(), "She has a key.").id], messages=True)
    forget(store, user="zenobia", agent="adam")
    forget(store, session="balcony")
    forget(store, user="zenobia", messages=True)
    forget(store, group="harbour", agent="eve")
    forget(store, agent="eve")
    with store.connections.reading() as connection:
        connection.set_trace_callback(None)
        found = [scan for one in sorted(statements) for scan in full_scans(connection, one)]
    walks = re.compile(r"ORDER BY \w[\w., ]* LIMIT \d+\Z")  # narrowed ones order by "+…"
    partial = (
        "reflections_propagated",
        "facts_related",
        "reflections_related",
        "sqlite_autoindex_embedding_models_1",
    )
    assert [
        scan
        for scan, statement in found
        if not walks.search(statement) and not scan.endswith(partial)
    ] == []
