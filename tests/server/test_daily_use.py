"""The limit of a day, for chats that pass through the proxy."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest

from edenmem.errors import StoreUnreachable
from edenmem.server.limits import DailyLimit
from tests.server.door import Door, serving, turns, with_server
from tests.support.waiting import until

pytestmark = pytest.mark.slow

LIMIT = 500


@pytest.fixture
def limited(door: Door) -> Iterator[Door]:
    """A second server on the same store; what was used before is forgotten."""
    with door.store.connections.writing() as connection:  # type: ignore[attr-defined]
        connection.execute("DELETE FROM daily_use")
    settings = with_server(door.settings, daily_tokens=LIMIT)
    with serving(door.service, settings, agent=door.agent) as url:
        yield replace(door, url=f"{url}/v1")


def _post(door: Door, body: bytes, **headers: str) -> int:
    with httpx.Client(trust_env=False) as client:
        url = f"{door.url}/chat/completions"
        return client.post(url, content=body, headers=headers, timeout=30).status_code


def _used(door: Door) -> list[int]:
    with door.store.connections.reading() as connection:  # type: ignore[attr-defined]
        return [row[0] for row in connection.execute("SELECT tokens FROM daily_use")]


def test_an_estimate_gives_way_to_what_was_used(limited: Door) -> None:
    for fields in ({}, {"stream": True}, {"max_tokens": 10_000}):
        assert limited.chat("Hello.", user="anna", **fields).status_code == 200
    assert limited.chat("Hello.", user="anna", model="limited").status_code == 429
    assert limited.chat("Hello.", user="anna", model="reset").status_code == 502
    assert _used(limited) == [15]  # five each, and none where the upstream refused


def test_requests_at_the_same_time_count_each_other(limited: Door) -> None:
    def ask(number: int) -> int:
        return limited.chat("At once.", user="anna", model="gated", stream=True).status_code

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(ask, 0)
        assert limited.upstream.reached.wait(10)
        others = list(pool.map(ask, range(3)))
        limited.upstream.gate.set()
        assert first.result() == 200
    assert others == [429] * 3
    assert len(limited.upstream.seen) == 1


def test_who_hangs_up_has_used_the_estimate(limited: Door) -> None:
    with limited.asking("Bye.", model="stall", user="anna"):
        assert limited.upstream.reached.wait(30)
    assert limited.upstream.hung_up.wait(30)
    assert limited.chat("Again.", user="anna").status_code == 429


def test_who_hangs_up_before_the_upstream_is_asked_has_used_nothing(
    limited: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, made, left = threading.Event(), DailyLimit.reserve, threading.Event()

    async def wait(limit: DailyLimit, tokens: int) -> None:
        await made(limit, tokens)
        waiting.set()
        try:
            await asyncio.sleep(30)
        finally:
            left.set()

    monkeypatch.setattr(DailyLimit, "reserve", wait)
    with limited.asking("Never mind.", user="anna"):
        assert waiting.wait(10)
        assert _used(limited)[0] > LIMIT
    assert left.wait(10)
    until(lambda: _used(limited) == [0])
    assert not limited.upstream.seen


def test_a_check_that_fails_leaves_no_reservation(
    limited: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> None:
        raise StoreUnreachable("gone")

    monkeypatch.setattr(limited.store.tokens, "daily_use", fail)
    assert limited.chat("Hello.", user="anna").status_code == 503
    assert _used(limited) == [0]


def test_a_token_counts_for_its_user_whatever_it_sends(limited: Door) -> None:
    tokens = limited.service.tokens
    _, secret = tokens.create("annas", agents=[limited.agent.id], user_id=limited.anna.id)
    own = {"Authorization": f"Bearer {secret}"}
    plain = json.dumps({"model": "plain", "messages": turns("Hi.")}).encode()
    assert _post(limited, b"\xef\xbb\xbf" + plain, **own) == 200
    assert limited.upstream.last.body.startswith(b"{")
    _post(limited, plain.replace(b'"messages"', b'"massages"'), **own)
    assert limited.chat("Hi.", user="anna").status_code == 200
    assert _used(limited) == [10]


def test_too_many_messages_are_refused_and_deep_ones_pass(door: Door) -> None:
    many = json.dumps({"model": "plain", "messages": turns("a") * 10_001}).encode()
    assert _post(door, many) == 400
    assert not door.upstream.seen
    for depth in (300, 900, 980):
        part = b'{"type": "x", "y": ' + b"[" * depth + b"]" * depth + b"}"
        message = b'{"role": "user", "content": [' + part + b"]}"
        assert _post(door, b'{"model": "plain", "messages": [' + message + b"]}") in (400, 502)
        assert len(door.upstream.seen) == 1  # which cannot read it either
        door.upstream.seen.clear()
