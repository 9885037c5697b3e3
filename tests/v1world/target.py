"""What a database of v2 holds, read as it is stored: SQLite by sqlite3, MongoDB by pymongo."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.v1world.memory import Item, Memory, Person, Policy, Scope, Text

#: Where an item keeps the people that it is about.
RELATED = "related_users"
#: Settings that v1 knows nothing of; a migration leaves them as they are by default.
FOREIGN = ("consolidation_instructions", "word_limit", "fast_model", "slow_model", "propagate")

_OWNERS = {"user": "user_id", "group": "group_id", "shard": "shard", "session": "session_id"}
_VERSION_LINE = re.compile(r"VERSION: (\d+)\n")


def read_sqlite(path: Path) -> Memory:
    """Read a file."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        return _SqliteReader(connection).read()


class _SqliteReader:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._scopes = {
            row["scope_id"]: Scope(row["kind"], row["agent_id"], row["owner"])
            for row in connection.execute("SELECT * FROM scopes")
        }

    def read(self) -> Memory:
        memory = Memory()
        memory.facts = [self._item(row) for row in self._rows("facts")]
        reflections = [(row, self._item(row)) for row in self._rows("reflections")]
        memory.reflections = [item for _, item in reflections]
        waiting = [(row["formed_at"], row["place"], row["id"], item) for row, item in reflections]
        for *_, item in sorted(waiting, key=lambda each: each[:3]):
            if not item.absorbed:
                memory.pending.setdefault(item.scope, []).append(item.content)
        for row in self._rows("consolidations"):
            if row["content"].strip():
                scope = self._scopes[row["scope_id"]]
                memory.texts.append(
                    Text(
                        scope,
                        row["content"],
                        row["version"],
                        row["updated_at"],
                        row["last_consolidated_at"],
                    )
                )
        for row in self._rows("policies"):
            memory.policies.append(self._policy(row))
        memory.people = dict(self._people())
        for row in self._rows("history WHERE target_type = 'consolidation' ORDER BY version"):
            scope = self._scopes[row["scope_id"]]
            memory.history.setdefault(scope, []).append(row["content"])
        for row in self._rows("audit WHERE target_type = 'consolidation'"):
            memory.reasons.setdefault(self._scopes[row["scope_id"]], []).append(row["reason"])
        return memory

    def _rows(self, table: str) -> Iterator[Mapping[str, Any]]:
        for row in self._db.execute(f"SELECT * FROM {table}"):
            yield dict(row)

    def _item(self, row: Mapping[str, Any]) -> Item:
        related = row.get(RELATED, "missing")
        return Item(
            self._scopes[row["scope_id"]],
            row["content"],
            id=row["id"],
            formed_at=row["formed_at"],
            updated_at=row["updated_at"],
            session=row["session_id"],
            messages=tuple(json.loads(row["source_message_ids"] or "[]")),
            related=None if related == "missing" else frozenset(json.loads(related or "[]")),
            private=bool(row["private"]),
            version=row["version"],
            hash=row.get("hash", ""),
            previous=row.get("previous_content"),
            absorbed=bool(row.get("absorbed")),
            absorbed_at=row.get("absorbed_at"),
        )

    def _policy(self, row: Mapping[str, Any]) -> Policy:
        return Policy(
            self._scopes[row["scope_id"]],
            instructions=row["memory_instructions"],
            consolidate_at=row["consolidate_at"],
            fact_buffer_max=row["fact_buffer_max"],
            active=bool(row["active"]),
            private=bool(row["private"]),
            others=_others(row),
        )

    def _people(self) -> Iterator[tuple[str, Person]]:
        for row in self._rows("agents"):
            yield (
                row["id"],
                Person(
                    row["id"],
                    username=row["username"],
                    name=row["name"],
                    persona=row["persona"],
                    owner=row["owner"],
                    user_memory=bool(row["user_memory_enabled"]),
                    agent_memory=bool(row["agent_memory_enabled"]),
                    is_agent=True,
                ),
            )
        for row in self._rows("users"):
            person = row["eden_user_id"] or row["id"]
            yield row["id"], Person(row["id"], row["username"], person=person)


