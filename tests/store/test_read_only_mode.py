"""A store opened in read-only mode."""

from __future__ import annotations

import inspect
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from edenmem.errors import ExitCode, StoreReadOnly, WriteRefused
from edenmem.settings.schema import StoreSettings
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core.collection import Collection
from edenmem.store.sqlite import SqliteStore
from tests.support.builders import make_agent

#: The read-only methods of `Collection`.
READS = {
    "find",
    "find_one",
    "aggregate",
    "distinct",
    "count",
    "estimate_count",
    "indexes",
    "answers_search",
    "search_indexes",
    "leniently",
    "read_page",
    "walk_by_id",
}
WRITES = sorted(
    name
    for name, member in vars(Collection).items()
    if callable(member) and not name.startswith("_") and name not in READS
)


class Untouchable:
    """Replaces a driver's collection; any use fails."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} reached the driver")


@pytest.mark.parametrize("name", WRITES)
def test_no_write_reaches_the_driver(name: str) -> None:
    method = getattr(Collection(Untouchable(), "example", read_only=True), name)
    values: dict[type, Any] = {str: "x"}
    given = [
        values.get(parameter.annotation, [{"a": 1}] if "Sequence" in str(parameter) else {"a": 1})
        for parameter in inspect.signature(method).parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    with pytest.raises(WriteRefused, match="open for reading only"):
        method(*given)


def test_write_refused_is_a_usage_error() -> None:
    assert issubclass(WriteRefused, StoreReadOnly)
    assert WriteRefused.exit_code is ExitCode.USAGE


@pytest.mark.slow
def test_a_server_database_is_read_only(secantus_uri: str) -> None:
    uri = f"{secantus_uri.rstrip('/')}/readonly"
    writer = MongoStore(uri, StoreSettings())
    writer.database.initialize()
    assert writer.host.add_agent(make_agent("mira"))
    reader = MongoStore(uri, StoreSettings(read_only=True))
    try:
        assert [agent.username for agent in reader.host.agents()] == ["mira"]
        with pytest.raises(WriteRefused):
            reader.host.add_agent(make_agent("otto"))
        assert [agent.username for agent in writer.host.agents()] == ["mira"]
    finally:
        reader.database.close()
        writer.database.close()


def test_a_file_is_read_only(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    writer = SqliteStore(path)
    writer.database.initialize()
    assert writer.host.add_agent(make_agent("mira"))
    writer.database.close()
    reader = SqliteStore(path, read_only=True)
    assert [agent.username for agent in reader.host.agents()] == ["mira"]
    with pytest.raises(WriteRefused):
        reader.host.add_agent(make_agent("otto"))
    with pytest.raises(WriteRefused):
        reader.database.initialize()
    with (
        reader.connections.reading() as connection,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        connection.execute("DELETE FROM agents")
    reader.database.close()
