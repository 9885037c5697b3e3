"""Documents that edenmem writes beside the platform: what the platform makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from bson import ObjectId

from edenmem.models.host import CachedContext
from edenmem.models.ids import new_id
from edenmem.store.mongo import MongoStore
from tests.support.builders import NOW, make_session


@pytest.mark.parametrize(
    ("switches", "on"),
    [
        ({}, False),
        ({"user_memory_enabled": None, "agent_memory_enabled": None}, False),
        ({"user_memory_enabled": False, "agent_memory_enabled": False}, False),
        ({"user_memory_enabled": True, "agent_memory_enabled": True}, True),
    ],
)
def test_known_failure_56_switches_are_read_as_the_platform_reads_them(
    mongo: MongoStore, database: Any, switches: dict[str, Any], on: bool
) -> None:
    agent = ObjectId()
    database.users3.insert_one({"_id": agent, "type": "agent", "username": "eve", **switches})
    read = mongo.agent(str(agent))
    assert read is not None
    assert (read.user_memory_enabled, read.agent_memory_enabled) == (on, on)


@pytest.mark.parametrize(
    ("agents", "shared", "served"), [(1, True, True), (1, False, False), (2, True, False)]
)
def test_known_failure_59_the_platform_is_left_only_what_it_may_serve(
    mongo: MongoStore, database: Any, agents: int, shared: bool, served: bool
) -> None:
    """It serves the cache to the next person who speaks, whichever agent answers."""
    session = make_session([new_id() for _ in range(agents)], [new_id()])
    mongo.put_session(session)
    context = CachedContext(xml="<x/>", fingerprint="f", built_at=NOW)
    mongo.cache_context(session.id, session.agents[0], context, shared=shared)
    kept = database.sessions.find_one()["memory_context"]
    assert ("cached_memory_context" in kept) is served
    assert mongo.cached_context(session.id, session.agents[0]) == context
