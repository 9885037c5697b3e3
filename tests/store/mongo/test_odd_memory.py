"""Memory in a live database beside documents of the platform that edenmem would not have made."""

from __future__ import annotations

from bson import ObjectId

from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.store.mongo import MongoStore
from tests.support.builders import make_reflection
from tests.support.memory import add_reflection, consolidate

SCOPE = Scope.user(new_id(), new_id())


def test_a_text_of_one_session_of_a_user_is_not_the_users(mongo: MongoStore) -> None:
    """The platform's key of a text has the session in it."""
    raw = mongo._database.memory2_consolidated
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
    assert mongo.consolidations([SCOPE])[SCOPE].version == 0
    assert mongo.buffers([SCOPE]) == {SCOPE: (one.id,)}
    consolidate(mongo, SCOPE, "ours", expected_version=0, absorbed_ids=[one.id])
    two = make_reflection(SCOPE, "two")
    mongo._fill_buffers([two])
    assert mongo.consolidations([SCOPE])[SCOPE].consolidated_content == "ours"
    assert mongo.buffers([SCOPE]) == {SCOPE: (two.id,)}
    assert raw.find_one({"_id": foreign["_id"]}) == foreign
