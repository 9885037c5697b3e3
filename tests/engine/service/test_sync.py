"""The synchronous facade: the same methods, without an event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from edenmem import (
    AgentMemory,
    MemoryService,
    NotFoundError,
    SyncAgentMemory,
    SyncMemoryService,
    UsageError,
)
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store


@pytest.fixture
def service(sqlite_store: Store) -> Iterator[SyncMemoryService]:
    with SyncMemoryService(MemoryService(sqlite_store, Settings())) as made:
        yield made


@pytest.mark.parametrize(
    ("blocking", "wrapped"), [(SyncMemoryService, MemoryService), (SyncAgentMemory, AgentMemory)]
)
def test_it_has_every_public_method(blocking: type, wrapped: type) -> None:
    methods = {
        name
        for name, method in vars(wrapped).items()
        if inspect.iscoroutinefunction(method) and not name.startswith("_")
    }
    assert methods <= vars(blocking).keys()
    for name in methods:
        method = getattr(blocking, name)
        assert not inspect.iscoroutinefunction(method)
        expected = inspect.signature(getattr(wrapped, name)).parameters
        assert list(inspect.signature(method).parameters) == list(expected)


def test_a_program_without_a_loop_remembers(service: SyncMemoryService) -> None:
    service.initialize()
    service.ensure_session("chat", agents=["mira"], users=["lena"])
    turn = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    assert service.add_messages("chat", turn) == 2
    memory = service.memory_for("mira", user="lena")
    memory.add_fact("Lena drinks green tea.")
    found = service.search("tea", agent_id="mira", user_id="lena", recipe="text")
    assert [hit.fact.content for hit in found.hits] == ["Lena drinks green tea."]
    assert "green tea" in service.get_memory_context("chat")
    assert [fact.content for fact in memory.facts()] == ["Lena drinks green tea."]
    with pytest.raises(NotFoundError):
        service.search("tea", agent_id="nobody")


async def test_it_works_inside_a_running_loop(service: SyncMemoryService) -> None:
    assert asyncio.get_running_loop().is_running()
    assert service.ensure_user("lena").username == "lena"


def test_threads_share_one_loop(service: SyncMemoryService) -> None:
    with ThreadPoolExecutor(8) as pool:
        users = set(pool.map(lambda _: service.ensure_user("lena").id, range(24)))
    assert len(users) == 1
    assert [t.name for t in threading.enumerate()].count("edenmem-loop") == 1


def test_a_closed_service_raises_an_error(service: SyncMemoryService) -> None:
    service.ensure_user("lena")
    service.close()
    service.close()
    with pytest.raises(UsageError, match="closed"):
        service.ensure_user("tomas")
    assert "edenmem-loop" not in [thread.name for thread in threading.enumerate()]
