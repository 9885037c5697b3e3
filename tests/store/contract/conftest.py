"""Contract tests run on SQLite and on a MongoDB server over a socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.support.stores import SECANTUS_TOO

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store


@pytest.fixture(params=["sqlite", SECANTUS_TOO])
def store(request: pytest.FixtureRequest, open_store: Callable[[str], Store]) -> Store:
    """An empty store of each kind."""
    return open_store(request.param)
