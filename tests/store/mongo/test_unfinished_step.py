"""The schema step that completes writes made without transactions.

It was also verified against the last edenmem that wrote in this way, interrupted at each of 409
commands, and that edenmem's own recovery.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from bson import ObjectId
from pymongo import MongoClient
from pymongo.errors import WriteError

from edenmem.models.ids import derived_id, new_id
from edenmem.models.scope import Scope
from edenmem.store.common import migrations
from edenmem.store.mongo.core.filters import build_consolidated_key, owner_fields, policy_id
from tests.support.builders import NOW
from tests.support.mongo_server import mongomock_client

AGENT, USER = new_id(), new_id()
SCOPE = Scope.user(AGENT, USER)
GROUP = Scope.group(AGENT, "choir")
LATER = NOW + timedelta(hours=1)
(STEP,) = (step for step in migrations.migrations() if step.number == 12)

Document = dict[str, Any]


@pytest.fixture
def database() -> Any:
    return mongomock_client()["old"]


def entry(database: Any, action: str, target: ObjectId, **fields: Any) -> ObjectId:
    """A pending entry with the change's ID."""
    scope: Scope | None = fields.pop("scope", SCOPE)
    document: Document = {
        "_id": ObjectId(),
        "at": LATER,
        "action": action,
        "target_type": action.split("_")[1],
        "target_id": target,
        "agent_id": ObjectId(AGENT),
        "before": None,
        "after": None,
        "status": "pending",
        **fields,
    }
    if scope is not None:
        document |= {"scope_key": scope.key, "scope": scope.kind.value, "owner": scope.owner}
    database.memory2_audit.insert_one(document)
    return document["_id"]


def version(database: Any, target: ObjectId, change: ObjectId, action: str, life: int = 0) -> None:
    database.memory2_history.insert_one(
        {
            "target_type": "fact",
            "target_id": target,
            "change_id": change,
            "action": action,
            "life": life,
        }
    )


def fact(database: Any, target: ObjectId, change: Any = None, **fields: Any) -> None:
    made = {"version": 1, "at": LATER, "action": "restore", "actor": "anna"}
    document = {"_id": target, "content": "one", "version": 1, "last_version": made}
    database.memory2_facts.insert_one({**document, "last_change_id": change, **fields})


def statuses(database: Any) -> dict[ObjectId, str]:
    return {one["_id"]: one["status"] for one in database.memory2_audit.find()}


def finish(database: Any, made: list[ObjectId]) -> None:
    """Apply the step twice: these changes are done, the others have no entry."""
    for _ in range(2):
        STEP.up("mongo", database)
        assert statuses(database) == dict.fromkeys(made, "done")


def test_changes_of_facts(database: Any) -> None:
    made = []
    for changed_since in (False, True):
        target = ObjectId()
        made.append(entry(database, "add_fact", target, after={"id": str(target)}))
        if changed_since:
            version(database, target, made[-1], "add")
        else:
            fact(database, target, made[-1])
    restored = ObjectId()
    made.append(entry(database, "add_fact", restored, after={"id": str(restored)}))
    fact(database, restored, made[-1], life=1)
    revised = ObjectId()
    made.append(entry(database, "revise_fact", revised, before={}, after={"version": 1}))
    fact(database, revised, made[-1])
    for gone in (True, False):
        removed = ObjectId()
        change = entry(database, "remove_fact", removed, before={"version": 1})
        version(database, removed, change, "delete")
        if gone:
            made.append(change)
        else:
            fact(database, removed)
    entry(database, "add_fact", ObjectId(), after={})
    other = ObjectId()
    fact(database, other, ObjectId())
    entry(database, "revise_fact", other, before={"version": 1}, after={"version": 2})
    finish(database, made)
    (came_back,) = database.memory2_history.find({"target_id": restored})
    assert (came_back["life"], came_back["action"], came_back["actor"]) == (1, "restore", "anna")
    # A tombstone without its removal is gone; that of a removal is kept.
    assert database.memory2_history.count_documents({"action": "delete"}) == 1
    (policy,) = database.memory2_policies.find()
    assert (policy["_id"], policy["revision"]) == (policy_id(SCOPE), len(made))
    assert owner_fields(SCOPE).items() <= policy.items()


@pytest.mark.parametrize("scope", [SCOPE, GROUP], ids=["user", "group"])
def test_changes_of_reflections(database: Any, scope: Scope) -> None:
    reflections, texts = database.memory2_reflections, database.memory2_consolidated
    added, absent, revised, untouched, removed = (ObjectId() for _ in range(5))
    made = [entry(database, "add_reflection", added, scope=scope, after={"version": 1})]
    reflections.insert_one({"_id": added, "absorbed": False, "change_ids": [made[0]]})
    entry(database, "add_reflection", absent, scope=scope, after={"version": 1})
    made.append(entry(database, "revise_reflection", revised, scope=scope))
    reflections.insert_one({"_id": revised, "change_ids": [made[-1]]})
    entry(database, "revise_reflection", untouched, scope=scope)
    reflections.insert_one({"_id": untouched, "change_ids": [ObjectId()]})
    before = {"version": 1}
    made.append(entry(database, "remove_reflection", removed, scope=scope, before=before))
    entry(database, "remove_reflection", untouched, scope=scope, before=before)
    finish(database, made)
    (text,) = texts.find()
    assert text["unabsorbed_ids"] == [added]
    assert build_consolidated_key(scope).items() <= text.items()


