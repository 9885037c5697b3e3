"""A day that breaks off, and the next day that puts it right."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edenmem.errors import UnavailableError
from edenmem.settings.schema import StoreSettings
from tests.faults import scenario
from tests.faults.points import KILLED, Fault, FaultyEmbedder, FaultyLLM, FaultyStore, Switchboard
from tests.support.builders import FixedClock
from tests.support.embedder import FakeEmbedder

if TYPE_CHECKING:
    from edenmem.store.protocol import Store


async def _broken_day(store: Store, board: Switchboard, clock: FixedClock) -> None:
    """A day behind the switchboard; what it breaks off with is what may be expected of it."""
    faulty: Any = FaultyStore(store, board)
    task = asyncio.create_task(
        scenario.run(
            faulty,
            FaultyLLM(scenario.scripted(), board),
            FaultyEmbedder(FakeEmbedder(), board),
            clock,
            "first",
        )
    )
    board.watch(task)
    try:
        await task
    except (UnavailableError, asyncio.CancelledError):
        assert board.struck


def live_through(store: Store, fault: Fault | None) -> Switchboard:
    """A day with a fault (or none), as it is lived in this process."""
    board = Switchboard(fault)
    asyncio.run(_broken_day(store, board, FixedClock()))
    return board


def put_right(store: Store) -> None:
    """A later day with a new worker, on which nothing goes wrong."""
    clock = FixedClock()
    clock.advance(seconds=scenario.LATER.total_seconds())
    asyncio.run(scenario.run(store, scenario.scripted(), FakeEmbedder(), clock, "second"))


def die(location: str, database: str, fault: Fault) -> None:
    """Live through a day in a process of its own, which the fault ends. Any other end than the
    fault's shows in the exit code."""
    store: Store
    if database:
        from edenmem.store.mongo import MongoStore

        store = MongoStore(location, StoreSettings(database=database))
    else:
        from edenmem.store.sqlite import SqliteStore

        store = SqliteStore(Path(location))
    live_through(store, fault)
    raise SystemExit(KILLED + 1)
