"""A store with the agent, and a function to run a migration on the store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from edenmem.engine.history.undo import UndoOutcome
from edenmem.engine.migration.migrations import undo_run
from edenmem.engine.migration.reports import MigrationReport, RunOptions
from edenmem.engine.migration.run import V1Runner
from edenmem.engine.runtime.runtime import Runtime
from edenmem.models.migration import MigrationRun
from edenmem.store.protocol.store import Store
from tests.engine.migration_runs.listed import AGENT, USER, ListedPlan
from tests.support.builders import FixedClock, make_actor, make_agent, make_user
from tests.support.runtime import make_runtime
from tests.support.stores import SECANTUS_TOO

Migrate = Callable[..., MigrationReport]


class Kept(NamedTuple):
    """A change that an undo did not revert, and why."""

    target_type: str
    target_id: str
    reason: str


@dataclass
class Reverted:
    """What an undo of a run removed and kept, and the run afterwards."""

    run: MigrationRun
    removed: dict[str, int]
    kept: list[Kept]


def roll_back(runtime: Runtime, run_id: str, **options: Any) -> Reverted:
    """Undo a run, and count its changes by target."""
    steps = list(undo_run(runtime, run_id, **options))
    removed = Counter(
        "switch" if step.entry.action == "set_agent_toggles" else step.entry.target_type
        for step in steps
        if step.outcome in (UndoOutcome.DONE, UndoOutcome.PLANNED)
    )
    kept = [
        Kept(step.entry.target_type, step.entry.target_id, step.why)
        for step in steps
        if step.outcome is UndoOutcome.REFUSED
    ]
    run = next(
        (each for each in runtime.store.migrations.migration_runs() if each.id == run_id), None
    )
    assert run is not None
    return Reverted(run, dict(removed), kept)


#: For tests of what depends on the store; `tests.v1world` runs on both as well.
BOTH = pytest.mark.parametrize("store", ["sqlite", SECANTUS_TOO], indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest, open_store: Callable[[str], Store]) -> Store:
    """Return an empty store: SQLite, unless a test asks for `BOTH`."""
    return open_store(getattr(request, "param", "sqlite"))


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
