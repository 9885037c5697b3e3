"""The process that serves the application, until it is told to stop."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from edenmem.errors import UnavailableError
from edenmem.server.proxy.upstream import StreamBroken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp


def open_socket(host: str, port: int) -> socket.socket:
    """Listen on an address.

    Raises:
        UnavailableError: the address cannot be used, such as a port that is taken.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        raise UnavailableError(
            f"cannot listen on {host} port {port}: {error.strerror}",
            hint="choose another address with --host and --port",
        ) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the address that a client calls."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def make_server(
    app: ASGIApp, *, shutdown_seconds: int, ready: Callable[[], None]
) -> uvicorn.Server:
    """Make a server; see `serve`."""
    logging.getLogger("uvicorn.error").addFilter(_is_fault)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=shutdown_seconds,
    )
    return _Server(config, ready)


async def serve(
    app: ASGIApp, listener: socket.socket, *, shutdown_seconds: int, ready: Callable[[], None]
) -> None:
    """Serve until SIGTERM or SIGINT; then finish the answers that are in progress.

    Args:
        app: The application.
        listener: A socket that listens.
        shutdown_seconds: How long answers in progress may take to finish.
        ready: Called when requests are accepted.
    """
    server = make_server(app, shutdown_seconds=shutdown_seconds, ready=ready)
    with _quiet_signals():
        await server.serve(sockets=[listener])


def _is_fault(record: logging.LogRecord) -> bool:
    """Return whether a record is worth a line: not that an upstream broke off, which the client
    sees as it is."""
    return not (record.exc_info and isinstance(record.exc_info[1], StreamBroken))


class _Server(uvicorn.Server):
    """A server that says when it accepts requests."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept requests."""
        await super().startup(sockets)
        if self.started:
            self._ready()


@contextmanager
def _quiet_signals() -> Iterator[None]:
    """Let the signals that stop the server end in an ordinary return: uvicorn raises them again
    when it has stopped."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
