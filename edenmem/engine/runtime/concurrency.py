"""Call blocking store methods from coroutines.

Loading `asyncio` takes longer than most commands, so `run` starts without an event loop, and store
calls run in place. Code that requires an event loop awaits `demand_loop` first.
"""

from __future__ import annotations

import contextvars
import functools
import os
import sys
import types
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor


T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, with an event loop only after its first `demand_loop`.

    Before this, the coroutine may await only functions of this module.
    """
    done = _start(main)
    if done is not None:
        return done[0]
    import asyncio

    async def resume() -> T:
        return await _delegate(main)

    return asyncio.run(resume())


async def run_in_thread(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in one thread of the shared pool up to its first `demand_loop`.

    The rest runs in the caller's event loop. A search makes many short store calls, and a change of
    threads for each costs more than most of them.
    """
    if not _has_loop():
        return await main
    try:
        done = await in_thread(_start, main)
        return done[0] if done is not None else await _delegate(main)
    finally:
        main.close()


def _start(main: Coroutine[Any, Any, T]) -> tuple[T] | None:
    """Run a coroutine up to its first `demand_loop`; return its result if it has ended."""
    try:
        main.send(None)
    except StopIteration as done:
        return (done.value,)
    return None


@types.coroutine
def _delegate(main: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    result: T = yield from main  # a suspended coroutine cannot be awaited again
    return result


async def demand_loop() -> None:
    """Run the rest of the coroutine in an event loop."""
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


async def gather_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all results in order; after a failure, finish the others, then raise the first."""
    import asyncio

    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


async def gather_or_cancel(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all results in order, or cancel the others on the first error.

    The error is raised after the others have ended, and not as a group (unlike
    `asyncio.TaskGroup`). Without an event loop the coroutines run one after another.
    """
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


#: Concurrent store calls. More gain little: SQLite has one writer, and each thread needs a
#: connection.
THREADS = 8

_pool: ThreadPoolExecutor | None = None


def _executor() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        from concurrent.futures import ThreadPoolExecutor

        _prepare_types()
        _pool = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="edenmem")
    return _pool


def _prepare_types() -> None:
    """Prepare the types that several threads decode.

    msgspec describes a type when it is first decoded. If two threads do so at once, one reads an
    unfinished description, and the process crashes.
    """
    import msgspec

    from edenmem.models.changes import ChangeSet
    from edenmem.models.formation import CallUsage, Decision
    from edenmem.models.host import ToolCall
    from edenmem.models.memory import Consolidation, Policy
    from edenmem.models.migration import MigrationRun

    for kind in (CallUsage, ChangeSet, Consolidation, Decision, MigrationRun, Policy, ToolCall):
        msgspec.json.Decoder(kind)


def _forget_pool() -> None:
    """Drop the pool in a forked child, which has none of its threads."""
    global _pool
    _pool = None


os.register_at_fork(after_in_child=_forget_pool)


async def in_thread(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking call in a thread of the shared pool, with the caller's context variables.

    If the task is cancelled, a queued call is dropped, and `asyncio.CancelledError` is raised only
    after a running call has ended, so that cleanup code sees all its writes. Without an event loop
    the call runs in place.
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
    """Wait until ``future`` is done, despite cancellations, and ignore its result."""
    import asyncio

    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue  # the caller raises the first cancellation after the call has ended
    if not future.cancelled():
        future.exception()  # mark as retrieved; the caller raises the cancellation instead
