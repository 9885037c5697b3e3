"""The databases that a migration writes to, with hands that reach past edenmem."""

from __future__ import annotations

import json
import shutil
import sqlite3
import struct
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from bson import ObjectId

from tests.cli.conftest import Cli, Result
from tests.v1world import target
from tests.v1world.expected import Options
from tests.v1world.memory import Memory, Scope
from tests.v1world.world import ACCOUNTS, Database, load

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Fields with times, ids, and lists of ids; the rest is stored as it is said.
_TIMES = {"last_consolidated_at", "formed_at", "updated_at", "absorbed_at", "at"}
_IDS = {"agent_id", "undoes", "id", "session_id", "target_id", "eden_user_id", "owner"}
_LISTS = {"source_message_ids", "related_users", "unabsorbed_ids"}
_SWITCHES = {"private", "absorbed", "active", "user_memory_enabled", "agent_memory_enabled"}
#: The model that vectors are said to be of.
MODEL = "some-model"
#: How MongoDB calls what SQLite has in a table.
_COLLECTIONS = {
    "facts": "memory2_facts",
    "reflections": "memory2_reflections",
    "consolidations": "memory2_consolidated",
    "policies": "memory2_policies",
    "history": "memory2_history",
    "audit": "memory2_audit",
    "agents": "users3",
    "users": "users3",
}
_OWNERS = {"user": "user_id", "shard": "shard", "session": "session_id"}


class Place(Protocol):
    """One database. Rows are named by the table and ``id``; a text or policy by its scope."""

    name: str
    cli: Cli
    own_accounts: bool

    def read(self) -> Memory:
        """Read what it holds."""

    def command(self, *arguments: str) -> Result:
        """Run a command that writes, and goes well."""

    def damaged(self) -> Any:
        """Give a copy to damage, which leaves this one as it is."""

    def set(self, table: str, key: str | Scope, **fields: Any) -> None:
        """Change fields of one row."""

    def delete(self, table: str, key: str | Scope) -> None:
        """Delete one row."""

    def copy(self, table: str, key: str | Scope, scope: Scope, **fields: Any) -> None:
        """Add a copy of a row in a scope."""

    def move(self, table: str, key: str | Scope, scope: Scope) -> None:
        """Move a row to a scope."""

    def give_vector(self, fact_id: str, vector: bytes) -> None:
        """Store a vector of a fact."""

    def entries(self, **match: Any) -> list[str]:
        """Return the ids of entries of the log, oldest first."""

    def rewrite_entry(self, entry: str, old: str, new: str) -> None:
        """Replace a text in what an entry of the log says came of it."""


def init(place: Place, database: Database | None = None) -> None:
    """Make the store; in a platform's database there are the platform's accounts."""
    place.cli("init", "--yes").ok()
    if isinstance(place, MongoPlace) and database:
        load(place.database, {ACCOUNTS: database[ACCOUNTS]})


def migrate(place: Place, source: Path | str, options: Options, *more: str) -> Result:
    """Run ``migrate v1``."""
    given = ("--from", str(source), "--yes", "--no-embed", *options.arguments(), *more)
    return place.cli("migrate", "v1", *given)


def last_run(place: Place) -> str:
    """Return the id of the latest run."""
    run_id: str = place.cli.json("migrate", "status")[0]["runs"][0]["id"]
    return run_id


# -- SQLite --------------------------------------------------------------------------------------


