"""Databases of v1, built of named cases. The same seed gives the same world.

Each case has an agent and people of its own, so that any number of cases fit into one database, and
whatever differs in a target can be attributed to its case by the agent.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bson
from bson import ObjectId, json_util

Document = dict[str, Any]
Database = dict[str, list[Document]]

MEMORIES, USERS, SHARDS, ACCOUNTS = "memory_sessions", "memory_user", "memory_agent", "users3"
COLLECTIONS = (MEMORIES, USERS, SHARDS, ACCOUNTS)

#: v1 was in use from here on.
START = datetime(2025, 6, 1, 9, 0, tzinfo=UTC)

#: Stands for a content that the case need not choose.
_MADE_UP = object()

_WORDS = re.findall(
    r"\w+",
    "lantern harbour ferry paper whale bridge quay market crane archive drum ladder copper velvet "
    "orchard signal compass winter garden ribbon chapel engine mirror saddle thunder willow",
)


class Case:
    """One case under construction: an agent, people, and documents that refer to each other."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.database: Database = {collection: [] for collection in COLLECTIONS}
        self._seed = seed
        self._random = random.Random(f"{seed}/{name}")
        self._minutes = 0
        self.owner = self.person("owner")
        self.agent = self.id("agent")
        self.agent_account = self.account(
            self.agent, "agent", "agent", name=f"Agent of {name}", owner=self.owner
        )

    # -- ids, times and words ----------------------------------------------------------------------

    def id(self, label: str, at: datetime | None = None) -> ObjectId:
        """Return the same id for the same label; its time is ``at``."""
        seconds = int((at or START).timestamp())
        digest = hashlib.sha256(f"{self._seed}/{self.name}/{label}".encode()).digest()
        return ObjectId(seconds.to_bytes(4, "big") + digest[:8])

    def now(self, *, hours: float = 1.0) -> datetime:
        """Return a time that is later than every one before."""
        self._minutes += max(int(hours * 60), 1)
        return START + timedelta(minutes=self._minutes, milliseconds=self._minutes % 997)

    def words(self, count: int = 6) -> str:
        """Return a sentence that no other call gives."""
        self._minutes += 1
        chosen = " ".join(self._random.choice(_WORDS) for _ in range(count))
        return f"{chosen.capitalize()} {self.name.replace('_', ' ')} {self._minutes}."

    # -- documents ---------------------------------------------------------------------------------

    def person(self, label: str, *, known: bool = True, **fields: Any) -> ObjectId:
        """Add a person's account."""
        person = self.id(f"person {label}")
        if known:
            self.account(person, "user", label, **fields)
        return person

    def account(self, id: ObjectId, type: str, label: str, **fields: Any) -> Document:
        """Add an account of a person or an agent."""
        username = f"{label}_{hashlib.sha256(f'{self._seed}{self.name}'.encode()).hexdigest()[:8]}"
        account = {"_id": id, "type": type, "username": username, "createdAt": START, **fields}
        self.database[ACCOUNTS].append(account)
        return account

    def memory(
        self,
        kind: str | None,
        content: Any = _MADE_UP,
        *,
        users: Iterable[Any] = (),
        shard: Any = None,
        without: Iterable[str] = (),
        **fields: Any,
    ) -> Document:
        """Add a document of ``memory_sessions``."""
        at = self.now()
        number = len(self.database[MEMORIES])
        document = {
            "_id": self.id(f"memory {number}", at),
            "agent_id": self.agent,
            "source_session_id": self.id(f"session {number // 3}"),
            "memory_type": kind,
            "content": self.words() if content is _MADE_UP else content,
            "source_message_ids": [self.id(f"message {number} {n}", at) for n in range(3)],
            "related_users": list(users),
            "shard_id": shard,
            "agent_owner": self.owner,
            "createdAt": at,
            "updatedAt": at,
        }
        return self._add(MEMORIES, document, without, fields)

    def directives(self, user: ObjectId, count: int) -> list[Document]:
        """Add directives of one user."""
        return [self.memory("directive", users=[user]) for _ in range(count)]

    def user_text(
        self,
        user: Any,
        content: Any = _MADE_UP,
        *,
        pending: Any = (),
        without: Iterable[str] = (),
        **fields: Any,
    ) -> Document:
        """Add a document of ``memory_user``."""
        made, at = self.now(), self.now()
        text = self.words(12) if content is _MADE_UP else content
        document = {
            "_id": self.id(f"user text {len(self.database[USERS])}", made),
            "agent_id": self.agent,
            "user_id": user,
            "content": text,
            "agent_owner": self.owner,
            "unabsorbed_memory_ids": ids_of(list(pending)),
            "fully_formed_memory": f"-- User Memory for somebody --\n\n"
            f"## Consolidated user memory:\n\n{text}",
            "last_updated_at": at,
            "createdAt": made,
            "updatedAt": at,
        }
        return self._add(USERS, document, without, fields)

    def shard(
        self,
        name: Any,
        content: Any = _MADE_UP,
        *,
        pending: Any = (),
        facts: Any = (),
        without: Iterable[str] = (),
        **fields: Any,
    ) -> Document:
        """Add a document of ``memory_agent``."""
        made, at = self.now(), self.now()
        text = self.words(12) if content is _MADE_UP else content
        document = {
            "_id": self.shard_id(name),
            "agent_id": self.agent,
            "shard_name": name,
            "extraction_prompt": f"Remember what matters for {name}.",
            "is_active": True,
            "agent_owner": self.owner,
            "content": text,
            "unabsorbed_memory_ids": ids_of(list(pending)),
            "facts": ids_of([] if facts == () else facts),
            "fully_formed_memory": f"## Current consolidated shard memory:\n\n{text}",
            "last_updated_at": at,
            "max_facts_per_shard": 50,
            "max_agent_memories_before_consolidation": 16,
            "createdAt": made,
            "updatedAt": at,
        }
        return self._add(SHARDS, document, without, fields)

    def shard_id(self, name: Any) -> ObjectId:
        """Return the id of the shard of this name, which memories refer to before it is there."""
        return self.id(f"shard {name}")

    def _add(
        self, collection: str, document: Document, without: Iterable[str], fields: Document
    ) -> Document:
        document |= fields
        for field in without:
            del document[field]
        self.database[collection].append(document)
        return document