def test_texts_and_the_flags_that_follow_from_them(database: Any) -> None:
    texts, reflections = database.memory2_consolidated, database.memory2_reflections
    absorbed, released, newer = ObjectId(), ObjectId(), ObjectId()
    one, two, three = ObjectId(), ObjectId(), ObjectId()
    made = [entry(database, "write_consolidation", one)]
    texts.insert_one(
        {
            "_id": one,
            "version": 2,
            "last_change_id": made[0],
            "absorbing": made[0],
            "absorbed_ids": [absorbed, newer],
            "last_consolidated_at": LATER,
        }
    )
    made.append(entry(database, "revert_consolidation", two))
    marked = {"_id": two, "version": 3, "last_change_id": made[1], "releasing": [released]}
    texts.insert_one(marked)
    entry(database, "write_consolidation", three)
    reflections.insert_many(
        [
            {"_id": absorbed, "absorbed": False},
            {"_id": newer, "absorbed": False, "text_version": 3},
            {"_id": released, "absorbed": True, "consolidated_into": two},
        ]
    )
    finish(database, made)
    flags = {each["_id"]: each for each in reflections.find()}
    assert flags[absorbed]["absorbed"]
    assert flags[absorbed]["consolidated_into"] == one
    assert (flags[newer]["absorbed"], flags[released]["absorbed"]) == (False, False)
    assert not [each for each in texts.find() if {"absorbing", "releasing"} & each.keys()]


def test_settings_and_accounts(database: Any) -> None:
    agent, user, gone = ObjectId(AGENT), ObjectId(USER), ObjectId()
    switched = {"user_memory_enabled": True, "agent_memory_enabled": False}
    database.people.insert_many(
        [
            {"_id": agent, "type": "agent", "user_memory_enabled": True},
            {"_id": user, "type": "user"},
        ]
    )
    kind = {"scope": None, "target_type": "agent"}
    made = [
        entry(database, "set_agent_toggles", agent, after=switched, **kind),
        entry(database, "add_user", user, scope=None),
        entry(database, "remove_agent", gone, **kind),
    ]
    off = {**switched, "user_memory_enabled": False}
    entry(database, "set_agent_toggles", agent, after=off, **kind)
    entry(database, "add_agent", gone, **kind)
    entry(database, "remove_user", user, scope=None)
    private = ObjectId()
    database.memory2_reflections.insert_one({"_id": private, "private": True})
    for wanted in (True, False):
        after = {"private": wanted}
        change = entry(database, "set_privacy", private, target_type="reflection", after=after)
        if wanted:
            made.append(change)
    written = entry(database, "write_policy", ObjectId())
    made.append(written)
    entry(database, "remove_policy", ObjectId())
    key = ObjectId(derived_id("policy", SCOPE.key))
    database.memory2_policies.insert_one({"_id": key, "change_ids": [written], "version": 1})
    finish(database, made)


def test_finished_changes_are_left_alone(database: Any) -> None:
    done = ObjectId()
    database.memory2_audit.insert_one({"_id": done, "status": "done", "action": "add_fact"})
    database.memory2_audit.create_index([("status", 1), ("at", 1)], name="edenmem_audit_pending")
    finish(database, [done])
    assert "edenmem_audit_pending" not in database.memory2_audit.index_information()


def test_undecidable_changes_are_kept(database: Any) -> None:
    unknown = entry(database, "add_dream", ObjectId())
    rewritten = ObjectId()
    restored = entry(database, "add_fact", rewritten, after={"id": str(rewritten)})
    fact(database, rewritten, restored, life=1)
    database.memory2_facts.update_one({"_id": rewritten}, {"$unset": {"last_version": ""}})
    without_before = entry(database, "remove_reflection", ObjectId())
    STEP.up("mongo", database)
    assert statuses(database) == dict.fromkeys((unknown, restored, without_before), "unfinished")


def test_the_server_refuses_an_older_edenmem(secantus_uri: str) -> None:
    with MongoClient[Document](secantus_uri) as client:
        database = client[f"test_{new_id()}"]
        STEP.up("mongo", database)
        with pytest.raises(WriteError, match="validation"):
            entry(database, "add_fact", ObjectId())
        database.memory2_audit.insert_one({"status": "done"})
        STEP.down("mongo", database)
        entry(database, "add_fact", ObjectId())
        client.drop_database(database.name)
