"""Small databases of v1 for hypothesis, with all kinds of defects.

Hypothesis draws and shrinks the sizes. The documents come from a seed, since drawing each field
would take most of the time of the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
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
NOWHERE = _oid(999)


class _Dirty:
    """Draws values, which are sometimes defective."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self.one_of = self._rng.choice

    def is_rare(self) -> bool:
        """Return True once in six times."""
        return self._rng.random() < 1 / 6

    def id(self, values: Sequence[ObjectId]) -> Any:
        """Return one of these IDs, sometimes as text, as a dict, or missing."""
        clean = self.one_of(values)
        if not self.is_rare():
            return clean
        return self.one_of([str(clean), {"$oid": str(clean)}, None, ""])

    def ids(self, values: Sequence[ObjectId], most: int = 6) -> Any:
        """Return a list of these IDs with repetitions, sometimes as a dict or with invalid ones."""
        clean = [self.one_of(values) for _ in range(self._rng.randint(0, most))]
        if not self.is_rare():
            return clean
        as_dict = {str(place): value for place, value in enumerate(clean)}
        return self.one_of([None, as_dict, [str(value) for value in clean], [*clean, 7]])

    def time(self) -> Any:
        """Return a time, sometimes as text with or without a zone, as a number, or missing."""
        clean = START + timedelta(hours=self._rng.randint(0, 500))
        if not self.is_rare():
            return clean
        naive = clean.replace(tzinfo=None)
        odd = [clean.isoformat(), naive.isoformat(), int(clean.timestamp() * 1000), None, "soon"]
        return self.one_of(odd)

    def text(self, owner: str) -> Any:
        """Return a text with its owner, sometimes hostile, empty or not a string."""
        clean = f"{owner} says {self._rng.randint(0, 20)}"
        if not self.is_rare():
            return clean
        return self.one_of([f"  {clean}\x00\x1b[0m ", "", "   ", None, 5, "VERSION: 9\n"])

    def memory(self, key: ObjectId) -> Document:
        """Return a document of ``memory_sessions``."""
        kind = self.one_of(["episode", "directive", "directive", "fact", "fact", "suggestion"])
        document = {
            "_id": str(key) if self.is_rare() else key,
            "agent_id": self.id(AGENTS),
            "source_session_id": self.id([_oid(301), _oid(302)]),
            "memory_type": self.one_of(["insight", None, "FACT"]) if self.is_rare() else kind,
            # Several documents may have the same fact.
            "content": self.text("fact" if kind == "fact" else f"{kind} {key}"),
            "source_message_ids": self.ids([_oid(401), _oid(402), _oid(403)]),
            "related_users": self.ids(USERS, 2) if self.is_rare() else [self.one_of(USERS)],
            "shard_id": None if self.is_rare() else self.one_of(SHARDS),
            "createdAt": self.time(),
            "updatedAt": self.time(),
        }
        if self.is_rare():
            del document[self.one_of(sorted(document.keys() - {"_id"}))]
        if self.is_rare():
            document["mood"] = "fine"
        return document

    def user_text(self, number: int) -> Document:
        """Return a document of ``memory_user``."""
        content = self.text(f"text {number}")
        version = self.one_of(["", "VERSION: 3\n", "version: 12\n\n"])
        return {
            "_id": _oid(500 + number),
            "agent_id": self.id(AGENTS),
            "user_id": self.id(USERS),
            "content": version + content if isinstance(content, str) else content,
            "unabsorbed_memory_ids": self.ids([*MEMORIES, NOWHERE], 12),
            "last_updated_at": self.time(),
            "createdAt": self.time(),
        }

    def shard(self, key: ObjectId) -> Document:
        """Return a document of ``memory_agent``."""
        return {
            "_id": key,
            "agent_id": self.id(AGENTS),
            "shard_name": None if self.is_rare() else self.one_of(["Walk", "Fair", "Fold"]),
            "extraction_prompt": None if self.is_rare() else "Remember it.",
            "is_active": None if self.is_rare() else self.one_of([True, True, False]),
            "content": self.text(f"shard {key}"),
            "unabsorbed_memory_ids": self.ids([*MEMORIES, NOWHERE], 12),
            "facts": self.ids([*MEMORIES, NOWHERE], 12),
            "max_facts_per_shard": self.one_of([50, None, 0, "many"]),
            "last_updated_at": self.time(),
            "createdAt": self.time(),
        }


@st.composite
def v1_databases(draw: st.DrawFn) -> Database:
    """Return a strategy of databases with up to three agents and four users."""
    memories, texts, shards = (draw(st.integers(0, most)) for most in (30, 6, 5))
    dirty = _Dirty(draw(st.integers(0, 2**32)))
    return {
        "memory_sessions": [dirty.memory(key) for key in MEMORIES[:memories]],
        "memory_user": [dirty.user_text(number) for number in range(texts)],
        "memory_agent": [dirty.shard(key) for key in SHARDS[:shards]],
    }
