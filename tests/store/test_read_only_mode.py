"""A store that was opened so that nothing can be written."""

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

#: The methods of the seam to the driver that only read.
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
    """In the place of a driver's collection: whatever is asked of it is a failure."""

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


def test_it_is_a_kind_of_read_only_store_and_the_request_is_what_is_wrong() -> None:
    assert issubclass(WriteRefused, StoreReadOnly)
    assert WriteRefused.exit_code is ExitCode.USAGE


def test_a_database_on_a_server_is_read_and_not_written(secantus_uri: str) -> None:
    uri = f"{secantus_uri.rstrip('/')}/readonly"
    writer = MongoStore(uri, StoreSettings())
    writer.database.initialise()
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


def test_a_file_is_read_and_not_written(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    writer = SqliteStore(path)
    writer.database.initialise()
    assert writer.host.add_agent(make_agent("mira"))
    writer.database.close()
    reader = SqliteStore(path, read_only=True)
    assert [agent.username for agent in reader.host.agents()] == ["mira"]
    with pytest.raises(WriteRefused):
        reader.host.add_agent(make_agent("otto"))
    with pytest.raises(WriteRefused):
        reader.database.initialise()
    with (
        reader.connections.reading() as connection,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        connection.execute("DELETE FROM agents")
    reader.database.close()
