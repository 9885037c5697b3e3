"""A day that breaks off, and the next day that puts it right."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edenmem.errors import UnavailableError
from edenmem.settings.schema import StoreSettings
from tests.faults import scenario
from tests.faults.points import KILLED, Fault, FaultyEmbedder, FaultyLLM, FaultyStore, Switchboard
from tests.support.builders import FixedClock
from tests.support.embedder import FakeEmbedder

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store


class Address(NamedTuple):
    """Where a memory is: a file, or a database on a server."""

    location: str
    database: str = ""

    @contextmanager
    def open(self, board: Switchboard, *, deep: bool) -> Iterator[Any]:
        """A store whose operations, or, ``deep``, whose statements and commands to the database
        pass the switchboard."""
        if self.database:
            from edenmem.store.mongo import MongoStore
            from tests.faults.commands import breakable_mongo

            settings = StoreSettings(database=self.database)
            if deep:
                with breakable_mongo(self.location, settings, board) as store:
                    yield store
                return
            faulty = FaultyStore(MongoStore(self.location, settings), board)
            with closing(faulty.database):
                yield faulty
            return
        from edenmem.store.sqlite import SqliteStore
        from tests.faults.statements import BreakableSqlite

        path = Path(self.location)
        store = BreakableSqlite(path, board) if deep else FaultyStore(SqliteStore(path), board)
        with closing(store.database):
            yield store


def day(number: int) -> FixedClock:
    """The clock of the first, second, … day."""
    clock = FixedClock()
    clock.advance(seconds=number * scenario.LATER.total_seconds())
    return clock


async def _live(store: Any, board: Switchboard, clock: FixedClock, deep: bool) -> None:
    providers = Switchboard() if deep else board
    task = asyncio.create_task(
        scenario.run(
            store,
            FaultyLLM(scenario.scripted(), providers),
            FaultyEmbedder(FakeEmbedder(), providers),
            clock,
            f"worker of {clock():%H:%M}",
        )
    )
    board.watch(task)
    try:
        await task
    except (UnavailableError, asyncio.CancelledError):
        if not board.struck:
            raise


def live_through(
    address: Address, faults: Sequence[Fault], *, number: int = 0, deep: bool = False
) -> Switchboard:
    """A day with these faults; what it breaks off with is what may be expected of them."""
    board = Switchboard(faults)
    with address.open(board, deep=deep) as store:
        asyncio.run(_live(store, board, day(number), deep))
    return board


def put_right(store: Store, *, number: int = 1) -> None:
    """A later day with a new worker, on which nothing goes wrong."""
    asyncio.run(
        scenario.run(store, scenario.scripted(), FakeEmbedder(), day(number), "the last worker")
    )


def die(address: Address, faults: Sequence[Fault], number: int, deep: bool) -> None:
    """Live through a day in a process of its own, which a fault ends. Any other end than the
    fault's shows in the exit code."""
    live_through(address, faults, number=number, deep=deep)
    raise SystemExit(KILLED + 1)
