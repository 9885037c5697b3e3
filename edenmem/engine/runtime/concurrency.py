"""The bridge from the event loop to a store, whose methods block.

`asyncio` takes longer to load than most commands take, so `run` starts without an event loop: store
calls then run in place, one after another. What cannot do without a loop awaits `demand_loop`.
"""

from __future__ import annotations

import contextvars
import functools
import os
import sys
import types
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor


T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, with an event loop only from its first `demand_loop` on.

    Meant for work that awaits nothing but this module's functions before it demands a loop.
    """
    try:
        main.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    import asyncio

    return asyncio.run(_resume(main))


async def _resume(main: Coroutine[Any, Any, T]) -> T:
    return await _delegate(main)


@types.coroutine
def _delegate(main: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    result: T = yield from main  # a coroutine that is suspended cannot be awaited once more
    return result


async def demand_loop() -> None:
    """Make sure that the rest of the coroutine runs in an event loop."""
    if not _has_loop():
        await _suspend()


@types.coroutine
def _suspend() -> Generator[None, None, None]:
    yield


def _has_loop() -> bool:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def gather_or_cancel(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All results, in order. The first failure stops the others, waits for them, and is raised
    as it is (not in a group, as `asyncio.TaskGroup` would). Without a loop, one after another."""
    if not _has_loop():
        return await _in_turn(work)
    import asyncio

    tasks = [asyncio.create_task(each) for each in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _in_turn(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    try:
        return [await each for each in work]
    finally:
        for each in work:
            each.close()


P = ParamSpec("P")


#: Store calls at once. A store gains little from more: SQLite has one writer, and each thread
#: costs a connection.
THREADS = 8

_pool: ThreadPoolExecutor | None = None


def _executor() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        from concurrent.futures import ThreadPoolExecutor

        _pool = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="edenmem")
    return _pool


def _forget_pool() -> None:
    """A forked child has the pool but none of its threads: calls would wait for ever."""
    global _pool
    _pool = None


os.register_at_fork(after_in_child=_forget_pool)


async def in_thread(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking call in a thread of the shared pool, in the caller's context variables.

    A call that has begun is always waited for, also if the awaiting task is cancelled meanwhile:
    then `asyncio.CancelledError` is raised after the call has ended, so that no write of an
    abandoned task happens behind the back of whoever cleans up after it. A call that is still in
    the queue when its task is cancelled never begins. Without an event loop it runs in place.
    """
    if not _has_loop():
        return fn(*args, **kwargs)
    import asyncio

    context = contextvars.copy_context()
    call = _executor().submit(context.run, functools.partial(fn, *args, **kwargs))
    waiting = asyncio.wrap_future(call)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        if not call.cancel():
            await _wait_until_done(waiting)
        raise


async def _wait_until_done(future: asyncio.Future[T]) -> None:
    """Wait until ``future`` is done, whatever it ends with and however often one is cancelled."""
    import asyncio

    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue  # the first cancellation is raised by the caller when the call has ended
    if not future.cancelled():
        future.exception()  # seen: the cancellation is what the caller is told of
