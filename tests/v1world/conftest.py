"""Places that a whole module shares, one for each kind of store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pymongo import MongoClient

from edenmem.models.ids import new_id
from tests.v1world.cases import CASES
from tests.v1world.places import MongoPlace, Place, SqlitePlace

Value = TypeVar("Value")
NewPlace = Callable[[str], Place]

assert CASES, "a world is made of cases that are registered"


@pytest.fixture(scope="module")
def new_place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NewPlace]:
    """A function from a kind of store to a new database, without anything in it."""
    with ExitStack() as opened:

        def make(kind: str) -> Place:
            folder = tmp_path_factory.mktemp(kind)
            if kind == "sqlite":
                return SqlitePlace(folder)
            uri: str = request.getfixturevalue("secantus_uri")
            client: Any = opened.enter_context(MongoClient(uri))
            name = f"v1world_{new_id()}"
            opened.callback(client.drop_database, name)
            return MongoPlace(uri, client[name], folder)

        yield make


class Once(dict[str, Value]):
    """What is made once for each kind of store. (A parameter of a fixture would make it again for
    every test, since each of them has cases of its own.)"""

    def __init__(self, make: Callable[[str], Value]) -> None:
        self._make = make

    def __missing__(self, kind: str) -> Value:
        self[kind] = self._make(kind)
        return self[kind]

    def __repr__(self) -> str:  # pytest shows what a test was given, and this is long
        return f"<{', '.join(self)}>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for dumps."""
    return tmp_path_factory.mktemp("dumps")