def ids_of(listed: Any) -> Any:
    """Return the ids of documents; anything else stays as it is, also what is no list."""
    if not isinstance(listed, list):
        return listed
    return [each["_id"] if isinstance(each, Mapping) and "_id" in each else each for each in listed]


Make = Callable[[Case], None]

#: Name → what makes the case, in order.
CASES: dict[str, Make] = {}


def case(make: Make) -> Make:
    """Register a case under the name of its function."""
    CASES[make.__name__] = make
    return make


class World:
    """Some cases in one database."""

    def __init__(self, names: Iterable[str], seed: int = 1) -> None:
        self.names = tuple(names)
        self.database: Database = {collection: [] for collection in COLLECTIONS}
        #: Agent or account → case, for whatever is found in a target.
        self.case_of: dict[str, str] = {}
        self.cases: dict[str, Case] = {}
        for name in self.names:
            made = Case(name, seed)
            CASES[name](made)
            self.cases[name] = made
            for collection, documents in made.database.items():
                self.database[collection] += documents
            for documents in made.database.values():
                agents = (each.get("agent_id", each["_id"]) for each in documents)
                self.case_of |= {str(agent).strip(): name for agent in agents if agent}


# -- written down --------------------------------------------------------------------------------


def write_dump(folder: Path, database: Mapping[str, list[Document]]) -> Path:
    """Write what mongodump leaves of a database."""
    folder.mkdir(parents=True, exist_ok=True)
    for collection, documents in database.items():
        raw = b"".join(bson.encode(each) for each in documents)
        (folder / f"{collection}.bson").write_bytes(raw)
        metadata = {"indexes": [], "collectionName": collection, "type": "collection"}
        (folder / f"{collection}.metadata.json").write_text(json.dumps(metadata))
    return folder


def write_extended_json(
    folder: Path, database: Mapping[str, list[Document]], *, canonical: bool, array: bool
) -> Path:
    """Write what mongoexport leaves of a database: documents by line, or one array."""
    folder.mkdir(parents=True, exist_ok=True)
    options = json_util.CANONICAL_JSON_OPTIONS if canonical else json_util.RELAXED_JSON_OPTIONS
    for collection, documents in database.items():
        lines = [json_util.dumps(each, json_options=options) for each in documents]
        text = f"[{','.join(lines)}]" if array else "".join(f"{line}\n" for line in lines)
        (folder / f"{collection}.json").write_text(text, "utf-8")
    return folder


def load(target: Any, database: Mapping[str, list[Document]]) -> None:
    """Insert a database into one of a server (pymongo)."""
    for collection, documents in database.items():
        if documents:
            target[collection].insert_many([dict(each) for each in documents])
