"""The one lease that moving data needs: taken, kept alive in the background, and let go of."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from edenmem.errors import ConflictError, EdenmemError, StoreError
from edenmem.models.changes import Actor
from edenmem.models.ids import new_id
from edenmem.store.protocol.store import Store

#: Whoever has not shown for so long that they live may be succeeded.
LEASE = timedelta(minutes=1)


@contextmanager
def held(store: Store, actor: Actor, clock: Callable[[], datetime]) -> Iterator[None]:
    """Keep other migrations out while the body is at work. Blocks.

    Raises:
        ConflictError: another one is at work.
        StoreError: the database cannot be used.
    """
    holder = f"{actor.name} on {actor.host}, process {os.getpid()} ({new_id()[-6:]})"

    def take() -> None:
        now = clock()
        other = store.take_migration_lease(holder, now=now, until=now + LEASE)
        if other is not None:
            raise ConflictError(
                f"another migration is at work on this store: {other}",
                hint=f"wait for it; one that died is succeeded after {LEASE.seconds} s",
            )

    over = threading.Event()

    def keep() -> None:
        while not over.wait(LEASE.total_seconds() / 4):
            # Whoever takes over applies the same changes, so a renewal that fails does no harm.
            with suppress(EdenmemError):
                take()

    take()
    keeper = threading.Thread(target=keep, name="edenmem-migration-lease", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()
        with suppress(StoreError):  # it ends by itself
            store.end_migration_lease(holder)
