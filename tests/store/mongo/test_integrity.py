"""What the driver itself cannot read keeps nothing else from being read."""

from __future__ import annotations

import bson
from bson.datetime_ms import DatetimeMS
from bson.errors import InvalidBSON

from edenmem.models.backup import RecordKind
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core.codec import readable_fact
from edenmem.store.mongo.core.collection import read_bson
from tests.engine.conftest import make_cast
from tests.support.memory import add_fact


def test_a_date_beyond_all_calendars_is_read_without_trust(mongo: MongoStore) -> None:
    """One such document would keep all others of its batch from being read."""
    stored = bson.encode({"_id": 1, "formed_at": DatetimeMS(2**60), "content": "x"})
    document, error = read_bson(stored)
    assert isinstance(document["formed_at"], DatetimeMS)
    assert error is None
    document, error = read_bson(stored.replace(b"x\0", b"\xff\0"))
    assert (document["content"], type(error)) == ("\ufffd", InvalidBSON)


def test_what_belongs_to_nobody_is_no_fact(mongo: MongoStore) -> None:
    cast = make_cast(mongo)
    add_fact(mongo, cast.anna_scope)
    (document,) = mongo.connection.database["memory2_facts"].find()
    assert readable_fact(document) is not None
    assert readable_fact({**document, "user_id": None}) is None
    assert readable_fact({**document, "scope": "galaxy"}) is None
    mongo.connection.database["memory2_facts"].update_one({}, {"$unset": {"scope": ""}})
    (record,) = mongo.walk.documents([RecordKind.FACT])
    assert record.fault == "field 'scope' is missing or unknown"
