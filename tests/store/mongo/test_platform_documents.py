"""Documents that edenmem writes must work for the platform."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from typing import Any

import bson
import msgspec
import pytest
from bson import (
    Binary,
    Code,
    DatetimeMS,
    DBRef,
    Decimal128,
    Int64,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Timestamp,
    json_util,
)
from bson.codec_options import CodecOptions, DatetimeConversion

from edenmem.cli.terminal.data import to_data, to_json
from edenmem.engine.edits.checks import add_account
from edenmem.engine.formation.transcript import Cast, transcribe
from edenmem.engine.sessions.importer import import_sessions
from edenmem.errors import ConfigError, InputError, UsageError
from edenmem.models.host import Agent, CachedContext, ToolCall, literal
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.settings.schema import FormationSettings
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.host import host_codec
from edenmem.store.protocol.store import Store
from tests.engine.exchange.test_json_lines import exported, imported
from tests.platform import double
from tests.store.mongo.conftest import OpenMongo
from tests.support.builders import (
    NOW,
    make_agent,
    make_formation,
    make_message,
    make_session,
    make_user,
    some,
)
from tests.support.memory import add_fact, add_reflection, consolidate
from tests.support.runtime import make_runtime
from tests.support.vectors import random_unit

pytestmark = pytest.mark.slow


def test_of_a_large_session_only_the_fields_of_the_model_are_read(
    mongo: MongoStore, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session(
        [make_agent("mira")],
        [make_user("lena")],
        name="garden",
        title="Garden",
        group_id="g",
        platform="myspace",
        incognito=True,
        imported=True,
        parent=new_id(),
        last_activity=NOW,
    )
    assert mongo.host.put_session(session)
    collection = database.sessions
    more = {"budget": {"log": ["x" * 100_000]}, "extras.notes": "x", "memory_context.cached": "x"}
    collection.update_one({"_id": ObjectId(session.id)}, {"$set": more})
    whole = host_codec.session_from(collection.find_one())
    read: list[dict[str, Any]] = []
    parse = host_codec.session_from
    monkeypatch.setattr(host_codec, "session_from", lambda each: read.append(each) or parse(each))
    host = mongo.host
    assert host.session(session.id) == whole == session
    assert host.sessions_by_ids([session.id]) == {session.id: whole}
    assert list(host.sessions(group_id="g")) == [whole]
    assert list(host.sessions_of(group_id="g")) == [whole]
    assert len(read) == 4
    for document in read:
        assert document.keys().isdisjoint({"budget"})
        assert document["extras"].keys() == {"incognito", "edenmem"}
        assert document["memory_context"].keys() == {"last_activity"}


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
    read = some(mongo.host.agent(str(agent)))
    assert (read.user_memory_enabled, read.agent_memory_enabled) == (on, on)


@pytest.mark.parametrize(
    ("agents", "shared", "served"), [(1, True, True), (1, False, False), (2, True, False)]
)
def test_known_failure_59_the_platform_gets_only_contexts_it_may_serve(
    mongo: MongoStore, database: Any, agents: int, shared: bool, served: bool
) -> None:
    """The platform serves the cache to the next user who writes, for any agent."""
    session = make_session([new_id() for _ in range(agents)], [new_id()])
    mongo.host.put_session(session)
    context = CachedContext(xml="<x/>", fingerprint="f", built_at=NOW)
    mongo.contexts.cache_context(session.id, session.agents[0], context, shared=shared)
    kept = database.sessions.find_one()["memory_context"]
    assert ("cached_memory_context" in kept) is served
    assert mongo.contexts.find_context(session.id, session.agents[0]) == context


# -- documents that the platform can load ----------------------------------------------------------

AGENT, ANNA = make_agent("eve", name="Eve"), make_user("anna")
CALLS = [
    {"id": "call_1", "function": {"name": "look", "arguments": '{"at": 3, "$where": 1}'}},
    {"function": {"name": "look", "arguments": "not JSON"}},
    {"tool": "paint", "args": [1, 2], "status": "success", "result": {"url": "x"}},
    {"tool": "paint", "status": "odd", "result": ["a", {"$oid": "b"}, None]},
]


def test_known_failure_60_every_document_fits_the_platforms_models(
    mongo: MongoStore, database: Any
) -> None:
    """Known failure 60: one session without an owner ends the platform's whole cold run."""
    mongo.host.add_agent(AGENT)
    mongo.host.add_user(ANNA)
    lines = [
        {"session": "one", "agent": "eve", "users": ["anna"], "platform": "discord"},
        {"session": "two", "agent": "eve", "platform": "irc"},  # owned by the agent's owner
        {"session": "three", "agent": "eve", "owner": "anna", "group": "guild"},
    ]
    said = [{"role": "user", "content": "Look."}, {"role": "assistant", "tool_calls": CALLS}]
    data = [json.dumps({**line, "messages": said}) for line in lines]
    first = import_sessions(make_runtime(mongo), data)
    assert (first.new_sessions, first.new_messages) == (3, 6)
    assert import_sessions(make_runtime(mongo), data).new_messages == 0
    session = next(one for one in mongo.host.sessions() if one.name == "two")
    assert session.platform == "irc"
    odd = make_session([AGENT], [ANNA], status="odd")
    mongo.host.put_session(odd)
    mongo.host.add_messages(
        odd.id,
        [
            make_message(odd, trigger=True),
            make_message(odd, tool_calls=[ToolCall(tool="look", args="x", result="y")]),
        ],
    )
    for scope in (
        Scope.agent(AGENT.id),
        Scope.user(AGENT.id, ANNA.id),
        Scope.session(AGENT.id, session.id),
    ):
        if scope.kind != "session":
            add_fact(mongo, scope, "With a vector.", embedding=random_unit(1, 8))
            add_fact(mongo, scope, "Without one.")
        absorbed = add_reflection(mongo, scope, session_id=session.id)
        add_reflection(mongo, scope, "Pending.", session_id=session.id)
        consolidate(mongo, scope, "A text.", expected_version=0, absorbed_ids=[absorbed.id])
    context = CachedContext(xml="<x/>", fingerprint="f", built_at=NOW)
    mongo.contexts.cache_context(session.id, AGENT.id, context)

    shapes = (double.Session, double.Message, double.Fact, double.Reflection, double.Consolidated)
    for shape in shapes:
        documents = list(database[shape.collection].find())
        assert len(documents) > 2, shape
        for document in documents:
            assert shape.model_validate(document).createdAt, shape
    double.Agent.model_validate(database.users3.find_one({"type": "agent"}))
    double.User.model_validate(database.users3.find_one({"type": "user"}))
    calls = database.messages.find_one({"tool_calls.id": "call_1"})["tool_calls"]
    assert calls[0]["args"] == {"at": 3, "$where": 1}
    assert calls[1]["args"] == {"arguments": "not JSON"}
    assert [call.get("status") for call in calls[2:]] == ["completed", None]
    assert calls[3]["result"] == [{"output": "a"}, {"$oid": "b"}, {"output": None}]


