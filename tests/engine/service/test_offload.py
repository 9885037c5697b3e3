"""Store calls in threads."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading

import pytest

from edenmem.engine.runtime import concurrency as offload
from edenmem.engine.runtime.concurrency import (
    demand_loop,
    gather_or_cancel,
    in_loop,
    in_thread,
    in_thread_to_the_end,
    run,
    run_in_turns,
)

who = contextvars.ContextVar("who", default="nobody")


async def test_results_arguments_errors_and_context_are_passed() -> None:
    who.set("anna")

    def call(a: int, *, b: int) -> tuple[int, str, bool]:
        return a + b, who.get(), threading.current_thread() is threading.main_thread()

    assert await in_thread(call, 1, b=2) == (3, "anna", False)
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 / 0)


_DECODES_AT_ONCE = """
import asyncio, sys, threading
import msgspec
from edenmem.engine.runtime.concurrency import THREADS, in_thread
from edenmem.models.changes import ChangeSet
from edenmem.models.ids import utc_now

sys.setswitchinterval(1e-6)
ready = threading.Barrier(THREADS)
actor = {"name": "anna", "host": "here", "command": "form"}
packed = msgspec.msgpack.encode({"actor": actor, "at": utc_now(), "changes": []})

def decode():
    ready.wait()
    msgspec.msgpack.decode(packed, type=ChangeSet)

async def main():
    await asyncio.gather(*(in_thread(decode) for _ in range(THREADS)))

