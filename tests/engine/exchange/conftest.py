"""A small town to import into, and examples of the files of other systems."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edenmem.store.protocol.store import Store
from tests.support.builders import make_agent, make_user


@pytest.fixture
def town(open_store: Callable[[str], Store], request: pytest.FixtureRequest) -> Store:
    """Return a store with the agent eve and the user anna."""
    store = open_store(getattr(request, "param", "sqlite"))
    store.host.add_agent(make_agent("eve"))
    store.host.add_user(make_user("anna"))
    return store