def test_known_failure_60_an_owner_is_required(mongo: MongoStore, sqlite_store: Store) -> None:
    bare = Agent(id=new_id(), username="mira")
    said = [{"role": "user", "content": "Hello."}]
    line = json.dumps({"session": "one", "agent": "mira", "messages": said})
    for add in (
        lambda: add_account(make_runtime(mongo), bare),
        lambda: mongo.host.add_agent(bare),
        lambda: mongo.host.put_session(make_session([bare], owner=None)),
        lambda: import_sessions(make_runtime(mongo), [line], add_missing=True),
    ):
        with pytest.raises(UsageError, match="has no owner"):
            add()
    assert list(mongo.host.agents()) == []
    assert add_account(make_runtime(sqlite_store), bare)
    sqlite_store.host.add_user(ANNA)
    import_sessions(make_runtime(sqlite_store), [line])
    backup = exported(sqlite_store)
    with pytest.raises(InputError, match="--owner USER"):
        imported(mongo, backup)
    assert list(mongo.host.users()) == []
    imported(mongo, backup, owner="anna")  # only named in the file
    assert [agent.owner for agent in mongo.host.agents()] == [ANNA.id]
    assert [session.owner for session in mongo.host.sessions()] == [ANNA.id]
    other = json.dumps({"session": "two", "agent": "otto", "messages": said})
    import_sessions(make_runtime(mongo), [other], add_missing=True, owner="anna")
    assert {agent.owner for agent in mongo.host.agents()} == {ANNA.id}


