"""Waiting for what is built elsewhere: index builds, and documents that become searchable."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from edenmem.models.indexes import IndexState

#: Seconds between looks: short at first, for small indexes, then longer.
_FIRST, _LONGEST, _GROWTH = 0.2, 5.0, 1.5

Clock = Callable[[], float]
Sleep = Callable[[float], None]


def poll(
    done: Callable[[], bool],
    *,
    timeout: float,
    clock: Clock = time.monotonic,
    sleep: Sleep = time.sleep,
) -> bool:
    """Look until ``done``, for ``timeout`` seconds; whether it was. It is looked once at least."""
    deadline = clock() + timeout
    pause = _FIRST
    while not done():
        left = deadline - clock()
        if left <= 0:
            return False
        sleep(min(pause, left))
        pause = min(pause * _GROWTH, _LONGEST)
    return True


def wait_for_indexes(
    look: Callable[[], Sequence[IndexState]],
    *,
    timeout: float,
    tell: Callable[[Sequence[IndexState]], None] = lambda states: None,
    clock: Clock = time.monotonic,
    sleep: Sleep = time.sleep,
) -> Sequence[IndexState]:
    """Look until none is building any more, or the time is over; how they were at the last look.

    An index that failed, or turned out otherwise than wanted, is waited for no longer.
    """
    seen: Sequence[IndexState] = ()

    def settled() -> bool:
        nonlocal seen
        seen = look()
        tell(seen)
        return all(state.status != "building" for state in seen)

    poll(settled, timeout=timeout, clock=clock, sleep=sleep)
    return seen
