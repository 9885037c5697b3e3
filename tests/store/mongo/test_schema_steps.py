"""The schema's steps on MongoDB: on the platform's facts, interrupted, and concurrent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId

from edenmem.errors import ConflictError, StoreError
from edenmem.models.memory import content_hash
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.common import migrations
from tests.store.mongo.conftest import OpenMongo
from tests.support.schema_steps import add_steps

pytestmark = pytest.mark.slow


STEPS = [step.name for step in migrations.migrations()]
MADE = datetime(2025, 2, 3, 4, 5, tzinfo=UTC)


def platform_fact(agent: ObjectId, content: str, **fields: Any) -> dict[str, Any]:
    """A fact without the fields that edenmem adds."""
    own = {"_id": ObjectId(), "agent_id": agent, "scope": "agent", "createdAt": MADE}
    return {**own, "content": content, **fields}


def test_facts_of_the_platform_get_missing_fields(open_mongo: OpenMongo) -> None:
    store = open_mongo()
    agent = ObjectId()
    facts = [platform_fact(agent, f"fact {n}") for n in range(600)]  # more than one batch
    facts[7] |= {"version": 3, "hash": content_hash("fact 7"), "access_count": 5}
    store.connection.database.memory2_facts.insert_many(facts)
    assert f"migration {STEPS[-1]}" in store.database.initialize()
    stored = list(store.connection.database.memory2_facts.find().sort("_id", 1))
    assert [each["hash"] for each in stored] == [content_hash(f["content"]) for f in facts]
    assert {each["formed_at"] for each in stored} == {MADE}
    assert (stored[7]["version"], stored[7]["access_count"]) == (3, 5)
    assert {each["version"] for each in stored} == {1, 3}
    assert len(list(store.memory.facts(FactFilter(scopes=(Scope.agent(str(agent)),))))) == 600


def test_an_interrupted_step_is_resumed(
    open_mongo: OpenMongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_mongo()
    raw, agent = store.connection.database.memory2_facts, ObjectId()
    raw.insert_many([platform_fact(agent, f"fact {n}", hash=f"h{n}") for n in range(700)])

    class CutOff(BaseException):
        """The process ends here."""

    from pymongo.collection import Collection

    write, batches = Collection.bulk_write, []

    def once(self: Any, *args: Any, **options: Any) -> Any:
        if batches:
            raise CutOff
        batches.append(1)
        return write(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Collection, "bulk_write", once)
        with pytest.raises(CutOff):
            store.migrations.migrate_up()
    assert raw.count_documents({"version": 1}) == 500
    assert [s.name for s in store.migrations.schema() if s.applied_at is None] == STEPS
    assert store.migrations.migrate_up() == STEPS
    assert raw.count_documents({"version": 1}) == 700
    assert raw.count_documents({"hash": {"$regex": "^h"}}) == 700


def test_an_existing_text_of_the_scope_is_kept(open_mongo: OpenMongo) -> None:
    store = open_mongo()
    store.database.initialize()
    ledger = store.connection.database.memory2_migrations
    ledger.delete_one({"_id": f"schema/{STEPS[0]}"})
    raw, agent = store.connection.database.memory2_facts, ObjectId()
    common = {"user_id": None, "group_id": None, "shard": None}
    raw.insert_one(platform_fact(agent, "Same.", hash=content_hash("Same."), **common))
    raw.insert_one(platform_fact(agent, "Same.", **common))
    raw.insert_one(platform_fact(agent, "Other.", hash="kept", **common))
    store.migrations.migrate_up()
    assert raw.count_documents({}) == 3
    assert raw.count_documents({"hash": None}) == 1
    assert raw.count_documents({"version": 1}) == 2


def test_a_database_in_use_is_migrated_by_its_own_command_alone(
    open_mongo: OpenMongo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_mongo()
    store.database.initialize()
    later = add_steps(monkeypatch, tmp_path)
    assert store.database.info().schema_version == "1"
    assert not any("migration" in line for line in store.database.initialize())
    assert [s.name for s in store.migrations.schema() if s.applied_at is None] == later


def test_another_process_is_named_and_an_expired_lease_taken(open_mongo: OpenMongo) -> None:
    store = open_mongo()
    store.database.initialize()
    ledger = store.connection.database.memory2_migrations
    until = datetime.now(UTC) + timedelta(minutes=2)
    ledger.insert_one({"_id": "lease/schema", "holder": "host 42", "until": until})
    for call in (store.migrations.migrate_up, lambda: store.migrations.migrate_down(1)):
        with pytest.raises(ConflictError, match="host 42"):
            call()
    ledger.update_one(
        {"_id": "lease/schema"}, {"$set": {"until": datetime.now(UTC) - timedelta(seconds=1)}}
    )
    assert store.migrations.migrate_up() == []
    assert ledger.find_one({"_id": "lease/schema"}) is None


def test_a_failed_step_is_not_recorded_and_ends_its_lease(
    open_mongo: OpenMongo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_mongo()
    store.database.initialize()
    later = add_steps(monkeypatch, tmp_path)

    def fail(self: migrations.Migration, kind: str, handle: Any) -> None:
        raise StoreError("no")

    with monkeypatch.context() as patch:
        patch.setattr(migrations.Migration, "up", fail)
        with pytest.raises(StoreError):
            store.migrations.migrate_up()
    assert [s.name for s in store.migrations.schema() if s.applied_at is None] == later
    assert store.migrations.migrate_up() == later