@pytest.mark.parametrize("sign", ["index", "session", "fact"])
def test_known_failure_60_binary_vectors_are_refused_next_to_the_platform(
    mongo: MongoStore, database: Any, open_mongo: OpenMongo, sign: str
) -> None:
    """Known failure 60: one BSON vector hides all facts from the platform's context."""
    match sign:
        case "index":
            double.Platform(database)
        case "session":
            database.sessions.insert_one({"budget": {}, "session_type": "passive"})
        case "fact":
            database.memory2_facts.insert_one({"content": "Theirs.", "hash": "x"})
    scope, vector = Scope.agent(new_id()), random_unit(1, 8)
    store = open_mongo(database=database.name, embedding_storage="bindata")
    # Even without any vector, the platform searches those of its own model only (FAILURES 111).
    assert store.switches.platform_model("m") == "text-embedding-3-small"
    assert store.switches.platform_model("text-embedding-3-small") == ""
    add_fact(store, scope, "Without a vector.")
    with pytest.raises(ConfigError, match="not readable by the platform"):
        add_fact(store, scope, embedding=vector, embedding_model="m")
    with pytest.raises(ConfigError, match="not readable by the platform"):
        store.formations.claim(make_formation(session := make_session(), [make_message(session)]))
    forced = open_mongo(
        database=database.name, embedding_storage="bindata", bindata_beside_platform=True
    )
    add_fact(forced, scope, embedding=vector, embedding_model="m")


# -- any BSON value --------------------------------------------------------------------------------

VALUES: dict[str, Any] = {
    "int32": 7,
    "int64": Int64(7),
    "large": Int64(2**40),
    "least": Int64(-(2**63)),
    "double": 7.0,
    "nan": math.nan,
    "infinity": -math.inf,
    "id": ObjectId("65f2a1000000000000000001"),
    "decimal": Decimal128("0.10"),
    "regex": Regex("^a", "im"),
    "binary": Binary(b"\x00\xff", 128),
    "bytes": b"\x00\xff",
    "timestamp": Timestamp(4, 2),
    "least key": MinKey(),
    "most key": MaxKey(),
    "code": Code("f()"),
    "code with scope": Code("f()", {"n": Int64(1)}),
    "time": NOW,
    "before 1970": datetime(1850, 1, 1, tzinfo=UTC),
    "reference": DBRef("a", ObjectId("65f2a1000000000000000001")),
    "like a reference": {"$ref": 5, "$id": Int64(1)},
    "like extended JSON": {"$oid": "65f2a1000000000000000001"},
    "like ours": {"$document": {"$date": 1}},
    "keys": {"a.b": {"$set": [{"$numberLong": "1"}]}, "scope": {"x": 1}, "embedding": [1]},
    "empty": [{}, [], "", None, False],
}


