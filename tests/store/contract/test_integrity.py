"""Integrity checks of a store, also with damaged data."""

from __future__ import annotations

import pytest

from edenmem.models.backup import RecordKind, Selection
from edenmem.models.ids import new_id
from edenmem.models.memory import Consolidation, Fact, Reflection
from edenmem.store.protocol.store import Store
from tests.engine.conftest import Cast, make_cast
from tests.support.builders import make_formation, make_messages, make_user, some
from tests.support.memory import add_fact, add_reflection, consolidate, set_policy
from tests.support.vectors import count_models, random_unit

KINDS: tuple[RecordKind, ...] = (
    "fact",
    "reflection",
    "consolidation",
    "policy",
    "formation",
    "history",
    "audit",
)


@pytest.fixture
def cast(store: Store) -> Cast:
    """Eve with a fact, an absorbed and a pending reflection, a policy and a formation."""
    cast = make_cast(store)
    vector = random_unit(1)
    add_fact(store, cast.anna_scope, embedding=vector, embedding_model="model")
    first = add_reflection(store, cast.anna_scope)
    add_reflection(store, cast.anna_scope, "Anna dances.")
    consolidate(
        store, cast.anna_scope, "She is brief.", expected_version=0, absorbed_ids=[first.id]
    )
    set_policy(store, cast.bruno_scope, word_limit=90)
    messages = make_messages(cast.session, 4, sender=cast.bruno.id)
    store.host.add_messages(cast.session.id, messages)
    assert store.formations.claim(make_formation(cast.session, messages))
    return cast


def test_walks_yield_everything_once_and_decoded(store: Store, cast: Cast) -> None:
    other = cast.add_agent("adam")
    for kind in KINDS:
        records = list(store.walk.documents([RecordKind(kind)]))
        assert records, kind
        assert {record.kind for record in records} == {kind}
        assert len({record.id for record in records}) == len(records)
        assert {(record.fault, record.oddities) for record in records} == {("", ())}, kind
        assert {record.agent_id for record in records} == {cast.eve.id}
        assert (
            list(store.walk.documents([RecordKind(kind)], Selection(agent_ids=(cast.eve.id,))))
            == records
        )
        assert not list(store.walk.documents([RecordKind(kind)], Selection(agent_ids=(other.id,))))


def test_walks_match_reads(store: Store, cast: Cast) -> None:
    (fact,) = [record.record for record in store.walk.documents([RecordKind.FACT])]
    assert isinstance(fact, Fact)
    assert fact == store.memory.fact(fact.id)
    for record in store.walk.documents([RecordKind.REFLECTION]):
        assert isinstance(record.record, Reflection)
        assert record.record == store.memory.reflection(record.id)
    (text,) = [record.record for record in store.walk.documents([RecordKind.CONSOLIDATION])]
    assert isinstance(text, Consolidation)
    assert text == store.memory.consolidations([cast.anna_scope])[cast.anna_scope]


def test_walks_are_longer_than_a_page(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edenmem.store.sqlite.walk.walk.BATCH", 2)
    cast = make_cast(store)
    for number in range(3):
        add_fact(store, cast.anna_scope, f"Anna has {number} cats.")
    assert len(list(store.walk.documents([RecordKind.FACT]))) == 3


def test_present_returns_existing_ids(store: Store, cast: Cast) -> None:
    nobody = "0" * 24
    message = next(store.host.messages(cast.session.id)).id
    waiting = store.memory.pending(cast.anna_scope)[0].id
    text = store.memory.consolidations([cast.anna_scope])[cast.anna_scope].id
    group = cast.add_session(group_id="choir").group_id
    assert group is not None
    for kind, known in (
        ("agent", cast.eve.id),
        ("person", cast.anna.id),
        ("session", cast.session.id),
        ("group", group),
        ("message", message),
        ("reflection", waiting),
        ("consolidation", text),
    ):
        assert store.walk.present(kind, [known, nobody]) == {known}, kind
        assert store.walk.present(kind, []) == set()
    linked = make_user("zoe#1", eden_user_id=new_id())
    assert store.host.add_user(linked)
    assert linked.eden_user_id is not None  # without an account
    known = {cast.anna_on_discord.id, linked.id, linked.eden_user_id}
    assert store.walk.present("person", [*known, nobody]) == known


def test_people_are_members_and_senders(store: Store, cast: Cast) -> None:
    both = cast.add_session(cast.anna, cast.anna_on_discord)
    people = store.host.people_of([cast.session.id, both.id, "0" * 24])
    assert people == {
        cast.session.id: frozenset({cast.anna.id, cast.bruno.id}),
        both.id: frozenset({cast.anna.id}),
    }


def test_buffers_are_read_as_stored(store: Store, cast: Cast) -> None:
    (waiting,) = store.memory.pending(cast.anna_scope)
    texts = store.memory.consolidations([cast.anna_scope, cast.bruno_scope])
    assert {scope: text.unabsorbed_ids for scope, text in texts.items() if text.unabsorbed_ids} == {
        cast.anna_scope: (waiting.id,)
    }


def test_a_whole_memory_has_no_faults(store: Store, cast: Cast) -> None:
    assert not list(store.database.file_faults())
    assert not list(store.memory.duplicate_facts())
    assert not list(store.vectors.vector_faults())
    assert not list(store.statistics.miscounts())
    assert store.statistics.recount() == 0
    assert store.database.repair_schema() == 0
    before = store.memory.consolidations([cast.anna_scope])
    store.changes.finish_absorbing(cast.anna_scope)
    store.changes.finish_absorbing(cast.bruno_scope)
    assert store.memory.consolidations([cast.anna_scope]) == before


def test_a_dropped_vector_is_missing(store: Store, cast: Cast) -> None:
    (fact,) = [record.id for record in store.walk.documents([RecordKind.FACT])]
    assert store.vectors.drop_vectors([fact]) == 1
    assert count_models(store) == {"": 1}
    found = some(store.memory.fact(fact, with_vector=True))
    assert found.embedding is None
    assert store.vectors.set_vectors({fact: (found.hash, random_unit(1))}, model="model") == 1
