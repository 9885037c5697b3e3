"""Connections: what sends no request is closed, and there are never too many."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from edenmem.engine.service import MemoryService
from edenmem.server import process
from tests.server.door import make_settings, serving
from tests.server.upstream import FakeUpstream

pytestmark = pytest.mark.slow


@pytest.fixture
def url(tmp_path: Path, upstream: FakeUpstream) -> Iterator[str]:
    settings = make_settings(tmp_path, upstream)
    service = MemoryService.without_models(settings)
    service.setup.make()
    with serving(service, settings) as address:
        yield address
    service.close_store()


def connect(url: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=20)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_who_sends_no_whole_headers_is_closed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "HEADER_SECONDS", 0.05)
    with ExitStack() as opened:
        silent, half, second = (opened.enter_context(connect(url)) for _ in range(3))
        half.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
        second.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert second.recv(65_536).startswith(b"HTTP/1.1 200")
        assert is_closed(silent)
        assert is_closed(half)
    assert httpx.get(f"{url}/health", trust_env=False).status_code == 200


def test_connections_beyond_the_limit_are_closed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as opened:
        monkeypatch.setattr(process, "most_connections", lambda: 2)
        first, other, third = (opened.enter_context(connect(url)) for _ in range(3))
        assert is_closed(third)
        for each in (first, other):
            each.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert each.recv(65_536).startswith(b"HTTP/1.1 200")


def test_a_client_that_does_not_read_is_closed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "READ_SECONDS", 0.05)
    with connect(url) as greedy:
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
        with suppress(ConnectionError):
            while True:  # until answers fill all buffers, and the server closes the connection
                greedy.sendall(request)
    assert httpx.get(f"{url}/health", trust_env=False).status_code == 200


async def test_small_writes_are_sent_at_once() -> None:
    """Without TCP_NODELAY each answer waited 40 ms for an acknowledgment."""
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            connection = transport.get_extra_info("socket")
            accepted.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            transport.close()

    listener = process.open_socket("127.0.0.1", 0)
    server = await asyncio.get_running_loop().create_server(Accepting, sock=listener)
    async with server:
        with socket.create_connection(listener.getsockname()[:2], timeout=20):
            assert await accepted
