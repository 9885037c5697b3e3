"""Fields that people and other systems set on facts: kept, filtered by, and unique where a key is.

Searches run on Atlas's search commands too, which have an implementation of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec
import pytest

from edenmem.models.backup import RecordKind
from edenmem.models.changes import ReviseFact
from edenmem.models.ids import new_id
from edenmem.models.memory import NO_FIELDS, Fact, FactFields
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter, Question
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, make_fact, revision, some
from tests.support.memory import add_fact, applied
from tests.support.stores import ATLAS_TOO, SECANTUS_TOO
from tests.support.vectors import random_unit

AGENT = new_id()
SCOPE = Scope.user(AGENT, new_id())
OTHER = Scope.user(AGENT, new_id())
FIELDS = FactFields(
    key="mem0/1",
    tags=("home", "people"),
    metadata={"app.version": "1", "$from": "mem0"},
    expires_at=NOW + timedelta(days=1),
    value={"a.b": [1, 2.5, None, {"$set": True}], "big": 2**63 - 1, "empty": {}},
)


@pytest.fixture(params=["sqlite", SECANTUS_TOO, ATLAS_TOO])
def store(request: pytest.FixtureRequest, open_store: Callable[[str], Store]) -> Store:
    return open_store(request.param)


def add(
    store: Store, content: str, fields: FactFields = NO_FIELDS, *, scope: Scope = SCOPE
) -> Fact:
    vector = {"embedding": random_unit(1, 32), "embedding_model": "m"}
    return add_fact(store, scope, content, **vector, **msgspec.structs.asdict(fields))


def revise(fact: Fact, fields: FactFields, version: int = 1) -> ReviseFact:
    return revision(fact, fact.content, expected_version=version, fields=fields)


@pytest.mark.parametrize("fields", [FIELDS, FactFields(value={}), NO_FIELDS])
def test_fields_come_back_as_they_were_given(store: Store, fields: FactFields) -> None:
    fact = add(store, "Anna has bees.", fields)
    assert store.memory.fact(fact.id) == msgspec.structs.replace(fact, embedding=None)
    applied(store, revise(fact, NO_FIELDS), revise(fact, fields.until(None), 2))
    now = some(store.memory.fact(fact.id, with_vector=True))
    assert now.fields == fields.until(None)
    assert now.embedding == fact.embedding
    versions = store.history.versions("fact", fact.id)
    assert [each.fields for each in versions] == [fields, NO_FIELDS, fields.until(None)]


def test_a_backup_takes_no_key_from_another_fact(store: Store) -> None:
    known = add(store, "one", FactFields(key="k"))
    records = [
        make_fact(SCOPE, text, key=key) for text, key in (("x", "k"), ("y", "j"), ("z", "j"))
    ]
    for dry_run in (True, False):
        answers = store.walk.load(RecordKind.FACT, records, dry_run=dry_run)
        assert [each.status for each in answers] == ["refused", "added", "refused"]
        assert "has that key" in answers[0].detail
    facts = store.memory.facts(FactFilter(scopes=(SCOPE,)))
    assert {fact.id for fact in facts} == {known.id, records[1].id}


def found(store: Store, **filter: object) -> dict[str, list[str]]:
    wanted = FactFilter(scopes=(SCOPE,), **filter)  # type: ignore[arg-type]
    facts = {fact.id: fact.content for fact in store.memory.facts(wanted)}
    if "expired_at" in filter:  # no search asks for these
        return {"facts": sorted(facts.values())}
    answers = store.search.candidates(
        wanted, [Question("bees", random_unit(1, 32))], ("semantic", "text"), model="m", limit=9
    )
    lists = {
        name: sorted(facts.get(id, id) for id in scores.found)
        for name, scores in answers.lists[0].items()
    }
    return {"facts": sorted(facts.values()), **lists}


def test_filters_are_part_of_every_query(store: Store) -> None:
    end = NOW + timedelta(days=1)
    add(store, "bees one", FactFields(key="k", tags=("home",), expires_at=end))
    add(store, "bees two", FactFields(tags=("home", "work")))
    add(store, "bees three")

    def everywhere(*contents: str) -> dict[str, list[str]]:
        return dict.fromkeys(("facts", "semantic", "text"), sorted(contents))

    assert found(store, key="k") == everywhere("bees one")
    assert found(store, tags=("home",)) == everywhere("bees one", "bees two")
    assert found(store, tags=("home", "work")) == everywhere("bees two")
    assert found(store, tags=("none",)) == everywhere()
    assert found(store, live_at=NOW) == everywhere("bees one", "bees two", "bees three")
    assert found(store, live_at=end) == everywhere("bees two", "bees three")
    assert found(store, live_at=end, tags=("home",)) == everywhere("bees two")
    assert found(store, live_at=end + timedelta(1), since=NOW, tags=("home",)) == everywhere(
        "bees two"
    )
    assert found(store, expired_at=end) == {"facts": ["bees one"]}
    assert found(store, expired_at=NOW) == {"facts": []}


def test_expired_facts_are_not_shown(store: Store) -> None:
    end = NOW + timedelta(hours=1)
    fact = add(store, "bees", FactFields(expires_at=end))
    elsewhere = add_fact(store, Scope.agent(new_id()), "wasps", expires_at=end)
    add(store, "wings")

    def recent(at: datetime) -> list[str]:
        facts = store.memory.recent_facts([SCOPE], since=NOW, limit=9, live_at=at)
        return sorted(each.content for each in facts)

    assert recent(NOW) == ["bees", "wings"]
    assert recent(end) == ["wings"]
    assert len(store.history.facts_at([SCOPE], NOW, limit=9)) == 2
    assert [each.content for each in store.history.facts_at([SCOPE], end, limit=1)] == ["wings"]

    def expired(at: datetime, **more: object) -> set[str]:
        facts = store.memory.expired_facts(at, limit=9, **more)  # type: ignore[arg-type]
        return {each.id for each in facts}

    assert expired(NOW) == set()
    assert expired(end) == {fact.id, elsewhere.id}
    assert expired(end, agent_ids=[AGENT]) == {fact.id}
    assert expired(end, agent_ids=[]) == set()
    applied(store, revise(fact, NO_FIELDS), at=end)
    assert recent(end) == ["bees", "wings"]
    assert len(store.history.facts_at([SCOPE], end, limit=9)) == 2
    assert len(store.history.facts_at([SCOPE], end - timedelta(1), limit=9)) == 0