def test_known_failure_64_any_value_is_shown_formed_and_comes_back_equal(
    mongo: MongoStore, database: Any, open_mongo: OpenMongo, sqlite_store: Store
) -> None:
    """Known failure 64: an Int64 in a tool call ended export and show with a bug."""
    deep: Any = Int64(1)
    for _ in range(40):
        deep = [{"in": deep}]
    session = make_session([AGENT], [ANNA])
    assert mongo.host.add_agent(AGENT)
    assert mongo.host.add_user(ANNA)
    assert mongo.host.put_session(session)
    odd = {"id": "call_0", "tool": "odd", "args": {**VALUES, "deep": deep}, "cost": Decimal128("1")}
    calls = [odd] + [
        {"id": f"call_{name}", "tool": "odd", "args": {}, "status": None, "result": value}
        for name, value in VALUES.items()
        if value is not None
    ]
    database.messages.insert_one(
        {
            "session": [ObjectId(session.id)],
            "role": "assistant",
            "content": "Look.",
            "tool_calls": calls,
            "createdAt": None,
        }
    )
    stored = as_text(database)
    (message,) = mongo.host.messages(session.id)
    assert json.loads(to_json(to_data(message)))["tool_calls"][0]["args"]["keys"]
    cast = Cast(agent_id=AGENT.id, agents={AGENT.id: AGENT}, users={})
    shown = transcribe([message], cast, FormationSettings(tool_characters=100_000)).text
    for text in ("65f2a1000000000000000001", "0.10", "2026-03-14T12:00:00Z"):
        assert text in shown

    backup = exported(mongo)
    imported(sqlite_store, backup)
    for source in (backup, exported(sqlite_store)):
        other = open_mongo()
        other.database.initialize()
        assert imported(other, source).failed == 0
        assert as_text(other.connection.database) == stored


@pytest.mark.parametrize(
    "value",
    [*VALUES.values(), *(DatetimeMS(sign * 10**15) for sign in (1, -1)), {"a": re.compile("b")}],
)
def test_a_value_of_bson_is_json_and_back(value: Any) -> None:
    """Includes a time that the test servers refuse, in the year 33658."""
    options: CodecOptions[Any] = CodecOptions(
        tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
    )
    stored = bson.encode({"value": value})
    read = bson.decode(stored, options)["value"]
    line = msgspec.json.encode(codec.to_json(read))
    assert bson.encode({"value": codec.from_json(msgspec.json.decode(line))}) == stored
    literal_line = literal(msgspec.json.decode(line))
    assert codec.to_json(codec.from_json(literal_line)) == literal_line


def as_text(database: Any) -> str:
    (document,) = database.messages.find()
    return json_util.dumps(
        document["tool_calls"], json_options=json_util.CANONICAL_JSON_OPTIONS, sort_keys=True
    )


def test_known_failure_65_a_document_that_is_too_large_is_refused_before_anything(
    mongo: MongoStore, sqlite_store: Store
) -> None:
    """Known failure 65: a message over 16 MB was skipped, and the rest of the import stored."""
    mongo.host.add_agent(AGENT)
    sqlite_store.host.add_agent(AGENT)
    huge = {"role": "user", "content": "ä" * (9 * 1024 * 1024)}
    small = {"role": "user", "content": "Hello."}
    data = [
        json.dumps({"session": name, "agent": "eve", "messages": said}, ensure_ascii=False)
        for name, said in {"one": [small], "two": [small, huge]}.items()
    ]
    with pytest.raises(InputError, match=r"line 2: messages\[1\]: too large for MongoDB"):
        import_sessions(make_runtime(mongo), data)
    assert list(mongo.host.sessions()) == []
    import_sessions(make_runtime(sqlite_store), data)
    with pytest.raises(InputError, match=r"line 5: message .*: too large for MongoDB"):
        imported(mongo, exported(sqlite_store))
    assert list(mongo.host.sessions()) == []
    (session,) = [one for one in sqlite_store.host.sessions() if one.name == "two"]
    mongo.host.put_session(session)
    with pytest.raises(InputError, match="too large for MongoDB"):
        mongo.host.add_messages(session.id, list(sqlite_store.host.messages(session.id)))
    assert list(mongo.host.messages(session.id)) == []
