"""Limits: sizes, times, numbers, and a day's use."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from edenmem.engine.runtime.concurrency import THREADS
from edenmem.server.access import Caller
from edenmem.server.limits import DailyLimit, Limits, inflate
from edenmem.server.problems import Refused
from edenmem.server.state import Metrics
from edenmem.settings.schema import ServerSettings
from edenmem.store.sqlite import SqliteStore
from tests.server.town import LENA, Town

pytestmark = pytest.mark.slow

MEGABYTE = 1_000_000


async def _chunks(size: int, number: int) -> AsyncIterator[bytes]:
    for _ in range(number):
        yield b"x" * size


async def test_a_large_body_is_refused_before_or_while_it_comes(town_store: SqliteStore) -> None:
    town = Town(town_store, max_body_mb=1)
    async with town.client("lena") as client:
        announced = await client.post("/api/facts", content=b"x" * (MEGABYTE + 1))
        chunked = await client.post("/api/facts", content=_chunks(MEGABYTE // 4, 5))
        fits = await client.post("/api/facts", content=_chunks(MEGABYTE // 4, 4))
        lying = await client.post(
            "/api/facts", content=_chunks(MEGABYTE, 2), headers={"Content-Length": "5"}
        )
        told = (await client.get("/metrics")).text
    for answer in (announced, chunked, lying):
        assert (answer.status_code, answer.json()["status"]) == (413, 413)
        assert answer.headers["connection"] == "close"
    assert fits.status_code == 415
    assert 'edenmem_requests_refused_total{limit="body"} 3.0' in told


async def _ask(app: Limits, path: str = "/api/x", receive: Receive | None = None) -> httpx.Response:
    """Ask an application, with a body that comes as ``receive`` says."""
    scope: Scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    sent: list[Message] = []

    async def whole() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def keep(message: Message) -> None:
        sent.append(message)

    await app(scope, receive or whole, keep)
    headers = [(name.decode(), value.decode()) for name, value in sent[0]["headers"]]
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return httpx.Response(sent[0]["status"], headers=headers, content=content)


async def _never(*_: object) -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_body_that_does_not_arrive_is_not_waited_for() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()

    metrics = Metrics()
    limits = Limits(app, ServerSettings(request_seconds=0.01), metrics)
    with pytest.raises(Refused) as refused:  # the application's handlers answer it
        await _ask(limits, "/v1/chat/completions", _never)
    assert refused.value.status_code == 408
    assert b'limit="slow body"} 1.0' in metrics.expose()


async def test_an_answer_takes_no_longer_than_it_may() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await _never()

    limits = Limits(app, ServerSettings(request_seconds=0.01), Metrics())
    answer = await _ask(limits)
    assert answer.status_code == 504
    assert b"the change may have been made: see GET /api/log" in answer.content


async def test_a_stream_that_has_begun_has_all_the_time() -> None:
    seconds = 0.01

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def parts() -> AsyncIterator[bytes]:
            yield b"begun, "
            await asyncio.sleep(3 * seconds)  # longer than the limit, whatever the load
            yield b"done"

        await StreamingResponse(parts())(scope, receive, send)

    limits = Limits(app, ServerSettings(request_seconds=seconds), Metrics())
    answer = await _ask(limits, receive=_BodyThen().__call__)
    assert (answer.status_code, answer.text) == (200, "begun, done")


class _BodyThen:
    """An empty body, then a client that stays."""

    def __init__(self) -> None:
        self._is_sent = False

    async def __call__(self) -> Message:
        if self._is_sent:
            return await _never()
        self._is_sent = True
        return {"type": "http.request", "body": b"", "more_body": False}


def test_a_compressed_body_grows_no_more_than_text_does() -> None:
    text = b"".join(b'{"role": "user", "content": "%d"}' % number for number in range(60_000))
    assert inflate(gzip.compress(text), "gzip", 32) == text
    for bomb, limit in ((gzip.compress(b" " * 5_000_000), 32), (gzip.compress(text), 1)):
        with pytest.raises(Refused) as refused:
            inflate(bomb, "gzip", limit)
        assert refused.value.status_code == 413
    with pytest.raises(Refused, match="not gzip"):
        inflate(b"plain", "gzip", 32)
    for size in (1, 8, 1000):  # cut in the data, in the checksum
        with pytest.raises(Refused, match="truncated") as refused:
            inflate(gzip.compress(text)[:-size], "gzip", 32)
        assert refused.value.status_code == 400
    with pytest.raises(Refused, match="after its end"):
        inflate(gzip.compress(text) + b"more", "gzip", 32)


async def test_more_requests_than_there_may_be_are_told_to_come_again() -> None:
    held, free = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        held.set()
        await free.wait()
        await PlainTextResponse("done")(scope, receive, send)

    limits = Limits(app, ServerSettings(max_requests=1), Metrics())
    first = asyncio.create_task(_ask(limits))
    await held.wait()
    refused = await _ask(limits, "/v1/chat/completions")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.json()["error"]["type"] == "server_error"
    health = asyncio.create_task(_ask(limits, "/health"))  # it is answered under any load
    free.set()
    assert (await first).status_code == (await health).status_code == 200
    assert (await _ask(limits)).status_code == 200


async def test_what_would_wait_too_long_is_refused_and_counted_under_its_route(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = 0.0
    monkeypatch.setattr("edenmem.server.limits.THREADS", 0)
    monkeypatch.setattr("edenmem.server.limits.expected_wait", lambda: wait)
    async with town.client("mira") as client:
        assert (await client.get("/api/facts")).status_code == 200
        wait = 1.1
        listed = await client.get("/api/facts")
        chatted = await client.post("/v1/chat/completions", json={})
        told = (await client.get("/metrics")).text
    for answer in (listed, chatted):
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    for method, path in (("GET", "/api/facts"), ("POST", "/v1/chat/completions")):
        assert f'method="{method}",route="{path}",status="503"}} 1.0' in told


async def test_the_pace_of_the_event_loop_counts_only_among_many_requests() -> None:
    free = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await free.wait()
        await PlainTextResponse("done")(scope, receive, send)

    limits = Limits(app, ServerSettings(), Metrics())
    for _ in range(100):
        limits.note_pass(0.1)
    few = [asyncio.create_task(_ask(limits)) for _ in range(THREADS)]
    await asyncio.sleep(0)
    assert (await _ask(limits)).status_code == 503
    for _ in range(100):
        limits.note_pass(0.001)
    few.append(asyncio.create_task(_ask(limits)))
    await asyncio.sleep(0)
    free.set()
    assert {answer.status_code for answer in await asyncio.gather(*few)} == {200}


async def test_who_used_up_the_day_is_refused_until_the_next(town_store: SqliteStore) -> None:
    caller = Caller(name="phone", token_id="1" * 24)
    state = Town(town_store, daily_tokens=100).app.state.edenmem

    def limit(user_id: str | None = LENA) -> DailyLimit:
        return DailyLimit(state, caller, user_id)

    first, second = limit(), limit()
    await first.reserve(500)
    with pytest.raises(Refused):
        await second.reserve(1)
    await first.count(99)
    await second.reserve(1)
    with pytest.raises(Refused) as refused:
        await limit().reserve(1)
    assert refused.value.status_code == 429
    assert refused.value.headers is not None
    assert 1 <= int(refused.value.headers["Retry-After"]) <= 86_400
    await limit(None).reserve(1)  # by the token, where there is no user
    with town_store.connections.reading() as connection:
        rows = connection.execute("SELECT holder, tokens FROM daily_use").fetchall()
    assert sorted(row[1] for row in rows) == [1, 100]
    assert LENA not in str(rows)


async def test_without_a_limit_nothing_is_counted(town: Town) -> None:
    limit = DailyLimit(town.app.state.edenmem, Caller(name="local"), LENA)
    await limit.reserve(10**9)
    await limit.count(10**9)
    with town.store.connections.reading() as connection:  # type: ignore[attr-defined]
        assert connection.execute("SELECT count(*) FROM daily_use").fetchone() == (0,)
