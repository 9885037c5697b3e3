"""Databases of v1 for hypothesis: small, and with all the dirt that there is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from bson import ObjectId
from hypothesis import strategies as st

from tests.support.v1_files import Database, Document

START = datetime(2026, 1, 5, tzinfo=UTC)


def _oid(number: int) -> ObjectId:
    return ObjectId(f"{0x695A0000 + number:08x}{number:016x}")


AGENTS = [_oid(number) for number in range(1, 4)]
USERS = [_oid(number) for number in range(11, 15)]
MEMORIES = [_oid(number) for number in range(101, 131)]
SHARDS = [_oid(number) for number in range(201, 206)]

#: Mostly as they should be, so that dirt meets what is clean.
_NOTHING = st.sampled_from([None, ""])


def _rarely(strategy: st.SearchStrategy[Any], clean: st.SearchStrategy[Any]) -> Any:
    return st.one_of(clean, clean, clean, clean, clean, strategy)


def ids(values: list[ObjectId]) -> st.SearchStrategy[Any]:
    """One of these, now and then as text, as a dict, or not at all."""
    clean = st.sampled_from(values)
    odd = st.one_of(clean.map(str), clean.map(lambda each: {"$oid": str(each)}), _NOTHING)
    return _rarely(odd, clean)


def lists(values: list[ObjectId]) -> st.SearchStrategy[Any]:
    """A list of these with repetitions, now and then as a dict, or with nonsense in it."""
    clean = st.lists(st.sampled_from(values), max_size=6)
    odd = st.one_of(
        st.none(),
        clean.map(lambda each: {str(place): value for place, value in enumerate(each)}),
        st.lists(st.one_of(st.sampled_from(values).map(str), st.just(7)), max_size=3),
    )
    return _rarely(odd, clean)


def times() -> st.SearchStrategy[Any]:
    """A time, now and then as text with or without a zone, as a number, or not at all."""
    clean = st.integers(0, 500).map(lambda hours: START + timedelta(hours=hours))
    odd = st.one_of(
        clean.map(lambda each: each.isoformat()),
        clean.map(lambda each: each.replace(tzinfo=None).isoformat()),
        clean.map(lambda each: int(each.timestamp() * 1000)),
        st.none(),
        st.just("yesterday"),
    )
    return _rarely(odd, clean)


def texts(owner: str) -> st.SearchStrategy[Any]:
    """A text that says whose it is, now and then hostile, empty or no text."""
    clean = st.integers(0, 20).map(lambda number: f"{owner} says {number}")
    odd = st.one_of(
        clean.map(lambda each: f"  {each}\x00\x1b[0m "),
        st.sampled_from(["", "   ", None, 5, "VERSION: 9\n"]),
    )
    return _rarely(odd, clean)


@st.composite
def _memory(draw: st.DrawFn, key: ObjectId) -> Document:
    kinds = ["episode", "directive", "directive", "fact", "suggestion"]
    kind = draw(_rarely(st.sampled_from(["insight", None, "FACT"]), st.sampled_from(kinds)))
    agent = draw(ids(AGENTS))
    users = draw(_rarely(lists(USERS), st.sampled_from(USERS).map(lambda user: [user])))
    document = {
        "_id": draw(_rarely(st.just(str(key)), st.just(key))),
        "agent_id": agent,
        "source_session_id": draw(ids([_oid(301), _oid(302)])),
        "memory_type": kind,
        "content": draw(texts(f"{kind} {key}")),
        "source_message_ids": draw(lists([_oid(401), _oid(402), _oid(403)])),
        "related_users": users,
        "shard_id": draw(_rarely(_NOTHING, st.sampled_from(SHARDS))),
        "createdAt": draw(times()),
        "updatedAt": draw(times()),
    }
    for name in draw(
        _rarely(st.sets(st.sampled_from(sorted(document.keys() - {"_id"}))), st.just(set()))
    ):
        del document[name]
    return document | draw(_rarely(st.just({"mood": "fine"}), st.just({})))


@st.composite
def _text(draw: st.DrawFn, number: int) -> Document:
    agent, user = draw(ids(AGENTS)), draw(ids(USERS))
    version = draw(st.sampled_from(["", "VERSION: 3\n", "version: 12\n\n"]))
    content = draw(texts(f"text {number}"))
    return {
        "_id": _oid(500 + number),
        "agent_id": agent,
        "user_id": user,
        "content": version + content if isinstance(content, str) else content,
        "unabsorbed_memory_ids": draw(lists([*MEMORIES, _oid(999)])),
        "last_updated_at": draw(times()),
        "createdAt": draw(times()),
    }


@st.composite
def _shard(draw: st.DrawFn, key: ObjectId) -> Document:
    content = draw(texts(f"shard {key}"))
    return {
        "_id": key,
        "agent_id": draw(ids(AGENTS)),
        "shard_name": draw(_rarely(_NOTHING, st.sampled_from(["Walk", "Fair", "Fold"]))),
        "extraction_prompt": draw(_rarely(st.none(), st.just("Remember it."))),
        "is_active": draw(_rarely(st.none(), st.booleans())),
        "content": content,
        "unabsorbed_memory_ids": draw(lists([*MEMORIES, _oid(999)])),
        "facts": draw(lists([*MEMORIES, _oid(999)])),
        "max_facts_per_shard": draw(st.sampled_from([50, None, 0, "many"])),
        "last_updated_at": draw(times()),
        "createdAt": draw(times()),
    }


@st.composite
def v1_databases(draw: st.DrawFn) -> Database:
    """A database of up to three agents and four users."""
    memories = draw(st.lists(st.sampled_from(MEMORIES), unique=True, max_size=14))
    shards = draw(st.lists(st.sampled_from(SHARDS), unique=True, max_size=4))
    return {
        "memory_sessions": [draw(_memory(key)) for key in memories],
        "memory_user": [draw(_text(number)) for number in range(draw(st.integers(0, 4)))],
        "memory_agent": [draw(_shard(key)) for key in shards],
    }
