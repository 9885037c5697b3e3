"""Memory in a live database with odd documents of the platform."""

from __future__ import annotations

from typing import Any

import bson
import msgspec
import pytest
from bson import ObjectId
from bson.datetime_ms import DatetimeMS
from bson.errors import InvalidBSON

from edenmem.models.backup import RecordKind
from edenmem.models.changes import (
    AddFact,
    AddReflection,
    ChangeStatus,
    RemoveReflection,
    RestoreReflection,
    ReviseReflection,
    SetPrivacy,
    WritePolicy,
)
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core.codec import readable_fact
from edenmem.store.mongo.core.collection import read_bson
from edenmem.store.mongo.core.filters import policy_id
from edenmem.store.mongo.memory.memory import fill_buffers
from tests.engine.conftest import make_cast
from tests.support.builders import NOW, make_fact, make_policy, make_reflection, removal, writing
from tests.support.memory import add_fact, add_reflection, applied, apply, consolidate

pytestmark = pytest.mark.slow


SCOPE = Scope.user(new_id(), new_id())


def test_a_session_text_of_a_user_is_not_the_users(mongo: MongoStore) -> None:
    """The platform's key of a text includes the session."""
    raw = mongo.connection.database.memory2_consolidated
    foreign = {
        "_id": ObjectId(),
        "agent_id": ObjectId(SCOPE.agent_id),
        "user_id": ObjectId(SCOPE.owner),
        "session_id": ObjectId(),
        "scope": "user",
        "consolidated_content": "VERSION: 4\nthe platform's",
        "unabsorbed_ids": [ObjectId()],
    }
    raw.insert_one(foreign)
    one = add_reflection(mongo, SCOPE, "one")
    assert mongo.memory.consolidations([SCOPE])[SCOPE].version == 0
    assert mongo.memory.consolidations([SCOPE])[SCOPE].unabsorbed_ids == (one.id,)
    consolidate(mongo, SCOPE, "ours", expected_version=0, absorbed_ids=[one.id])
    two = make_reflection(SCOPE, "two")
    fill_buffers(mongo.connection, [two])
    assert mongo.memory.consolidations([SCOPE])[SCOPE].consolidated_content == "ours"
    assert mongo.memory.consolidations([SCOPE])[SCOPE].unabsorbed_ids == (two.id,)
    assert raw.find_one({"_id": foreign["_id"]}) == foreign


#: A damaged field of a document of each kind, and the changes that then miss their target.
ODD: list[tuple[str, dict[str, Any], list[int]]] = [
    ("facts", {"scope": None}, [1]),
    ("facts", {"scope": ["session", "user"]}, []),
    ("facts", {"scope": ["session", "group"]}, [1]),
    ("consolidated", {"scope": ["session", "user"]}, []),
    ("facts", {"agent_id": None}, [1]),
    ("facts", {"embedding": [1, "a"], "version": [1]}, []),
    ("reflections", {"scope": "more"}, [3]),
    ("reflections", {"scope": ["session", "user"], "session_id": ObjectId()}, [3]),
    ("consolidated", {"unpropagated_versions": 5}, []),
    ("consolidated", {"consolidated_content": {"$x": 1}, "unabsorbed_ids": "none"}, []),
    ("policies", {"scope": None, "version": {"$gt": 0}}, []),
]