def _others(row: Mapping[str, Any]) -> tuple[tuple[str, object], ...]:
    return tuple((name, row[name]) for name in FOREIGN if row.get(name) is not None)


# -- MongoDB -------------------------------------------------------------------------------------


def read_mongo(database: Any) -> Memory:
    """Read a database of a server (pymongo)."""
    memory = Memory()
    memory.facts = [_item(each) for each in database.memory2_facts.find()]
    found = list(database.memory2_reflections.find())
    memory.reflections = [_item(each) for each in found]
    contents = {each["_id"]: item for each, item in zip(found, memory.reflections, strict=True)}
    for document in database.memory2_consolidated.find():
        scope = _scope(document)
        if waiting := document.get("unabsorbed_ids"):
            memory.pending[scope] = [
                contents[each].content if each in contents else f"nothing has the id {each}"
                for each in waiting
            ]
        stored = document.get("consolidated_content") or ""
        line = _VERSION_LINE.match(stored)
        content = stored[line.end() :] if line else stored
        if content.strip():
            version = document.get("version") if line is None else int(line[1])
            # The platform reads the line, we the field: each must say the same.
            same = version == document.get("version") and line is not None
            at = _ms(document.get("updated_at"))
            absorbed = _ms(document.get("last_consolidated_at"))
            memory.texts.append(Text(scope, content, version if same else -1, at, absorbed))
    for document in database.memory2_policies.find({"version": {"$gte": 1}}):
        memory.policies.append(
            Policy(
                _scope(document),
                instructions=document.get("memory_instructions"),
                consolidate_at=document.get("consolidate_at"),
                fact_buffer_max=document.get("fact_buffer_max"),
                active=document.get("active") is not False,
                private=document.get("private") is True,
                others=_others(document),
            )
        )
    for document in database.users3.find():
        memory.people[str(document["_id"])] = _person(document)
    by_version = database.memory2_history.find({"target_type": "consolidation"})
    for document in sorted(by_version, key=lambda each: each["version"]):
        memory.history.setdefault(_keyed(document), []).append(document["content"])
    for document in database.memory2_audit.find({"target_type": "consolidation"}):
        memory.reasons.setdefault(_keyed(document), []).append(document["reason"])
    return memory


def _scope(document: Mapping[str, Any]) -> Scope:
    kind = document["scope"]
    field = _OWNERS.get(kind)
    return Scope(kind, str(document["agent_id"]), str(document[field]) if field else "")


def _keyed(document: Mapping[str, Any]) -> Scope:
    return Scope(document["scope"], str(document["agent_id"]), document["owner"])


def _item(document: Mapping[str, Any]) -> Item:
    related = document.get(RELATED, "missing")
    return Item(
        _scope(document),
        document["content"],
        id=str(document["_id"]),
        formed_at=_ms(document["formed_at"]) or 0,
        updated_at=_ms(document.get("updated_at")),
        session=_text(document.get("session_id")),
        messages=tuple(map(str, document.get("source_message_ids") or ())),
        related=None if related == "missing" else frozenset(map(str, related or ())),
        private=document.get("private") is True,
        version=document.get("version", 0),
        hash=document.get("hash", ""),
        previous=document.get("previous_content"),
        absorbed=document.get("absorbed") is True,
        absorbed_at=_ms(document.get("absorbed_at")),
    )


def _person(document: Mapping[str, Any]) -> Person:
    return Person(
        str(document["_id"]),
        username=document.get("username", ""),
        person=_text(document.get("eden_user_id")) or str(document["_id"]),
        agent_memory=document.get("agent_memory_enabled") is True,
        is_agent=document.get("type") == "agent",
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _ms(value: datetime | None) -> int | None:
    if value is None:
        return None
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
