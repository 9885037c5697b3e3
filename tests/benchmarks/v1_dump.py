"""A mongodump of v1 of any size: agents with shards, users, and a document for each memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bson
from bson import ObjectId

_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
_AGENTS = 10
_SHARDS = 4
#: Memories of one user with one agent.
_OF_USER = 40
#: How many long texts there are, and how long each is.
LONG_TEXTS, _LONG = 300, 1_000_000
_KINDS = ("episode", "episode", "directive", "directive", "suggestion", "fact", "fact", "fact")
_WORDS = (
    "harbour",
    "lantern",
    "paper",
    "whale",
    "route",
    "evening",
    "rehearsal",
    "painter",
    "budget",
    "train",
    "ferry",
    "garden",
    "choir",
    "letter",
    "winter",
    "market",
    "bridge",
    "teacher",
    "recipe",
    "bicycle",
    "museum",
    "ticket",
    "weather",
    "candle",
)


def make_dump(folder: Path, count: int) -> dict[str, int]:
    """Write ``count`` documents as BSON files into ``folder``; how many each collection has.

    The same count gives the same documents. Memory does not grow with it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}
    files: dict[str, Any] = {}
    try:
        for collection, document in documents(count):
            if collection not in files:
                files[collection] = (folder / f"{collection}.bson").open("wb")
            files[collection].write(bson.encode(document))
            counts[collection] = counts.get(collection, 0) + 1
    finally:
        for file in files.values():
            file.close()
    return counts


def make_long_dump(folder: Path, count: int) -> None:
    """Write ``count`` users' texts of 1 MB each into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    agent = _id(1, 0)
    with (folder / "memory_user.bson").open("wb") as file:
        for number in range(count):
            dice = random.Random(number)
            words: list[str] = []
            size = 0
            while size < _LONG:
                words.append(dice.choice(_WORDS))
                size += len(words[-1]) + 1
            document = {
                "_id": _id(7, number),
                "agent_id": agent,
                "user_id": _id(2, number),
                "content": f"VERSION: 2\n{' '.join(words)}",
                "unabsorbed_memory_ids": [],
                "createdAt": _BEGIN,
                "last_updated_at": _BEGIN + timedelta(days=number % 300),
            }
            file.write(bson.encode(document))


def documents(count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The documents with their collections: shards and users first, their lists made up of the
    memories that follow."""
    dice = random.Random(count)
    agents = [_id(1, n) for n in range(_AGENTS)]
    users = max(1, count // (_OF_USER * _AGENTS))
    shards = [(agent, number) for agent in range(_AGENTS) for number in range(_SHARDS)]
    memories = count - len(shards) - users * _AGENTS
    for place, (agent, number) in enumerate(shards):
        yield "memory_agent", _shard(agents[agent], place, number, memories)
    for user in range(users):
        for agent in range(_AGENTS):
            yield "memory_user", _user(agents[agent], user, agent, users, memories)
    for n in range(memories):
        yield "memory_sessions", _memory(dice, agents, n, users)


def _id(kind: int, number: int) -> ObjectId:
    return ObjectId(f"{0x65000000 + number // 10:08x}{kind:04x}{number:012x}")


def _kind(number: int) -> str:
    return _KINDS[number % len(_KINDS)]


def _owner(number: int, users: int) -> tuple[int, int, int]:
    """Agent, user and shard of a memory."""
    group = number // len(_KINDS)
    return group % _AGENTS, group // _AGENTS % users, group // _AGENTS % _SHARDS


def _memory(dice: random.Random, agents: list[ObjectId], n: int, users: int) -> dict[str, Any]:
    agent, user, shard = _owner(n, users)
    kind = _kind(n)
    text = " ".join(dice.choices(_WORDS, k=14))
    document = {
        "_id": _id(3, n),
        "agent_id": agents[agent],
        "source_session_id": _id(4, n // 50),
        "memory_type": kind,
        "content": f"{text} {n}.",
        "source_message_ids": [_id(5, n), _id(5, n + 1)],
        "related_users": [_id(2, user)],
        "createdAt": _BEGIN + timedelta(seconds=n),
        "updatedAt": _BEGIN + timedelta(seconds=n),
    }
    if kind in ("fact", "suggestion"):
        document["shard_id"] = _id(6, agent * _SHARDS + shard)
    return document


def _numbers(agent: int, memories: int, step: int, offset: int) -> Iterator[int]:
    """The numbers of an agent's groups of memories, every ``step``-th of them."""
    group = agent + _AGENTS * offset
    while group * len(_KINDS) < memories:
        yield group * len(_KINDS)
        group += _AGENTS * step


def _shard(agent_id: ObjectId, place: int, number: int, memories: int) -> dict[str, Any]:
    agent = place // _SHARDS
    groups = list(_numbers(agent, memories, _SHARDS, number))
    return {
        "_id": _id(6, place),
        "agent_id": agent_id,
        "shard_name": f"shard {number}",
        "extraction_prompt": "Keep what concerns the walk.",
        "is_active": number != 3,
        "content": "VERSION: 4\n" + " ".join(_WORDS * 3),
        "facts": [_id(3, n + k) for n in groups for k in (5, 6, 7) if n + k < memories],
        "unabsorbed_memory_ids": [_id(3, n + 4) for n in groups[-8:] if n + 4 < memories],
        "createdAt": _BEGIN,
        "last_updated_at": _BEGIN,
    }


def _user(agent_id: ObjectId, user: int, agent: int, users: int, memories: int) -> dict[str, Any]:
    groups = list(_numbers(agent, memories, users, user))
    return {
        "_id": _id(7, user * _AGENTS + agent),
        "agent_id": agent_id,
        "user_id": _id(2, user),
        "content": "VERSION: 2\n" + " ".join(_WORDS * 2),
        "unabsorbed_memory_ids": [
            _id(3, n + k) for n in groups[-2:] for k in (2, 3) if n + k < memories
        ],
        "createdAt": _BEGIN,
        "last_updated_at": _BEGIN + timedelta(days=user % 300),
    }
