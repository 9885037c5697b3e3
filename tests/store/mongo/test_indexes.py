"""Every query of the store is served by an index, according to ``explain``."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from pymongo.monitoring import CommandListener

from edenmem.models.ids import new_id
from edenmem.store import protocol
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core import collections
from edenmem.store.protocol.store import Store
from tests.store.mongo.conftest import OpenMongo
from tests.support.builders import (
    NOW,
)
from tests.support.everything import use_everything
from tests.support.forgetting import fill, forget, make_town
from tests.support.interposed import InterposedStore

LATER = NOW + timedelta(hours=1)

#: Conditions that may be checked on documents selected by an index. SecantusDB's ``explain`` only
#: names an index that covers the whole filter, although like MongoDB it uses a partial one; so only
#: these are left out if the whole filter is not covered.
OF_FIELDS = ("expires_at", "tags", "key", "$and", "$nor")
RESIDUAL = {
    "users3": {"deleted", "eden_user_id", "owner"},
    "sessions": {"deleted", "users", "group_id", "memory_context.cached_memory_context"},
    "messages": {"sender", "role", "trigger"},
    "memory2_facts": {
        "session_id",
        "formed_at",
        "said_at",
        "recent_at",
        "updated_at",
        "embedding_model",
        "embedding",
        "embedding.0",
        "embedding_next_model",
        "$expr",
        *OF_FIELDS,
        "user_id",
        "group_id",
        "shard",
    },
    "memory2_reflections": {
        *("absorbed", "said_at", "formed_at", "user_id", "group_id", "shard", "session_id"),
    },
    "memory2_held": {"user_id", "group_id", "shard", "session_id"},
    "memory2_consolidated": {"user_id", "group_id", "shard", "session_id"},
    "memory2_policies": {"user_id", "version"},
    "memory2_history": {"action", "agent_id", "scope", "owner"},
    "memory2_audit": {"agent_id", "action", "actor.command", "status", "$or"},
    "memory2_formations": {"status", "agent_id", "$or"},
    "memory2_told": {"agent_id", "session_id", "user_id"},
}

#: Fields that a filter must keep when residual conditions are left out: never the whole share of an
#: agent or a kind where the owner is known.
ANCHORS = {
    "messages": ({"session"}, {"sender"}),
    "memory2_facts": ({"agent_id", "scope"}, {"embedding_model"}),
    "memory2_reflections": ({"agent_id", "scope"},),
    "memory2_held": ({"agent_id", "scope"},),
    "memory2_consolidated": ({"agent_id", "scope"},),
}


class Watcher(CommandListener):
    """Keeps the filter and sort of every command that reads or changes documents."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = []
        self.commands = 0

    def started(self, event: Any) -> None:
        self.commands += 1
        command = dict(event.command)
        name = event.command_name
        collection = str(command.get(name))
        for filter, sort in _filters(name, command):
            self.seen.append((name, collection, dict(filter), dict(sort)))

    def succeeded(self, event: Any) -> None:
        """Do nothing."""

    def failed(self, event: Any) -> None:
        """Do nothing."""


