"""Call blocking store methods from coroutines.

Loading `asyncio` takes longer than most commands, so `run` starts without an event loop, and store
calls run in place. Code that requires an event loop awaits `demand_loop` first.
"""

from __future__ import annotations

import contextvars
import functools
import os
import sys
import threading
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future


T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, with an event loop only after its first `demand_loop`.

    Before this, the coroutine may await only functions of this module.
    """
    context = contextvars.copy_context()  # of both parts: a span that one opens, the other closes
    done = context.run(_start, main)
    if done is not None:
        return done[0]
    import asyncio

    async def resume() -> T:
        return await _delegate(main)

    with asyncio.Runner() as runner:
        return runner.run(resume(), context=context)


async def run_in_turns(main: Coroutine[Any, Any, T], kind: _Kind = "call") -> T:
    """Run a coroutine in a thread up to its next `demand_loop`, then in the event loop, and so on.

    The next `in_thread` changes back to a thread. A search or a formation makes many short store
    calls, and a change of threads for each costs more than most of them.
    """
    if not _has_loop():
        return await main
    import asyncio
    import inspect

    context = contextvars.copy_context()  # of all turns: a span that one opens, another closes
    context.run(_driven.set, asyncio.current_task())
    done: tuple[T] | None = None
    try:
        while done is None:
            cancelled: BaseException | None = None
            try:
                done = await _call_in(kind, functools.partial(context.run, _start, main))
            except asyncio.CancelledError as error:
                if inspect.getcoroutinestate(main) == inspect.CORO_CLOSED:  # ended in its turn
                    raise
                cancelled = error
            if done is None:
                done = await _take_turn(main, context, cancelled)
        return done[0]
    finally:
        main.close()


#: The task of `run_in_turns`. Tasks that its coroutine starts are others, and take no turns.
_driven: contextvars.ContextVar[asyncio.Task[Any] | None] = contextvars.ContextVar(
    "driven", default=None
)
#: What a coroutine yields in the event loop to change to a thread.
_TO_THREAD = object()


@types.coroutine
def _take_turn(
    main: Coroutine[Any, Any, T], context: contextvars.Context, error: BaseException | None
) -> Generator[Any, Any, tuple[T] | None]:
    """Run a coroutine in the event loop until it changes to a thread; return its result if it ends.

    ``error`` is raised where it waits.
    """
    while True:
        try:
            if error is None:
                waits_for = context.run(main.send, None)
            else:
                waits_for = context.run(main.throw, error)
        except StopIteration as done:
            return (done.value,)
        if waits_for is _TO_THREAD:
            return None
        error = None
        try:
            yield waits_for
        except BaseException as raised:  # noqa: BLE001 - raised where the coroutine waits
            error = raised


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
    """Run the coroutine in an event loop from here on, or up to the next turn in a thread."""
    if not _has_loop():
        await _suspend()


async def in_loop(fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a provider's coroutine function, which may need the event loop at any time.

    All of it runs in the loop, also what follows a store call of its own.
    """
    await demand_loop()
    driven = _driven.set(None)
    try:
        return await fn(*args, **kwargs)
    finally:
        _driven.reset(driven)


@types.coroutine
def _suspend(reason: object = None) -> Generator[object, None, None]:
    yield reason


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
    await demand_loop()
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
        try:
            return [await each for each in work]
        finally:
            for each in work:
                each.close()
    import asyncio

    tasks = [asyncio.create_task(each) for each in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


P = ParamSpec("P")


#: Concurrent store calls. More gain little: SQLite has one writer, and each thread needs a
#: connection.
THREADS = 8
#: Concurrent searches of an embedded store. They compute, so more would only slow each other down,
#: and the event loop with them.
SEARCHES = min(4, max(2, os.cpu_count() or 1))

#: Number of calls that the average duration of a call is from, about.
_RECENT = 16

_Kind = Literal["call", "search"]


class Pool:
    """Threads for calls, with the time that the next call would wait for one."""

    def __init__(self, threads: int) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._threads = threads
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="edenmem")
        self._lock = threading.Lock()
        self._calls = 0
        self._seconds = 0.0  # recent duration of a call

    @property
    def wait(self) -> float:
        """Return the expected wait in seconds."""
        return max(0, self._calls - self._threads) * self._seconds / self._threads

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run a call in the next free thread."""
        self._count(1)
        future = self._executor.submit(self._run, call)
        future.add_done_callback(lambda _: self._count(-1))
        return future

    def note(self, seconds: float) -> None:
        """Note the duration of a call."""
        with self._lock:
            self._seconds += (seconds - self._seconds) / _RECENT

    def _run(self, call: Callable[[], T]) -> T:
        begun = perf_counter()
        try:
            return call()
        finally:
            self.note(perf_counter() - begun)

    def _count(self, step: int) -> None:
        with self._lock:
            self._calls += step


_pools: dict[_Kind, Pool] = {}


def _pool(kind: _Kind) -> Pool:
    if kind not in _pools:
        _prepare_types()
        _pools[kind] = Pool(THREADS if kind == "call" else SEARCHES)
    return _pools[kind]


def expected_wait() -> float:
    """Return how long a request with a search would wait for threads now, in seconds."""
    return sum(pool.wait for pool in list(_pools.values()))


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


# A forked child has none of the threads.
os.register_at_fork(after_in_child=_pools.clear)


async def in_thread(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking call in a thread of the shared pool, with the caller's context variables.

    If the task is cancelled, a queued call is dropped, and `asyncio.CancelledError` is raised only
    after a running call has ended, so that cleanup code sees all its writes. Without an event loop
    the call runs in place.
    """
    if _has_loop():
        import asyncio

        driven = _driven.get()
        if driven is None or driven is not asyncio.current_task():
            return await _call_in("call", functools.partial(fn, *args, **kwargs))
        await _suspend(_TO_THREAD)
    return fn(*args, **kwargs)


async def in_thread_to_the_end(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a call that cleans up in a thread, also if it is still queued at a cancellation."""
    await demand_loop()
    import asyncio

    call = asyncio.create_task(in_thread(fn, *args, **kwargs))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await _wait_until_done(call)
        raise


async def _call_in(kind: _Kind, fn: Callable[[], T]) -> T:
    """Run a blocking call in a thread; see `in_thread`."""
    import asyncio

    context = contextvars.copy_context()
    call = _pool(kind).submit(functools.partial(context.run, fn))
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
