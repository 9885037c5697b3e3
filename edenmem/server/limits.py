"""What is refused before a route sees it: strangers, and requests beyond the limits on size, number
and duration. And the limit on what a user uses in a day."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import zlib
from collections import Counter
from datetime import datetime, timedelta
from time import monotonic

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edenmem.engine.runtime.concurrency import in_thread
from edenmem.errors import EdenmemError
from edenmem.models.access import DailyUse
from edenmem.models.ids import utc_now
from edenmem.server.access import CALLER_KEY, Caller, find_caller, token_of
from edenmem.server.metrics import Metrics, method_of, route_of
from edenmem.server.problems import Refused, answer_error, problem
from edenmem.server.state import ServerState
from edenmem.settings.schema import ServerSettings

_log = logging.getLogger(__name__)

#: Paths that anyone may ask: they tell nothing of memory.
PUBLIC = frozenset({"/health", "/ready", "/docs", "/openapi.json"})
#: Paths that are answered whatever the load.
_ALWAYS = ("/health", "/metrics")
#: Paths that wait for the upstream. One in so many slots is kept for the others.
_CHATS, _KEPT = "/v1/", 8
#: Paths whose answers have a time limit. Those of the proxy wait for the upstream.
_TIMED = ("/api/", "/ready")
#: Beyond 1 MB, no compressed body may be larger by more than this factor when expanded.
_GROWTH = 100
#: What of a request was not read must not be taken for the next one.
_CLOSE = {"Connection": "close"}


class Limits:
    """ASGI middleware: limits and counts requests, and lets the parts of a stream pass.

    Args:
        app: What answers.
        settings: The limits.
        metrics: Where requests are counted.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._in_flight = 0
        self._chats = 0
        self._by_token: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        begun = monotonic()
        token = token_of(Headers(scope=scope), scope["path"]) or ""
        self._count(scope, token, 1)
        self._metrics.in_flight.set(self._in_flight)
        status = 499  # the client is gone
        try:
            await self._answer(scope, receive, answer, token)
        except Exception:
            status = 500
            raise
        finally:
            self._count(scope, token, -1)
            self._metrics.in_flight.set(self._in_flight)
            seconds = monotonic() - begun
            self._metrics.count(scope, answer.status or status, seconds)
            _log.info(
                "%s %s %d %d ms",
                method_of(scope), route_of(scope), answer.status or status, seconds * 1000,
            )  # fmt: skip

    def _count(self, scope: Scope, token: str, step: int) -> None:
        self._in_flight += step
        self._chats += step * scope["path"].startswith(_CHATS)
        if token:
            self._by_token[token] += step
            if not self._by_token[token]:
                del self._by_token[token]

    def _excess(self, path: str, token: str) -> tuple[int, str] | None:
        """Return the status and the words for a request too many."""
        most = self._settings.max_requests
        if path in _ALWAYS:
            return None
        if self._in_flight > most:
            return 503, "too many requests at once"
        if path.startswith(_CHATS) and self._chats > most - most // _KEPT:
            return 503, "too many chats at once"
        if token and self._by_token[token] > max(1, most // 2):
            return 429, "too many requests at once with this token"
        return None

    async def _answer(self, scope: Scope, receive: Receive, answer: _Answer, token: str) -> None:
        path, settings = scope["path"], self._settings
        if (excess := self._excess(path, token)) is not None:
            await self._refuse(scope, receive, answer, "requests", *excess)
            return
        body = _Body(receive, settings.max_body_mb * 1_000_000, settings.request_seconds)
        if _announced_length(scope) > body.limit:
            await self._refuse(scope, receive, answer, "body", 413, body.too_large)
            return
        limit = settings.request_seconds if path.startswith(_TIMED) else None
        try:
            async with asyncio.timeout(limit) as answer.timeout:
                await self._app(scope, body, answer)
        except TimeoutError:
            if answer.status is not None or not answer.timeout.expired():
                raise
            await self._refuse(scope, receive, answer, "time", 504, "the answer took too long")
        finally:
            if body.refused:
                self._metrics.refused.labels(body.refused).inc()

    async def _refuse(
        self, scope: Scope, receive: Receive, answer: _Answer, limit: str, status: int, detail: str
    ) -> None:
        self._metrics.refused.labels(limit).inc()
        headers = {**_CLOSE, "Retry-After": "1"} if status in (429, 503) else _CLOSE
        await problem(scope, status, detail, headers=headers)(scope, receive, answer)


class Gate:
    """ASGI middleware: lets nobody but callers in, before a body is read or a route is found.

    A route that forgets to ask who calls is closed all the same.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it."""
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
    """The way back to the client. ``status`` is that of the answer, once it has begun; from then
    on no time limit holds."""

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
    """A request's body, which must be short enough and arrive in time."""

    def __init__(self, receive: Receive, limit: int, seconds: float) -> None:
        self._receive = receive
        self._left = self.limit = limit
        self._end = monotonic() + seconds
        self._is_whole = False
        self.too_large = f"the body is larger than {limit // 1_000_000} MB"
        self.refused = ""

    async def __call__(self) -> Message:
        if self._is_whole:  # what follows is the end of the connection, which may take long
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
    """Return a compressed body (gzip or deflate) as it was.

    Raises:
        Refused: it is not compressed so, or larger than the limit, or grows more than text does.
    """
    most = min(limit_mb * 1_000_000, max(1_000_000, len(data) * _GROWTH))
    decoder = zlib.decompressobj(wbits=47)
    try:
        whole = decoder.decompress(data, most)
    except zlib.error as error:
        raise Refused(400, f"the body is not {encoding}") from error
    if decoder.unconsumed_tail:
        raise Refused(413, f"the body expands to more than {most // 1_000_000} MB")
    return whole


def _announced_length(scope: Scope) -> int:
    value = dict(scope["headers"]).get(b"content-length", b"0")
    return int(value) if value.isdigit() else 0


# -- what a user uses in a day -------------------------------------------------------------------


async def check_daily_use(
    state: ServerState, caller: Caller, user_id: str | None, *, reserved: int = 0
) -> None:
    """See that the user may still use models today; to be called before a chat is forwarded.

    Args:
        state: Of the server.
        caller: Who asks.
        user_id: For whom.
        reserved: Tokens that are counted for this chat already.

    Raises:
        Refused: the day's tokens or money are used up (429).
    """
    settings = state.settings.server
    if not (settings.daily_tokens or settings.daily_cost):
        return
    now = utc_now()
    use = await in_thread(state.service.store.tokens.daily_use, _holder(caller, user_id), _day(now))
    tokens, cost = settings.daily_tokens, settings.daily_cost
    if (tokens and use.tokens - reserved >= tokens) or (cost and use.cost >= cost):
        tomorrow = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        wait = max(1, int((tomorrow - now).total_seconds()))
        raise Refused(429, "the limit of this day is reached", {"Retry-After": str(wait)})


async def count_daily_use(
    state: ServerState,
    caller: Caller,
    user_id: str | None,
    *,
    tokens: int,
    cost: float = 0.0,
    at: datetime | None = None,
) -> None:
    """Count what a chat uses: an estimate before it is forwarded, and after it the difference,
    which may be negative, at the same time ``at``."""
    settings = state.settings.server
    if not (settings.daily_tokens or settings.daily_cost):
        return
    if state.settings.store.read_only:
        return
    await in_thread(
        state.service.store.tokens.add_use,
        _holder(caller, user_id),
        _day(at or utc_now()),
        DailyUse(tokens=tokens, cost=cost),
    )


def _holder(caller: Caller, user_id: str | None) -> str:
    """The name under which use is counted: a hash, of the user or else of the token."""
    whose = f"user:{user_id}" if user_id else f"token:{caller.token_id or 'local'}"
    return hashlib.sha256(whose.encode()).hexdigest()[:32]


def _day(now: datetime) -> str:
    return now.date().isoformat()