class SqlitePlace:
    """A file."""

    name = "sqlite"
    own_accounts = True

    def __init__(self, folder: Path, file: str = "memory.db") -> None:
        self.folder = folder
        self.path = folder / file
        self.cli = Cli(f"sqlite:///{self.path}", folder)

    def read(self) -> Memory:
        return target.read_sqlite(self.path)

    def command(self, *arguments: str) -> Result:
        return self.cli(*arguments).ok()

    @contextmanager
    def damaged(self) -> Iterator[SqlitePlace]:
        copy = SqlitePlace(self.folder, "damaged.db")
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(self.path, copy.path)
        try:
            yield copy
        finally:
            for file in self.folder.glob("damaged.db*"):
                file.unlink()

    def execute(self, statement: str, values: Any = ()) -> list[sqlite3.Row]:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA foreign_keys = OFF")
            rows = connection.execute(statement, values).fetchall()
            connection.commit()
        return rows

    def _where(self, key: str | Scope) -> tuple[str, tuple[Any, ...]]:
        if isinstance(key, Scope):
            return "scope_id = ?", (self.scope_number(key),)
        return "id = ?", (key,)

    def scope_number(self, scope: Scope) -> int:
        values = (scope.kind, scope.agent, scope.owner)
        self.execute(
            "INSERT OR IGNORE INTO scopes (kind, agent_id, owner) VALUES (?, ?, ?)", values
        )
        query = "SELECT scope_id FROM scopes WHERE kind = ? AND agent_id = ? AND owner = ?"
        return int(self.execute(query, values)[0]["scope_id"])

    def set(self, table: str, key: str | Scope, **fields: Any) -> None:
        where, values = self._where(key)
        assert self.execute(f"SELECT 1 FROM {table} WHERE {where}", values), (table, key)
        stored = {name: self._encode(value) for name, value in fields.items()}
        named = ", ".join(f"{name} = ?" for name in stored)
        self.execute(f"UPDATE {table} SET {named} WHERE {where}", (*stored.values(), *values))

    def _encode(self, value: Any) -> Any:
        return json.dumps(value) if isinstance(value, (list, tuple)) else value

    def delete(self, table: str, key: str | Scope) -> None:
        where, values = self._where(key)
        assert self.execute(f"SELECT 1 FROM {table} WHERE {where}", values), (table, key)
        self.execute(f"DELETE FROM {table} WHERE {where}", values)

    def copy(self, table: str, key: str | Scope, scope: Scope, **fields: Any) -> None:
        where, values = self._where(key)
        row = dict(self.execute(f"SELECT * FROM {table} WHERE {where}", values)[0])
        for counted in ("fact_no", "reflection_no"):
            row.pop(counted, None)
        for computed in ("changed_at", "recent_at"):
            row.pop(computed, None)
        stored = {name: self._encode(value) for name, value in fields.items()}
        row |= {"id": str(ObjectId()), "scope_id": self.scope_number(scope), **stored}
        names, marks = ", ".join(row), ", ".join("?" for _ in row)
        self.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values()))

    def move(self, table: str, key: str | Scope, scope: Scope) -> None:
        self.set(table, key, scope_id=self.scope_number(scope))

    def give_vector(self, fact_id: str, vector: bytes) -> None:
        """Store a vector (little-endian float32) of a fact, of whatever text it is."""
        size = len(vector) // 4
        self.execute(
            "INSERT OR IGNORE INTO embedding_models (name, dimensions) VALUES (?, ?)", (MODEL, size)
        )
        (model,) = self.execute("SELECT model_id FROM embedding_models WHERE name = ?", (MODEL,))
        (fact,) = self.execute("SELECT fact_no FROM facts WHERE id = ?", (fact_id,))
        self.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?)", (fact["fact_no"], vector))
        self.set("facts", fact_id, model_id=model["model_id"])

    def entries(self, **match: Any) -> list[str]:
        where = " AND ".join(f"{name} = ?" for name in match) or "1"
        query = f"SELECT id FROM audit WHERE {where} ORDER BY audit_no"
        return [row["id"] for row in self.execute(query, tuple(match.values()))]

    def rewrite_entry(self, entry: str, old: str, new: str) -> None:
        (row,) = self.execute("SELECT after FROM audit WHERE id = ?", (entry,))
        assert old in row["after"]
        self.set("audit", entry, after=row["after"].replace(old, new))


# -- MongoDB -------------------------------------------------------------------------------------