asyncio.run(main())
"""


@pytest.mark.slow
def test_threads_may_decode_a_type_for_the_first_time_at_once() -> None:
    """FAILURES 90: beside another cold run, a cold run ended with a segmentation fault."""
    for _ in range(4):
        subprocess.run([sys.executable, "-c", _DECODES_AT_ONCE], check=True)


async def test_a_cancelled_task_waits_for_its_call() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def write() -> None:
        begun.set()
        go_on.wait(60)
        ended.set()

    task = asyncio.create_task(in_thread(write))
    await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # a second cancellation
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_the_error_of_a_call_whose_task_was_cancelled_is_not_reported_as_lost() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def fail() -> None:
        begun.set()
        go_on.wait(60)
        raise RuntimeError("nobody waits for this")

    task = asyncio.create_task(in_thread(fail))
    await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_threads_are_bounded_and_a_queued_call_of_a_cancelled_task_never_begins() -> None:
    busy, most, go_on = 0, 0, threading.Event()
    lock, all_busy = threading.Lock(), threading.Barrier(offload.THREADS + 1)

    def block() -> None:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        all_busy.wait(60)
        go_on.wait(60)
        with lock:
            busy -= 1

    blockers = [asyncio.create_task(in_thread(block)) for _ in range(offload.THREADS)]
    await asyncio.sleep(0)
    calls: list[str] = []
    queued = asyncio.create_task(in_thread(calls.append, "begun"))
    await asyncio.sleep(0)
    queued.cancel()
    with pytest.raises(asyncio.CancelledError):
        await queued
    await asyncio.get_running_loop().run_in_executor(None, all_busy.wait, 60)
    go_on.set()
    await asyncio.gather(*blockers)
    await in_thread(calls.append, "after")
    assert calls == ["after"]
    assert most == offload.THREADS


def test_the_wait_for_a_thread_is_the_queue_at_the_recent_pace() -> None:
    pool, go_on = offload.Pool(2), threading.Event()
    for _ in range(100):
        pool.note(0.5)
    calls = [pool.submit(go_on.wait) for _ in range(2)]
    assert pool.wait == 0
    calls += [pool.submit(go_on.wait) for _ in range(3)]
    assert pool.wait == pytest.approx(3 * 0.5 / 2, rel=0.01)
    assert calls[-1].cancel()
    assert pool.wait == pytest.approx(2 * 0.5 / 2, rel=0.01)
    go_on.set()
    assert all(call.result() for call in calls[:-1])
    assert pool.wait == 0


def test_work_that_needs_no_loop_runs_without_one_and_in_order() -> None:
    seen: list[str] = []

    def note(what: str) -> str:
        seen.append(what)
        assert threading.current_thread() is threading.main_thread()
        return what

    async def main() -> list[str]:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return await gather_or_cancel([in_thread(note, "a"), in_thread(note, "b")])

    assert run(main()) == seen == ["a", "b"]


def test_work_continues_in_a_loop_when_it_demands_one() -> None:
    async def embed() -> str:
        await demand_loop()
        await asyncio.sleep(0)
        return "vector"

    async def main() -> tuple[list[str], bool]:
        found = await gather_or_cancel([in_thread(lambda: "words"), embed()])
        return found, await in_thread(lambda: threading.current_thread() is threading.main_thread())

    assert run(main()) == (["words", "vector"], False)


@pytest.mark.parametrize("with_loop", [False, True])
def test_the_first_failure_of_work_without_a_loop_closes_the_rest(with_loop: bool) -> None:
    async def fail() -> None:
        if with_loop:
            await demand_loop()
        raise ZeroDivisionError

    async def main() -> None:
        await gather_or_cancel([fail(), in_thread(lambda: None)])

    with pytest.raises(ZeroDivisionError):  # a coroutine that is never awaited warns
        run(main())


async def test_a_call_that_cleans_up_runs_even_if_it_is_cancelled_in_the_queue() -> None:
    go_on, seen = threading.Event(), list[str]()
    others = [asyncio.create_task(in_thread(go_on.wait, 60)) for _ in range(offload.THREADS)]
    await asyncio.sleep(0)
    task = asyncio.create_task(in_thread_to_the_end(seen.append, "given back"))
    for _ in range(2):
        await asyncio.sleep(0)
        task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["given back"]
    await asyncio.gather(*others)


async def test_a_coroutine_takes_turns_in_a_thread_and_in_the_loop() -> None:
    def here() -> int:
        return threading.get_ident()

    async def main() -> tuple[set[int], int, set[int], str]:
        before = {here(), await in_thread(here), *await gather_or_cancel([in_thread(here)])}
        token = who.set("anna")
        await demand_loop()
        await asyncio.sleep(0)
        in_loop, name = here(), who.get()
        again = {await in_thread(here), here(), await in_thread(here)}
        who.reset(token)  # all turns have one context
        return before, in_loop, again, name

    before, in_loop, again, name = await run_in_turns(main())
    assert in_loop == here()
    assert len(before) == len(again) == 1
    assert here() not in before | again
    assert name == "anna"


async def test_a_provider_stays_in_the_loop_after_a_store_call() -> None:
    async def provide(text: str) -> str:
        await in_thread(lambda: None)
        asyncio.get_running_loop()
        return text

    async def main() -> str:
        return await in_thread(str) + await in_loop(provide, "answer")

    assert await run_in_turns(main()) == "answer"


async def test_an_error_in_any_turn_is_raised_where_the_coroutine_waits() -> None:
    seen = list[str]()

    async def main() -> str:
        await demand_loop()
        try:
            async with asyncio.timeout(0):
                await asyncio.sleep(60)
        except TimeoutError:
            seen.append("in the loop")
        try:
            await in_thread(lambda: 1 / 0)
        except ZeroDivisionError:
            seen.append("in a thread")
        return await in_thread(lambda: "done")

    assert await run_in_turns(main()) == "done"
    assert seen == ["in the loop", "in a thread"]


async def test_a_cancelled_coroutine_in_a_thread_ends_its_call_and_goes_no_further() -> None:
    begun, go_on, seen = threading.Event(), threading.Event(), list[str]()

    def write() -> None:
        begun.set()
        go_on.wait(60)
        seen.append("written")

    async def main() -> None:
        try:
            await in_thread(write)
            await demand_loop()
            seen.append("too far")
        finally:
            await in_thread(seen.append, "cleaned up")

    task = asyncio.create_task(run_in_turns(main()))
    await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["written", "cleaned up"]
