"""A service on each store, with an agent and a user."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edenmem import MemoryService, SyncMemoryService
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store
from tests.support.builders import make_agent, make_user


@pytest.fixture
def service(store: Store) -> Iterator[SyncMemoryService]:
    """A service with the agent mira, whose owner is olga, and the user lena."""
    olga = make_user("olga")
    assert store.host.add_user(olga)
    assert store.host.add_user(make_user("lena"))
    assert store.host.add_agent(make_agent("mira", owner=olga.id))
    with SyncMemoryService(MemoryService(store, Settings())) as made:
        yield made
