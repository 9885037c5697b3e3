"""The database as it is, past the store: what memory holds, and what only a host can do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from bson import ObjectId
from pymongo import MongoClient

from edenmem.models.scope import Scope, ScopeKind

#: What a search may change in a fact without changing memory.
_COUNTED = {"access_count", "last_accessed_at"}

_OWNER_FIELDS = {"user": "user_id", "group": "group_id", "shard": "shard", "session": "session_id"}
_COLLECTIONS = {
    "facts": ("memory2_facts", "content"),
    "reflections": ("memory2_reflections", "content"),
    "consolidations": ("memory2_consolidated", "consolidated_content"),
}


class Document(NamedTuple):
    """A fact, a reflection or a text with everything that is stored of it."""

    type: str
    id: str
    scope: Scope
    content: str
    in_context: bool  # a fact, a text, or a reflection that is pending
    dated_at: int  # milliseconds: when it was said, else formed; 0 for a text
    session_id: str | None
    whole: str


class Raw(Protocol):
    """Hands on the database itself."""

    def documents(self) -> list[Document]:
        """All of memory."""

    def delete_user(self, user_id: str) -> None:
        """Delete an account, as the host does: it stays, marked."""

    def leave(self, session_id: str, user_id: str) -> None:
        """Take an account off a session's list."""

    def close(self) -> None:
        """Let go of files and sockets."""


class RawSqlite:
    """A file."""

    _QUERY = "SELECT s.agent_id, s.kind, s.owner, t.* FROM {table} t JOIN scopes s USING (scope_id)"

    def __init__(self, path: Path) -> None:
        self._path = path

    def documents(self) -> list[Document]:
        found: list[Document] = []
        with closing(sqlite3.connect(self._path)) as connection:
            connection.row_factory = sqlite3.Row
            for table in ("facts", "reflections", "consolidations"):
                for row in connection.execute(self._QUERY.format(table=table)):
                    fields = {key: value for key, value in dict(row).items() if key not in _COUNTED}
                    scope = Scope(ScopeKind(row["kind"]), row["agent_id"], row["owner"])
                    found.append(_document(table, fields, scope, fields["content"]))
        return found

    def delete_user(self, user_id: str) -> None:
        self._execute("UPDATE users SET deleted = 1 WHERE id = ?", (user_id,))

    def leave(self, session_id: str, user_id: str) -> None:
        self._execute(
            "DELETE FROM session_members WHERE session_id = ? AND role = 'user' AND member_id = ?",
            (session_id, user_id),
        )

    def close(self) -> None:
        """Nothing: the file is opened for each call."""

    def _execute(self, statement: str, values: tuple[str, ...]) -> None:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            assert connection.execute(statement, values).rowcount == 1


class RawMongo:
    """A database on a server."""

    def __init__(self, uri: str, database: str) -> None:
        self._client: MongoClient[dict[str, Any]] = MongoClient(uri)
        self._database = self._client[database]

    def close(self) -> None:
        """Let go of the socket."""
        self._client.close()

    def documents(self) -> list[Document]:
        return [
            _document(type, row, self._scope(row), row.get(field) or "")
            for type, (name, field) in _COLLECTIONS.items()
            for row in self._rows(name)
        ]

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        for row in self._database[name].find().sort("_id"):
            yield {key: value for key, value in row.items() if key not in _COUNTED}

    def _scope(self, row: dict[str, Any]) -> Scope:
        owner = row.get(_OWNER_FIELDS.get(row["scope"], ""))
        return Scope(ScopeKind(row["scope"]), str(row["agent_id"]), str(owner or ""))

    def delete_user(self, user_id: str) -> None:
        users = self._database["users3"]
        change = {"$set": {"deleted": True}}
        assert users.update_one({"_id": ObjectId(user_id)}, change).modified_count == 1

    def leave(self, session_id: str, user_id: str) -> None:
        sessions = self._database["sessions"]
        change = {"$pull": {"users": ObjectId(user_id)}}
        assert sessions.update_one({"_id": ObjectId(session_id)}, change).modified_count == 1


def _document(type: str, fields: dict[str, Any], scope: Scope, content: str) -> Document:
    session = fields.get("session_id")
    return Document(
        type=type,
        id=str(fields.get("id") or fields["_id"]),
        scope=scope,
        content=content,
        in_context=not fields.get("absorbed"),
        dated_at=_milliseconds(fields.get("said_at") or fields.get("formed_at")),
        session_id=str(session) if session else None,
        whole=repr(sorted(fields.items())),
    )


def _milliseconds(value: int | datetime | None) -> int:
    if isinstance(value, datetime):
        return round(value.replace(tzinfo=UTC).timestamp() * 1000)
    return value or 0
