"""The chat proxy beside its upstream called directly: first token, many streams, memory."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from tests.benchmarks.data import Question, questions, user_id
from tests.benchmarks.measure import Bench, Row, Target, median, p95

_DIRECT = "the upstream called directly"
#: What chats went on without, and how many of them.
_left_out: Counter[str] = Counter()
_ROOT = Path(__file__).parents[2]


def measure(bench: Bench) -> list[Row]:
    """On a copy of the world, since chats are stored."""
    asked = questions(sum(_counts(bench)), bench.size)
    with ExitStack() as stack:
        file = bench.folder / "proxied.db"
        shutil.copy(bench.world.edenmem, file)
        upstream, _ = stack.enter_context(_running("upstream"))
        server, pid = stack.enter_context(
            _running("server", str(file), upstream, str(bench.size), str(len(asked)))
        )
        return asyncio.run(_measure(bench, upstream, server, pid, asked))


def _counts(bench: Bench) -> tuple[int, int, int]:
    """How many questions are asked first, one after another, and at once.

    None is asked twice before memory is measured, because the server keeps what it looked up for
    the last ones.
    """
    return max(5, bench.times(75)), bench.times(300), bench.times(200)


async def _measure(
    bench: Bench, upstream: str, server: str, pid: int, asked: list[Question]
) -> list[Row]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=120, trust_env=False) as client:
        warm, single, streams = _counts(bench)
        for question in asked[:warm]:  # as for a warm search
            await _stream(client, server, question.text, "warm")
        _left_out.clear()  # the first search reads the vectors
        direct: list[float] = []
        through: list[float] = []
        plain: list[float] = []
        for number, question in enumerate(asked[warm : warm + single]):
            direct.append(await _stream(client, upstream, question.text, None))
            through.append(await _stream(client, server, question.text, f"first-{number}"))
            plain.append(await _stream(client, server, question.text, f"no-{number}", top_k=0))
        name = f"chat through the proxy, {bench.size:,} facts"
        added = [one - other for one, other in zip(through, direct, strict=True)]
        context = [one - other for one, other in zip(plain, direct, strict=True)]
        rows = [
            Row(
                f"{name}: added before the first token, with search",
                "ms p95",
                max(p95(added), 0.01),
                _DIRECT,
                p95(direct),
                Target("figure", 25),
            ),
            Row(
                f"{name}: the same, median", "ms", max(median(added), 0.01), _DIRECT, median(direct)
            ),
            Row(
                f"{name}: the same, context alone",
                "ms p95",
                max(p95(context), 0.01),
                _DIRECT,
                p95(direct),
            ),
        ]
        seconds: dict[str, float] = {}
        for place, url in (("direct", upstream), ("proxy", server)):
            begun = time.perf_counter()
            await asyncio.gather(
                *(
                    _stream(
                        client,
                        url,
                        asked[warm + single + each].text,
                        f"at-once-{each}" if url == server else None,
                    )
                    for each in range(streams)
                )
            )
            seconds[place] = time.perf_counter() - begun
        rows.append(
            Row(
                f"{streams} streams at once, to the end of all",
                "s",
                seconds["proxy"],
                _DIRECT,
                seconds["direct"],
            )
        )
        rows.append(await _memory(bench, client, server, pid, asked))
    for what, count in _left_out.items():
        bench.note(f"{count} chats went on without memory: {what}")
    return rows


async def _memory(
    bench: Bench, client: httpx.AsyncClient, server: str, pid: int, asked: list[Question]
) -> Row:
    """How much the server grows from a tenth of the requests to all of them."""
    count = bench.times(10_000)

    async def some(first: int, last: int) -> None:
        for begin in range(first, last, 20):
            await asyncio.gather(
                *(
                    _stream(client, server, asked[each % len(asked)].text, f"many-{each}")
                    for each in range(begin, min(last, begin + 20))
                )
            )

    await some(0, count // 10)
    early = _resident(pid)
    await some(count // 10, count)
    late = _resident(pid)
    return Row(
        f"growth of the server's memory over {count:,} chats",
        "MiB",
        max(late - early, 0.0),
        "its memory after a tenth of them",
        early,
        Target("ratio", 0.1),
    )


async def _stream(
    client: httpx.AsyncClient, url: str, text: str, session: str | None, top_k: int | None = None
) -> float:
    """Read a stream to its end; the milliseconds to its first bytes."""
    body = {"model": "plain", "stream": True, "messages": [{"role": "user", "content": text}]}
    if session is not None:
        body |= {"memory_id": session, "user": user_id(1)}
    if top_k is not None:
        body["memory_top_k"] = top_k
    begun, first = time.perf_counter(), 0.0
    async with client.stream("POST", f"{url}/chat/completions", json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        _left_out.update(answer.headers.get_list("x-edenmem-left-out"))
        data = b""
        async for part in answer.aiter_raw():
            first = first or time.perf_counter()
            data += part
    assert data.endswith(b"data: [DONE]\n\n")
    return (first - begun) * 1000


def _resident(pid: int) -> float:
    """Return the memory of a process in MiB, without pages of the mapped database file."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


@contextmanager
def _running(*arguments: str) -> Iterator[tuple[str, int]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.proxying_process", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()
