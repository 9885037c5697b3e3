"""Limits on the size, number and duration of requests, and on the tokens of a day; the gate."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import zlib
from datetime import UTC, datetime, time, timedelta
from math import ceil
from time import monotonic

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edenmem.engine.runtime.concurrency import THREADS, expected_wait, in_thread
from edenmem.errors import EdenmemError
from edenmem.models.access import DailyUse
from edenmem.models.ids import utc_now
from edenmem.server.access import CALLER_KEY, Caller, find_caller
from edenmem.server.problems import Refused, answer_error, problem
from edenmem.server.state import Metrics, ServerState, method_of, route_of
from edenmem.settings.schema import ServerSettings

_log = logging.getLogger(__name__)

#: Paths without access control: their answers have no memory.
PUBLIC = frozenset({"/health", "/ready", "/docs", "/openapi.json"})
#: Paths without a limit on concurrent requests.
_ALWAYS = ("/health", "/metrics")
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
        self._in_flight += 1
        self._metrics.in_flight.inc()
        status = 499  # the client has disconnected
        try:
            await self._answer(scope, receive, answer)
        except Exception:
            status = 500
            raise
        finally:
            self._in_flight -= 1
            self._metrics.in_flight.dec()
            seconds = monotonic() - begun
            self._metrics.count(scope, answer.status or status, seconds)
            _log.info(
                "%s %s %d %d ms",
                method_of(scope), route_of(scope), answer.status or status, seconds * 1000,
            )  # fmt: skip

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
        if path in _ALWAYS:
            return None
        if self._in_flight > self._settings.max_requests:
            return "too many concurrent requests"
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


class Gate:
    """ASGI middleware: find the caller before a body is read or a route is found.

    It protects routes that do not ask for a caller, too.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request of a known caller on, or refuse it."""
        if scope["type"] == "http" and scope["path"] not in PUBLIC:
            request = Request(scope)
            try:
                scope[CALLER_KEY] = await find_caller(request)
            except EdenmemError as error:
                refusal = await answer_error(request, error)
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


class DailyLimit:
    """The tokens of one user and day, as far as ``server.daily_tokens`` limits them.

    Args:
        state: State of the server.
        caller: The caller.
        user_id: The user whose tokens are counted (None: the token of the caller).
    """

    def __init__(self, state: ServerState, caller: Caller, user_id: str | None) -> None:
        whose = f"user:{user_id}" if user_id else f"token:{caller.token_id or 'local'}"
        self._key = hashlib.sha256(whose.encode()).hexdigest()[:32], utc_now().date().isoformat()
        self._tokens = state.service.store.tokens
        self._most = state.settings.server.daily_tokens
        self._is_counting = bool(self._most) and not state.settings.store.read_only
        self._counted = 0

    async def count(self, tokens: int) -> None:
        """Count the tokens of a request, in place of those that were counted for it before."""
        if self._is_counting:
            change, self._counted = tokens - self._counted, tokens
            await in_thread(self._tokens.add_use, *self._key, DailyUse(tokens=change))

    async def reserve(self, tokens: int) -> None:
        """Count the estimated tokens of a request, unless the limit is reached without it.

        Raises:
            Refused: the limit is reached, including the reservations of requests in progress.
        """
        if not self._most:
            return
        await self.count(tokens)
        try:
            use = await in_thread(self._tokens.daily_use, *self._key)
            if use.tokens - self._counted >= self._most:
                now = utc_now()
                tomorrow = datetime.combine(now.date() + timedelta(days=1), time(), UTC)
                wait = ceil((tomorrow - now).total_seconds())
                raise Refused(429, "daily limit reached", {"Retry-After": str(wait)})
        except (Refused, EdenmemError):
            await self.count(0)
            raise