@pytest.mark.parametrize(("collection", "fields", "missing"), ODD)
def test_an_odd_document_blocks_no_other_change(
    mongo: MongoStore, collection: str, fields: dict[str, Any], missing: list[int]
) -> None:
    scope = Scope.user(new_id(), new_id())
    fact = add_fact(mongo, scope)
    one = add_reflection(mongo, scope)
    ids = {"facts": ObjectId(fact.id), "reflections": ObjectId(one.id)}
    key = {"_id": ids[collection]} if collection in ids else {"user_id": ObjectId(scope.owner)}
    if collection == "policies":
        key = {"_id": policy_id(scope)}
    raw = mongo.connection.database[f"memory2_{collection}"]
    # An insert can write what an update cannot.
    assert raw.replace_one(key, {**raw.find_one(key), **fields}).matched_count
    results = apply(
        mongo,
        AddFact(fact=make_fact(scope, "another")),
        removal(fact, scope=scope),
        AddReflection(reflection=(two := make_reflection(scope, "two")), word_limit=300),
        ReviseReflection(
            scope=scope, reflection_id=one.id, expected_version=1, content="1", at=NOW
        ),
        writing(
            scope,
            "T",
            expected_version=mongo.memory.consolidations([scope])[scope].version,
            absorbed_ids=(two.id,),
        ),
        WritePolicy(policy=make_policy(scope), expected_version=0, at=NOW),
    )
    wanted = [ChangeStatus.MISSING if n in missing else ChangeStatus.APPLIED for n in range(6)]
    assert [result.status for result in results] == wanted
    assert mongo.memory.consolidations([scope])[scope].consolidated_content == "T"


def test_unchanged_items_are_reported_together(mongo: MongoStore) -> None:
    one, two = add_reflection(mongo, SCOPE, "one"), add_reflection(mongo, SCOPE, "two")
    consolidate(mongo, SCOPE, "text", expected_version=0, absorbed_ids=[one.id])
    changes = [
        SetPrivacy(
            scope=SCOPE, target_type="reflection", target_id=each.id, private=private, at=NOW
        )
        for each, private in ((one, False), (two, False), (two, False), (two, True), (two, True))
    ]
    applied(mongo, *changes)
    assert {each.id: each.private for each in mongo.memory.reflections((SCOPE,))} == {
        one.id: False,
        two.id: True,
    }


def test_unknown_entries_of_a_buffer_survive_sorting(mongo: MongoStore) -> None:
    one, two = add_reflection(mongo, SCOPE, "one"), add_reflection(mongo, SCOPE, "two")
    unknown = [ObjectId(), None, "text", 7]
    raw = mongo.connection.database.memory2_consolidated
    raw.update_one({}, {"$push": {"unabsorbed_ids": {"$each": [*unknown, *unknown]}}})
    applied(mongo, RemoveReflection(scope=SCOPE, reflection_id=one.id, expected_version=1, at=NOW))
    again = RestoreReflection(reflection=msgspec.structs.replace(one, version=2), word_limit=300)
    applied(mongo, again)
    ids = [ObjectId(each) for each in sorted((one.id, two.id))]
    assert raw.find_one()["unabsorbed_ids"] == [*unknown, *unknown, *ids]


# -- documents that cannot be read ----------------------------------------------------------------


def test_an_invalid_date_is_read_leniently(mongo: MongoStore) -> None:
    """Such a document would otherwise block all others of its batch."""
    stored = bson.encode({"_id": 1, "formed_at": DatetimeMS(2**60), "content": "x"})
    document, error = read_bson(stored)
    assert isinstance(document["formed_at"], DatetimeMS)
    assert error is None
    document, error = read_bson(stored.replace(b"x\0", b"\xff\0"))
    assert (document["content"], type(error)) == ("\ufffd", InvalidBSON)


def test_a_document_without_an_owner_is_not_a_fact(mongo: MongoStore) -> None:
    cast = make_cast(mongo)
    add_fact(mongo, cast.anna_scope)
    (document,) = mongo.connection.database["memory2_facts"].find()
    assert readable_fact(document) is not None
    assert readable_fact({**document, "user_id": None}) is None
    assert readable_fact({**document, "scope": "galaxy"}) is None
    mongo.connection.database["memory2_facts"].update_one({}, {"$unset": {"scope": ""}})
    (record,) = mongo.walk.documents([RecordKind.FACT])
    assert record.fault == "field 'scope' is missing or unknown"
