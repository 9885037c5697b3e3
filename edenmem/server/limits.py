"""Limits on the size, number and duration of requests, the gate for callers, and daily limits."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from time import monotonic

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edenmem.engine.runtime.concurrency import THREADS, expected_wait, in_thread
from edenmem.errors import EdenmemError
from edenmem.models.access import DailyUse
from edenmem.models.ids import utc_now
from edenmem.server.access import CALLER_KEY, Caller, find_caller
from edenmem.server.metrics import Metrics, method_of, route_of
from edenmem.server.problems import Refused, answer_error, problem
from edenmem.server.state import ServerState
from edenmem.settings.schema import ServerSettings

_log = logging.getLogger(__name__)

#: Paths without access control: their answers have no memory.
PUBLIC = frozenset({"/health", "/ready", "/docs", "/openapi.json"})
#: Path of the Model Context Protocol, which has a gate of its own.
MCP = "/mcp"
#: Paths without a limit on concurrent requests.
_ALWAYS = ("/health", "/metrics")
#: Paths that wait for the upstream, and the share of slots kept for the others: one in eight.
_CHATS, _KEPT = "/v1/", 8
#: Passes of the event loop that a request takes, about, and the number of passes that their average
#: duration is from.
_PASSES, _RECENT = 100, 16
#: Seconds that a single pass counts at most, and for which the average of the last ones holds.
_LONGEST, _FRESH = 0.1, 2.0
#: Paths with a time limit for answers. The proxy waits for the upstream.
_TIMED = ("/api/", "/ready")
#: Maximum expansion of a compressed body that expands to more than 1 MB.
_GROWTH = 100
#: The unread rest of a request must not be read as the next one.
_CLOSE = {"Connection": "close"}
_CLOSE_AND_WAIT = {**_CLOSE, "Retry-After": "1"}


class Limits:
    """ASGI middleware that limits and counts requests.

    Args:
        app: The application.
        settings: The limits.
        metrics: Counts requests.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._in_flight = 0
        self._chats = 0
        self._pass = 0.0  # recent duration of a pass of the event loop, in seconds
        self._noted = 0.0
        self._is_passing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        begun = monotonic()
        self._count(scope, 1)
        self._metrics.in_flight.set(self._in_flight)
        status = 499  # the client has disconnected
        try:
            await self._answer(scope, receive, answer)
        except Exception:
            status = 500
            raise
        finally:
            self._count(scope, -1)
            self._metrics.in_flight.set(self._in_flight)
            seconds = monotonic() - begun
            self._metrics.count(scope, answer.status or status, seconds)
            _log.info(
                "%s %s %d %d ms",
                method_of(scope), route_of(scope), answer.status or status, seconds * 1000,
            )  # fmt: skip

    def _count(self, scope: Scope, step: int) -> None:
        self._in_flight += step
        self._chats += step * scope["path"].startswith(_CHATS)

    async def _measure(self) -> None:
        """Measure a pass of the event loop, once for all requests that begin in it."""
        if not self._is_passing:
            self._is_passing, begun = True, monotonic()
            try:
                await asyncio.sleep(0)
            finally:
                self._is_passing = False
            self.note_pass(monotonic() - begun)

    def note_pass(self, seconds: float) -> None:
        """Note the duration of a pass of the event loop. One long pass alone is no overload."""
        now = monotonic()
        before = self._pass if now - self._noted < _FRESH else 0.0
        self._pass = before + (min(seconds, _LONGEST) - before) / _RECENT
        self._noted = now

    def _excess(self, path: str) -> str | None:
        """Return why a request exceeds the number of requests."""
        most = self._settings.max_requests
        if path in _ALWAYS:
            return None
        if self._in_flight > most:
            return "too many concurrent requests"
        if path.startswith(_CHATS) and self._chats > most - most // _KEPT:
            return "too many concurrent chats"
        # Among few requests none waits long: a long pass is an exception.
        wait = _PASSES * self._pass + expected_wait() if self._in_flight > THREADS else 0.0
        return "the server is overloaded" if wait > self._settings.max_wait_seconds else None

    async def _answer(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        path, settings = scope["path"], self._settings
        await self._measure()
        if (excess := self._excess(path)) is not None:
            await self._refuse(scope, receive, answer, "requests", 503, excess)
            return
        body = _Body(receive, settings.max_body_mb * 1_000_000, settings.request_seconds)
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > body.limit:
            await self._refuse(scope, receive, answer, "body", 413, body.too_large)
            return
        limit = settings.request_seconds if path.startswith(_TIMED) else None
        try:
            async with asyncio.timeout(limit) as answer.timeout:
                await self._app(scope, body, answer)
        except TimeoutError:
            if answer.status is not None or not answer.timeout.expired():
                raise
            detail = f"the request took too long{_advise_after(scope)}"
            await self._refuse(scope, receive, answer, "time", 504, detail)
        except asyncio.CancelledError:  # by the server alone: it stops, and the request was late
            if answer.status is None:
                detail = f"the server is stopping{_advise_after(scope)}"
                await self._refuse(scope, receive, answer, "stop", 503, detail)
            raise
        finally:
            if body.refused:
                self._metrics.refused.labels(body.refused).inc()

    async def _refuse(
        self, scope: Scope, receive: Receive, answer: _Answer, limit: str, status: int, detail: str
    ) -> None:
        self._metrics.refused.labels(limit).inc()
        headers = _CLOSE_AND_WAIT if status == 503 else _CLOSE
        await problem(scope, status, detail, headers=headers)(scope, receive, answer)


class Shares:
    """The requests in progress of each caller: at most half of ``server.max_requests``.

    All tokens of one user have one share, by any account.
    """

    def __init__(self, settings: ServerSettings, metrics: Metrics) -> None:
        self._most = max(1, settings.max_requests // 2)
        self._metrics = metrics
        self._held: Counter[str] = Counter()

    @contextmanager
    def request(self, caller: Caller) -> Iterator[None]:
        """Count a request of a caller with a token.

        Raises:
            Refused: the caller has too many requests in progress (429).
        """
        holder = min(caller.accounts, default=caller.token_id)
        if holder is None:
            yield
            return
        if self._held[holder] >= self._most:
            self._metrics.refused.labels("requests").inc()
            raise Refused(429, "too many concurrent requests of this caller", _CLOSE_AND_WAIT)
        self._held[holder] += 1
        try:
            yield
        finally:
            self._held[holder] -= 1
            if not self._held[holder]:
                del self._held[holder]


class Gate:
    """ASGI middleware: find the caller before a body is read or a route is found.

    It protects routes that do not ask for a caller, too.
    """

    def __init__(self, app: ASGIApp, shares: Shares) -> None:
        self._app = app
        self._shares = shares

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request of a known caller on, or refuse it."""
        if scope["type"] != "http" or scope["path"] in (*PUBLIC, MCP):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        try:
            caller = scope[CALLER_KEY] = await find_caller(request)
        except EdenmemError as error:
            refusal = await answer_error(request, error)
            await refusal(scope, receive, send)
            return
        if scope["path"] in _ALWAYS:
            await self._app(scope, receive, send)
            return
        with ExitStack() as stack:
            try:
                stack.enter_context(self._shares.request(caller))
            except Refused as error:
                refusal = problem(scope, error.status_code, error.detail, headers=error.headers)
                await refusal(scope, receive, send)
                return
            await self._app(scope, receive, send)


class _Answer:
    """Sends an answer; the time limit ends with its first message.

    ``status`` is the status of the answer, or None before it.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None
        self.timeout = asyncio.timeout(None)

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.timeout.when() is not None and not self.timeout.expired():
                self.timeout.reschedule(None)
        await self._send(message)


class _Body:
    """Receives a body, with a size limit and a time limit."""

    def __init__(self, receive: Receive, limit: int, seconds: float) -> None:
        self._receive = receive
        self._left = self.limit = limit
        self._end = monotonic() + seconds
        self._is_whole = False
        self.too_large = f"the body is larger than {limit // 1_000_000} MB"
        self.refused = ""

    async def __call__(self) -> Message:
        if self._is_whole:  # only the end of the connection follows, without a time limit
            return await self._receive()
        try:
            async with asyncio.timeout(max(0.0, self._end - monotonic())):
                message = await self._receive()
        except TimeoutError:
            self.refused = "slow body"
            raise Refused(408, "the body did not arrive in time", _CLOSE) from None
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            self.refused = "body"
            raise Refused(413, self.too_large, _CLOSE)
        self._is_whole = not message.get("more_body", False)
        return message


def inflate(data: bytes, encoding: str, limit_mb: int) -> bytes:
    """Return an uncompressed body (gzip or deflate).

    Raises:
        Refused: the body is invalid, truncated or too large, or expands more than text does.
    """
    most = min(limit_mb * 1_000_000, max(1_000_000, len(data) * _GROWTH))
    decoder = zlib.decompressobj(wbits=47)
    try:
        whole = decoder.decompress(data, most)
    except zlib.error as error:
        raise Refused(400, f"the body is not {encoding}") from error
    if decoder.unconsumed_tail or len(whole) >= most:
        raise Refused(413, f"the body expands to more than {most // 1_000_000} MB")
    if not decoder.eof or decoder.unused_data:
        raise Refused(400, f"the {encoding} body is truncated or has data after its end")
    return whole


def _advise_after(scope: Scope) -> str:
    """Return what to do after a request without an answer: a write that began is not undone."""
    if scope["method"] in ("GET", "HEAD") or not scope["path"].startswith("/api/"):
        return ""
    return "; the change may have been made: see GET /api/log before repeating it"


# -- daily limits --------------------------------------------------------------------------------


def limits_use(settings: ServerSettings) -> bool:
    """Return whether there is a daily limit."""
    return bool(settings.daily_tokens or settings.daily_cost)


async def check_daily_use(
    state: ServerState, caller: Caller, user_id: str | None, *, reserved: int = 0
) -> None:
    """Check the daily limits before a chat is forwarded.

    Args:
        state: State of the server.
        caller: The caller.
        user_id: The user of the chat.
        reserved: Tokens already counted for this chat.

    Raises:
        Refused: a daily limit is reached (429).
    """
    settings = state.settings.server
    if not limits_use(settings):
        return
    now = utc_now()
    use = await in_thread(state.service.store.tokens.daily_use, _holder(caller, user_id), _day(now))
    tokens, cost = settings.daily_tokens, settings.daily_cost
    if (tokens and use.tokens - reserved >= tokens) or (cost and use.cost >= cost):
        tomorrow = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        wait = max(1, int((tomorrow - now).total_seconds()))
        raise Refused(429, "daily limit reached", {"Retry-After": str(wait)})


async def count_daily_use(
    state: ServerState,
    caller: Caller,
    user_id: str | None,
    *,
    tokens: int,
    cost: float = 0.0,
    at: datetime | None = None,
) -> None:
    """Count the use of a chat: an estimate before it is forwarded, the difference afterwards.

    The difference may be negative; both count for the day of ``at``.
    """
    if not limits_use(state.settings.server) or state.settings.store.read_only:
        return
    await in_thread(
        state.service.store.tokens.add_use,
        _holder(caller, user_id),
        _day(at or utc_now()),
        DailyUse(tokens=tokens, cost=cost),
    )


def _holder(caller: Caller, user_id: str | None) -> str:
    """Return the key of a daily use: a hash of the user or of the token."""
    whose = f"user:{user_id}" if user_id else f"token:{caller.token_id or 'local'}"
    return hashlib.sha256(whose.encode()).hexdigest()[:32]


def _day(now: datetime) -> str:
    return now.date().isoformat()
