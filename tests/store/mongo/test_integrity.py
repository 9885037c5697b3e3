"""A document that the driver cannot read does not block the others."""

from __future__ import annotations

import bson
import pytest
from bson.datetime_ms import DatetimeMS
from bson.errors import InvalidBSON

from edenmem.models.backup import RecordKind
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core.codec import readable_fact
from edenmem.store.mongo.core.collection import read_bson
from tests.engine.conftest import make_cast
from tests.support.memory import add_fact

pytestmark = pytest.mark.slow


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
