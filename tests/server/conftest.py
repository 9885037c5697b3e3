"""A server's memory, new for each test, and a server that chats, one for each module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edenmem.engine.service import MemoryService
from edenmem.models.host import Agent, User
from edenmem.models.ids import new_id, utc_now
from edenmem.store.sqlite import SqliteStore
from tests.server.door import Door, make_settings, serving
from tests.server.town import Town, fill, opened_copy, write_store
from tests.server.upstream import FakeUpstream


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("town") / "town.db", fill)


@pytest.fixture
def town_store(filled: Path, tmp_path: Path) -> Iterator[SqliteStore]:
    """A copy of the filled store."""
    with opened_copy(filled, tmp_path) as store:
        yield store


@pytest.fixture
def town(town_store: SqliteStore) -> Town:
    return Town(town_store)


@pytest.fixture(scope="module")
def upstream() -> Iterator[FakeUpstream]:
    with FakeUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def server_settings() -> dict[str, Any]:
    """What the module's server is set to."""
    return {"users": {"host-anna": "anna"}}


@pytest.fixture(scope="module")
def running_door(
    tmp_path_factory: pytest.TempPathFactory,
    upstream: FakeUpstream,
    server_settings: dict[str, Any],
) -> Iterator[Door]:
    settings = make_settings(tmp_path_factory.mktemp("door"), upstream, **server_settings)
    service = MemoryService.without_models(settings)
    service.setup.make()
    switches = {"user_memory_enabled": True, "agent_memory_enabled": True}
    mira, otto = (
        Agent(id=new_id(), username=name, created_at=utc_now(), **switches)
        for name in ("mira", "otto")
    )
    anna, boris = (User(id=new_id(), username=n, created_at=utc_now()) for n in ("anna", "boris"))
    for account in (mira, otto, anna, boris):
        assert service.accounts.add(account)
    with serving(service, settings, agent=mira) as url:
        yield Door(f"{url}/v1", upstream, service, settings, mira, otto, anna, boris)
    service.close_store()


@pytest.fixture
def door(running_door: Door) -> Door:
    running_door.upstream.reset()
    return running_door