class MongoPlace:
    """A database of a server, put back as it was after each damage."""

    name = "mongodb"
    own_accounts = False

    def __init__(self, uri: str, database: Any, folder: Path) -> None:
        self.database = database
        self.folder = folder
        self.cli = Cli(f"{uri.rstrip('/')}/{database.name}", folder)
        self._kept: dict[str, list[dict[str, Any]]] = {}
        self._touched: set[str] = set()

    def read(self) -> Memory:
        return target.read_mongo(self.database)

    @contextmanager
    def damaged(self) -> Iterator[MongoPlace]:
        if not self._kept:
            names = self.database.list_collection_names()
            self._kept = {name: list(self.database[name].find()) for name in names}
        self._touched.clear()
        try:
            yield self
        finally:
            for name in self._touched:
                self.database[name].delete_many({})
                if documents := self._kept.get(name):
                    self.database[name].insert_many(documents)

    def command(self, *arguments: str) -> Result:
        self._touched.update(self._kept)
        return self.cli(*arguments).ok()

    def _collection(self, table: str) -> Any:
        """The collection of a table, which is about to be changed."""
        self._touched.add(_COLLECTIONS[table])
        return self.database[_COLLECTIONS[table]]

    def _where(self, table: str, key: str | Scope) -> dict[str, Any]:
        if not isinstance(key, Scope):
            return {"_id": ObjectId(key)}
        where: dict[str, Any] = {"scope": key.kind, "agent_id": ObjectId(key.agent)}
        if field := _OWNERS.get(key.kind):
            where[field] = _owner(key)
        return where

    def _encode(self, table: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        stored = {}
        for name, value in fields.items():
            if value is not None and name in _TIMES:
                value = _EPOCH + timedelta(milliseconds=value)
            elif value is not None and name in _IDS:
                value = ObjectId(value)
            elif name in _LISTS:
                value = [ObjectId(each) for each in value or ()]
            elif name in _SWITCHES:
                value = bool(value)
            if table == "consolidations" and name == "content":
                name = "consolidated_content"
            stored[name] = value
        return stored

    def set(self, table: str, key: str | Scope, **fields: Any) -> None:
        where, stored = self._where(table, key), self._encode(table, fields)
        collection = self._collection(table)
        (document,) = collection.find(where)
        if table == "consolidations" and {"content", "version"} & fields.keys():
            line, _, content = document["consolidated_content"].partition("\n")
            content = stored.get("consolidated_content", content)
            version = stored.get("version", line.removeprefix("VERSION: "))
            stored["consolidated_content"] = f"VERSION: {version}\n{content}"
        collection.update_one(where, {"$set": stored})

    def delete(self, table: str, key: str | Scope) -> None:
        gone = self._collection(table).delete_one(self._where(table, key))
        assert gone.deleted_count == 1, (table, key)

    def copy(self, table: str, key: str | Scope, scope: Scope, **fields: Any) -> None:
        collection = self._collection(table)
        (document,) = collection.find(self._where(table, key))
        document |= {**_home(table, scope), **self._encode(table, fields), "_id": ObjectId()}
        collection.insert_one(document)

    def move(self, table: str, key: str | Scope, scope: Scope) -> None:
        where = self._where(table, key)
        moved = self._collection(table).update_one(where, {"$set": _home(table, scope)})
        assert moved.matched_count == 1, (table, key)

    def give_vector(self, fact_id: str, vector: bytes) -> None:
        """Store a vector (little-endian float32) of a fact, of whatever text it is."""
        numbers = list(struct.unpack(f"<{len(vector) // 4}f", vector))
        self.set("facts", fact_id, embedding=numbers, embedding_model=MODEL)

    def entries(self, **match: Any) -> list[str]:
        found = self.database.memory2_audit.find(self._encode("audit", match)).sort("at", 1)
        return [str(each["_id"]) for each in found]

    def rewrite_entry(self, entry: str, old: str, new: str) -> None:
        (document,) = self.database.memory2_audit.find({"_id": ObjectId(entry)})
        after = {
            name: value.replace(old, new) if isinstance(value, str) else value
            for name, value in document["after"].items()
        }
        assert after != document["after"]
        where = {"_id": document["_id"]}
        self._collection("audit").update_one(where, {"$set": {"after": after}})

    def spoil_owner(self, entry: str) -> None:
        """Give an entry of an agent's own scope an owner, which such a scope cannot have."""
        where = {"_id": ObjectId(entry)}
        self._collection("audit").update_one(where, {"$set": {"owner": "Mallory"}})


def _owner(scope: Scope) -> Any:
    return scope.owner if scope.kind == "shard" else ObjectId(scope.owner)


def _home(table: str, scope: Scope) -> dict[str, Any]:
    """Fields of whose a document is; in items a session is also a source."""
    home: dict[str, Any] = {"scope": scope.kind, "agent_id": ObjectId(scope.agent)}
    home |= dict.fromkeys(("user_id", "shard"))
    if table == "consolidations":
        home["session_id"] = None
    if field := _OWNERS.get(scope.kind):
        home[field] = _owner(scope)
    return home
