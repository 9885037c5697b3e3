"""The server process."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

from edenmem.errors import UnavailableError
from edenmem.server.proxy.upstream import StreamBroken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp


#: New objects between two searches for garbage: Python's usual number.
_GARBAGE_AFTER = 700


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
        http=_Connection,
        timeout_graceful_shutdown=shutdown_seconds,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
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


#: Time limit for the headers of a request, from its first byte or the start of the connection.
HEADER_SECONDS = 10.0


def most_connections() -> int:
    """Return the maximum number of connections: half of the file descriptors of this process.

    The store and the upstream need the rest.
    """
    try:
        import resource
    except ImportError:  # pragma: no cover - Windows has no such limit
        return 4096
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 4096 if most == resource.RLIM_INFINITY else max(16, most // 2)


#: Time that an idle connection stays open: longer than clients keep one, so that none is closed
#: while a client sends its next request.
KEEP_ALIVE_SECONDS = 20
#: A client must read `LEAST_READ` bytes in this time, or the rest of what was sent.
READ_SECONDS = 60.0
LEAST_READ = 64 * 1024


class _Connection(H11Protocol):
    """One of a limited number of connections, with time limits for its client.

    The client must send the headers of a request in time, and read what is sent to it.
    """

    _deadline: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or close it if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > most_connections():
            transport.abort()
            return
        # Any unsent byte pauses writing, and so starts the time limit for the reader.
        transport.set_write_buffer_limits(high=0)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Handle received data."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limits."""
        super().connection_lost(exc)
        for timer in (self._deadline, self._reading):
            if timer is not None:
                timer.cancel()

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._watch_reading()

    def resume_writing(self) -> None:
        """Send again: the client has read everything."""
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _watch_reading(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._reading = self.loop.call_later(READ_SECONDS, self._check_reading, unread)

    def _check_reading(self, unread: int) -> None:
        if unread - self.transport.get_write_buffer_size() < LEAST_READ:
            self.transport.abort()
        else:
            self._watch_reading()

    def _has_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch(self) -> None:
        if self._has_request():
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._end)

    def _end(self) -> None:
        self._deadline = None
        if not self._has_request():
            self.transport.abort()


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
