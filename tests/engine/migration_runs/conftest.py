"""A store with the agent, and a function to run a migration on the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from edenmem.engine.migration.reports import MigrationReport, RunOptions
from edenmem.engine.migration.run import V1Runner
from edenmem.store.protocol.store import Store
from tests.engine.migration_runs.listed import AGENT, USER, ListedPlan
from tests.support.builders import FixedClock, make_actor, make_agent, make_user
from tests.support.runtime import make_runtime
from tests.support.stores import SECANTUS_TOO

Migrate = Callable[..., MigrationReport]


@pytest.fixture(params=["sqlite", SECANTUS_TOO])
def store(request: pytest.FixtureRequest, open_store: Callable[[str], Store]) -> Store:
    """Return an empty store of each kind; the proofs use a real server."""
    return open_store(request.param)


@pytest.fixture
def migrate(store: Store, clock: FixedClock) -> Migrate:
    """Return a function that runs a plan on the store with the agent and the user."""
    store.host.add_agent(make_agent("mira", id=AGENT, agent_memory_enabled=False))
    store.host.add_user(make_user("anna", id=USER))
    return migrator(store, clock)


def migrator(store: Store, clock: FixedClock) -> Migrate:
    def run(plan: ListedPlan, *, embedder: Any = None, **options: Any):
        runner = V1Runner(
            make_runtime(store, actor=make_actor("migrate v1"), embedder=embedder, clock=clock),
            plan,
            RunOptions(**{"batch_size": 4, **options}),
        )
        return asyncio.run(runner.run())

    return run
