"""Connection failures are reported uniformly, without secrets, and never look like an empty
result."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from pymongo import errors as driver

from edenmem.errors import ExitCode, StoreError
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.settings.schema import StoreSettings
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core import collection
from edenmem.store.mongo.core.collection import Collection, location_of
from tests.store.mongo.conftest import OpenMongo
from tests.support.builders import make_fact
from tests.support.memory import add_facts

pytestmark = pytest.mark.slow

SECRET = "hunter2"
SCOPE = Scope.user(new_id(), new_id())


def _closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _shown(error: BaseException) -> str:
    """Everything that a person could be shown, including a traceback."""
    return "".join(traceback.format_exception(error)) + repr(error)


READS: dict[str, Callable[[MongoStore], object]] = {
    "agents": lambda store: list(store.host.agents()),
    "sessions": lambda store: list(store.host.sessions()),
    "messages": lambda store: list(store.host.messages(new_id())),
    "facts": lambda store: list(store.memory.facts(FactFilter(scopes=(SCOPE,)))),
    "recent facts": lambda store: store.memory.recent_facts(
        (SCOPE, Scope.agent(SCOPE.agent_id)), since=_long_ago(), limit=3, live_at=_long_ago()
    ),
    "pending": lambda store: store.memory.pending(SCOPE),
    "scopes": lambda store: list(store.memory.scopes()),
    "search": lambda store: store.search.text_candidates(
        FactFilter(scopes=(SCOPE,)), ["x"], limit=3
    ),
    "find": lambda store: store.host.find("agent", "eve"),
    "backlog": lambda store: store.formations.backlog(new_id(), new_id(), limit=3),
    "info": lambda store: store.database.info(),
    "initialize": lambda store: store.database.initialize(),
}


def _long_ago() -> Any:
    from tests.support.builders import ago

    return ago(days=999)


@pytest.mark.parametrize("name", READS)
def test_an_unreachable_server_is_an_error(name: str) -> None:
    """Known failure 29: an outage looked like "no memories"."""
    uri = f"mongodb://anna:{SECRET}@127.0.0.1:{_closed_port()}/eden"
    store = MongoStore(uri, StoreSettings(connect_timeout_seconds=0.05))
    with pytest.raises(StoreError, match="cannot reach MongoDB at mongodb://127") as caught:
        READS[name](store)
    assert caught.value.exit_code is ExitCode.UNAVAILABLE
    assert caught.value.hint
    assert SECRET not in _shown(caught.value)
    store.database.close()


def test_the_connect_timeout_is_configured() -> None:
    store = MongoStore("mongodb://127.0.0.1:1/x", StoreSettings())
    options = store.connection.database.client.options
    assert options.server_selection_timeout == 4.0
    assert options.pool_options.connect_timeout == 4.0
    assert options.retry_writes
    store.database.close()


@pytest.mark.parametrize(
    "uri",
    [
        f"mongodb://anna:{SECRET}@@host/x",
        f"mongodb://anna:{SECRET}/x@host/x",
        f"mongodb://anna:{SECRET}%@host/x",
        f"mongodb://anna:{SECRET}@host:port/x",
        f"mongodb://anna:{SECRET}@",
        f"mongodb+srv://anna:{SECRET}@a,b/x",
        "mongodb://",
        "nonsense",
        "",
    ],
)
def test_a_bad_uri_is_refused_without_its_password(uri: str) -> None:
    store = MongoStore(uri, StoreSettings(connect_timeout_seconds=0.05))
    with pytest.raises(StoreError) as caught:
        store.database.info()
    assert SECRET not in _shown(caught.value)
    assert SECRET not in repr(store)
    store.database.close()


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("mongodb://h/db", "mongodb://h/db"),
        ("mongodb://u:p@h:1,i:2/db?replicaSet=x", "mongodb://h:1,i:2/db"),
        ("mongodb+srv://u:p%40@cluster.example/", "mongodb+srv://cluster.example"),
        ("mongodb://u:p@ss/w@rd@h/db?x=p", "mongodb://h/db"),
        ("mongodb://h/?tlsCertificateKeyFilePassword=p", "mongodb://h"),
    ],
)
def test_a_uri_is_shown_without_secrets(uri: str, shown: str) -> None:
    assert location_of(uri) == shown


class _Raw:
    """A driver's collection that always fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        def fail(*args: Any, **options: Any) -> Any:
            raise self.error

        return fail


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (driver.ServerSelectionTimeoutError("x"), "cannot reach"),
        (driver.AutoReconnect("x"), "lost the connection"),
        (driver.ConnectionFailure("x"), "lost the connection"),
        (driver.NetworkTimeout("x"), "in time"),
        (driver.NotPrimaryError("x"), "no writable primary"),
        (driver.OperationFailure("x", 10107), "no writable primary"),
        (driver.OperationFailure("Authentication failed.", 18), "Authentication failed. (code 18)"),
        (driver.OperationFailure("over your space quota", 8000), "over your space quota"),
        (driver.ExecutionTimeout("x", 50), "in time"),
        (driver.OperationFailure("disk full", 14031, {"codeName": "OutOfDiskSpace"}), "OutOfDisk"),
        (driver.DocumentTooLarge("x"), "16 MB"),
        (driver.ConfigurationError("x"), "connection options"),
        (driver.InvalidOperation("x"), "InvalidOperation"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_every_error_of_the_driver_is_a_store_error(error: Exception, words: str) -> None:
    collection = Collection(_Raw(error), "mongodb://host/db")
    commands: list[Callable[[], object]] = [
        lambda: list(collection.find({})),
        lambda: list(collection.aggregate([])),
        lambda: collection.distinct("x"),
        lambda: collection.count({}),
        lambda: collection.estimate_count(),
        lambda: collection.indexes(),
        lambda: collection.insert_one({}),
        lambda: collection.insert_new([{}]),
        lambda: collection.update_one({}, {}),
        lambda: collection.update_many({}, {}),
        lambda: collection.delete_one({}),
        lambda: collection.delete_many({}),
        lambda: collection.create_index([("x", 1)]),
        lambda: collection.drop_index("x"),
    ]
    for command in commands:
        with pytest.raises(StoreError) as caught:
            command()
        assert words in caught.value.message
        assert "mongodb://host/db" in caught.value.message or words == "16 MB"


@pytest.mark.slow
def test_a_failing_cursor_raises(open_mongo: OpenMongo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known failure 10: results before a read error were taken for the whole."""
    monkeypatch.setattr(collection, "BATCH", 2)
    store = open_mongo()
    store.database.initialize()
    add_facts(store, *(make_fact(SCOPE, f"fact {n}") for n in range(5)))
    database = store.connection.database
    database.client.admin.command(
        "configureFailPoint",
        "failCommand",
        mode={"times": 1},
        data={"failCommands": ["getMore"], "errorCode": 96},
    )
    with pytest.raises(StoreError):
        list(store.memory.facts(FactFilter(scopes=(SCOPE,))))
    assert len(list(store.memory.facts(FactFilter(scopes=(SCOPE,))))) == 5


def test_a_closed_store_can_be_used_again(secantus_uri: str) -> None:
    store = MongoStore(secantus_uri, StoreSettings(database="closing"))
    assert store.memory.fact(new_id()) is None
    store.database.close()
    assert store.memory.fact(new_id()) is None
    store.database.close()
    store.database.close()


@pytest.mark.parametrize(
    ("path", "setting", "name"),
    [("", "", "eden"), ("/named", "", "named"), ("/named", "set", "set"), ("", "set", "set")],
)
def test_the_name_of_the_database(path: str, setting: str, name: str) -> None:
    store = MongoStore(f"mongodb://127.0.0.1:1{path}", StoreSettings(database=setting))
    assert store.connection.database.name == name
    store.database.close()


@pytest.mark.parametrize(
    ("code", "message", "hint"),
    [
        (18, "Authentication failed.", "authSource"),
        (13, "not authorized on eden to execute command { find: 1, filter: 'secret' }", "role"),
        (
            67,
            "cannot create unique index over { hash: 1 } with shard key { a: 1 }",
            "shard",
        ),
        (8000, "bad auth", None),
        (8000, "you are over your space quota", None),
    ],
)
def test_a_hint_is_given_only_where_the_code_has_one_meaning(
    code: int, message: str, hint: str | None
) -> None:
    """Known failure 63: every error 8000 was reported as wrong credentials."""
    error = driver.OperationFailure(message, code)
    with pytest.raises(StoreError) as caught:
        Collection(_Raw(error), "mongodb://host/db").indexes()
    assert message.partition(" to execute")[0] in caught.value.message
    assert f"code {code}" in caught.value.message
    assert "secret" not in caught.value.message
    assert (hint in caught.value.hint if caught.value.hint else None) == (True if hint else None)


@pytest.mark.parametrize("code", [59, 115, 31082, 40324, 6047401])
def test_these_codes_mean_no_search_commands(code: int) -> None:
    error = driver.OperationFailure("x", code)
    assert not Collection(_Raw(error), "mongodb://host/db").answers_search()


@pytest.mark.parametrize("code", [50, 125, 489, 13, 8000])
def test_any_other_error_of_a_search_probe_is_raised(code: int) -> None:
    """Known failure 63: it was taken for "no search commands", and 50,000 facts were scanned."""
    error = driver.OperationFailure("the server's own words", code)
    with pytest.raises(StoreError):
        Collection(_Raw(error), "mongodb://host/db").answers_search()


def test_an_unreachable_server_is_waited_for_once() -> None:
    """With more collections than threads, each wave took the whole timeout again."""
    settings = StoreSettings(connect_timeout_seconds=0.3)
    store = MongoStore("mongodb://127.0.0.1:9/x", settings)
    begun = 0

    def call() -> None:
        nonlocal begun
        begun += 1
        store.database.info()

    with pytest.raises(StoreError, match="cannot reach"):
        store.connection.run_all([call] * 40)
    store.database.close()
    assert begun <= 8