def _filters(
    name: str, command: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    match name:
        case "find":
            yield command["filter"], command.get("sort", {})
        case "update":
            for update in command["updates"]:
                yield update["q"], {}
        case "delete":
            for delete in command["deletes"]:
                yield delete["q"], {}
        case "aggregate":
            first = command["pipeline"][0]
            if "$listSearchIndexes" not in first:  # it reads no documents
                yield first.get("$match", {}), {}
        case "distinct":
            yield command.get("query") or {command["key"]: {"$gte": ""}}, {}
        case "count" if command.get("query"):
            yield command["query"], {}


def _explained(
    database: Any, collection: str, filter: dict[str, Any], sort: dict[str, Any]
) -> bool:
    """Return whether the server reports an index for the query."""
    command = {"find": collection, "filter": filter}
    if sort:
        command["sort"] = sort
    plan = database.command("explain", command, verbosity="queryPlanner")
    return "COLLSCAN" not in str(plan["queryPlanner"]["winningPlan"])


def _is_served(
    database: Any, collection: str, filter: dict[str, Any], sort: dict[str, Any]
) -> bool:
    if "_id" in filter:
        return True
    # A name in any case scans the names in the index, not the documents.
    filter = {
        field: {"$gte": ""} if isinstance(value, dict) and "$regex" in value else value
        for field, value in filter.items()
    }
    # MongoDB seeks each of several agents or scopes in an index; ``explain`` of the test server
    # does not.
    for field in ("agent_id", "scope_key"):
        values = filter.get(field)
        if isinstance(values, dict) and len(values.get("$in", ())) > 0:
            filter[field] = values["$in"][0]
    if _explained(database, collection, filter, sort):
        return True
    known = RESIDUAL.get(collection, set())
    residual = [f for f in filter if f in known or f.startswith("edenmem_contexts.")]
    residual.sort(key=OF_FIELDS.__contains__)  # the last one is left out first
    if filter.keys() == {"expires_at", "agent_id"}:  # few facts have expired
        return _explained(database, collection, {"expires_at": filter["expires_at"]}, sort)
    while residual:
        filter.pop(residual.pop())
        anchors = ANCHORS.get(collection)
        if anchors is not None and not any(anchor <= filter.keys() for anchor in anchors):
            return False
        if filter and _explained(database, collection, filter, sort):
            return True
    return False


@pytest.fixture
def watched(open_mongo: OpenMongo) -> tuple[MongoStore, Watcher]:
    watcher = Watcher()
    store = open_mongo(listeners=(watcher,))
    store.database.initialize()
    watcher.seen.clear()
    return store, watcher


#: Parts that agents use in every turn. The others read everything, or little, on request.
DAILY = (
    "cold",
    "contexts",
    "formations",
    "history",
    "host",
    "memory",
    "search",
    "told",
    "usage",
)


class Recorder(InterposedStore):
    """A store that records which of its methods are called."""

    def __init__(self, store: MongoStore) -> None:
        super().__init__(store)
        self.called: set[str] = set()

    def wrap(self, name: str, method: Any) -> Any:
        self.called.add(name)
        return method


def _protocol_of(part: str) -> Any:
    """The public methods of a part of the store."""
    name = Store.__annotations__[part]
    for module in pkgutil.iter_modules(protocol.__path__, f"{protocol.__name__}."):
        found = getattr(importlib.import_module(module.name), name, None)
        if found is not None:
            return found
    raise AssertionError(f"there is no protocol {name}")


@pytest.mark.slow
def test_every_query_is_served_by_an_index(watched: tuple[MongoStore, Watcher]) -> None:
    """A method added to the protocol must be added to `use_everything`."""
    store, watcher = watched
    recorder: Any = Recorder(store)
    use_everything(recorder)
    public = {
        name
        for part in DAILY
        for name, member in inspect.getmembers(_protocol_of(part))
        if not name.startswith("_") and callable(member)
    }
    # Queries only used by forgetting are checked below.
    for_forgetting = {
        "cached_texts",
        "accounts_of",
        "find_agent_ids",
        "find_derived",
        "find_message_ids",
        "display_names",
        "scopes_of",
        "sessions_of",
    }
    on_request = {"is_searchable"}
    assert public - recorder.called - for_forgetting == on_request
    seen = list(watcher.seen)
    assert {collection for _, collection, _, _ in seen} >= {
        collections.FACTS,
        collections.REFLECTIONS,
        collections.CONSOLIDATED,
        collections.POLICIES,
        collections.HISTORY,
        collections.AUDIT,
        collections.FORMATIONS,
        collections.USAGE,
        "users3",
        "sessions",
        "messages",
    }
    assert {name for name, *_ in seen} >= {
        "find",
        "aggregate",
        "update",
        "delete",
        "distinct",
    }
    scans = _scans(store, seen)
    assert not scans, "\n".join(scans)


def _scans(store: MongoStore, seen: Sequence[tuple[str, str, Any, Any]]) -> list[str]:
    checked: set[str] = set()
    scans: list[str] = []
    for name, collection, filter, sort in seen:
        shape = f"{name} {collection} {_shape(filter)} {list(sort)}"
        if shape not in checked:
            checked.add(shape)
            if not _is_served(store.connection.database, collection, filter, sort):
                scans.append(shape)
    return scans


@pytest.mark.slow
def test_forgetting_is_served_by_indexes(watched: tuple[MongoStore, Watcher]) -> None:
    """Finding and erasing never read a whole collection, except for one read of every text by
    ID."""
    store, watcher = watched
    town = make_town(store)
    fill(town)
    watcher.seen.clear()
    forget(store, user="zenobia", agent="adam")
    forget(store, session="balcony")
    forget(store, user="zenobia")
    forget(store, group="harbour", agent="eve")
    forget(store, agent="eve")
    scans = _scans(store, watcher.seen)
    assert not scans, "\n".join(scans)


@pytest.mark.slow
def test_the_check_finds_a_scan(watched: tuple[MongoStore, Watcher]) -> None:
    """The test above would fail for a query without an index."""
    store, _ = watched
    database = store.connection.database
    assert not _is_served(database, "memory2_facts", {"content": "x"}, {})
    assert not _is_served(database, "memory2_facts", {"scope": "user"}, {})
    assert not _is_served(database, "memory2_facts", {}, {})
    assert not _is_served(database, "sessions", {"deleted": {"$ne": True}}, {})
    assert not _is_served(database, "memory2_facts", {"agent_id": new_id(), "group_id": 1}, {})


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shape(inner) for key, inner in value.items()}
    return type(value).__name__
