"""The server process."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from edenmem.errors import UnavailableError
from edenmem.server.proxy.upstream import StreamBroken

#: New objects between two searches for garbage: Python's usual number.
_GARBAGE_AFTER = 700
#: Time that an idle connection stays open: longer than clients keep one, so that none is closed
#: while a client sends its next request.
_KEEP_ALIVE_SECONDS = 20


def open_socket(host: str, port: int) -> socket.socket:
    """Listen on an address.

    Raises:
        UnavailableError: the address is invalid or in use.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # With the protocol named, asyncio sets TCP_NODELAY on each connection; without it, small
        # writes wait 40 ms for the acknowledgment of the ones before.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        raise UnavailableError(
            f"cannot listen on {host} port {port}: {error.strerror}",
            hint="use another address with --host and --port",
        ) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the base URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def make_server(
    app: ASGIApp, *, shutdown_seconds: int, ready: Callable[[], None]
) -> uvicorn.Server:
    """Return a server for `serve`."""
    for name in ("uvicorn.error", "mcp.server.streamable_http"):
        logging.getLogger(name).addFilter(_is_fault)
    # Searches compute in threads, and the event loop waits for them several times in each request,
    # also in one that it refuses. Python's usual interval is 5 ms.
    sys.setswitchinterval(0.0001)
    # A short command rarely searches for garbage. A server must: an interrupted stream may leave
    # its body of many megabytes in a cycle of few objects.
    gc.set_threshold(_GARBAGE_AFTER)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        ws="none",
        http="h11",
        timeout_graceful_shutdown=shutdown_seconds,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
    return _Server(config, ready)


async def serve(
    app: ASGIApp, listener: socket.socket, *, shutdown_seconds: int, ready: Callable[[], None]
) -> None:
    """Serve until SIGTERM or SIGINT, then finish the answers in progress.

    Args:
        app: The application.
        listener: A listening socket.
        shutdown_seconds: Time limit for answers in progress.
        ready: Called once the server accepts requests.
    """

    def begin() -> None:
        # What is loaded stays to the end; looking for garbage in it took 40 ms, in some chats.
        gc.collect()
        gc.freeze()
        ready()

    server = make_server(app, shutdown_seconds=shutdown_seconds, ready=begin)
    with _quiet_signals():
        await server.serve(sockets=[listener])


def _is_fault(record: logging.LogRecord) -> bool:
    """Return whether to log a record.

    Clients see upstreams that disconnect, and requests that a stop of the server cancels. A client
    may disconnect at any time.
    """
    seen = StreamBroken | asyncio.CancelledError | ClientDisconnect
    return not (record.exc_info and isinstance(record.exc_info[1], seen))


class _Server(uvicorn.Server):
    """A server that reports when it accepts requests."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start accepting requests."""
        await super().startup(sockets)
        if self.started:
            self._ready()


@contextmanager
def _quiet_signals() -> Iterator[None]:
    """Ignore the signals that uvicorn raises again after the server has stopped."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
