"""The paths below ``/v1``: chats and responses with memory, the others unchanged."""

from __future__ import annotations

import asyncio
import codecs
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from edenmem.engine.chats.memory import Retrieval
from edenmem.engine.chats.sessions import Answer, ChatTurn
from edenmem.engine.context.builder import BaseContext
from edenmem.engine.context.recall import recall_queries
from edenmem.engine.context.xml import EMPTY
from edenmem.engine.reports import SearchHit
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.tokens import PREFIX
from edenmem.models.formation import is_count
from edenmem.models.host import Agent
from edenmem.models.ids import utc_now
from edenmem.models.told import Note
from edenmem.server.access import Caller, FromCaller
from edenmem.server.limits import DailyLimit, inflate
from edenmem.server.problems import CHAT_ERRORS, Refused
from edenmem.server.proxy.answers import (
    Decode,
    ResponseReader,
    StreamReader,
    decoder,
    read_answer,
    read_response,
)
from edenmem.server.proxy.background import Background
from edenmem.server.proxy.body import (
    USUAL_ANSWER,
    BadField,
    ChatBody,
    MemoryFields,
    ResponsesBody,
)
from edenmem.server.proxy.frontends import is_utility
from edenmem.server.proxy.recording import Recording, header, keep
from edenmem.server.proxy.retries import Retries
from edenmem.server.proxy.stages import Stages
from edenmem.server.proxy.upstream import (
    Header,
    StreamBroken,
    Upstream,
    UpstreamFailed,
    chunks,
    response_headers,
)
from edenmem.server.state import ServerState, state_of

router = APIRouter(tags=["chat"])
_log = logging.getLogger(__name__)

T = TypeVar("T")

#: Maximum length of a path, in characters.
_LONGEST_PATH = 1000
#: The readers of the answers to each kind of request: of a stream, and of a whole one.
_READERS: dict[type[ChatBody], tuple[type[StreamReader], Callable[[Any], Answer]]] = {
    ChatBody: (StreamReader, read_answer),
    ResponsesBody: (ResponseReader, read_response),
}
#: Names of the numbers of tokens in and out: of chat completions, and of responses.
_COUNTS = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
#: Maximum size of a body that is parsed without a thread.
_SHORT = 64 * 1024


@dataclass(slots=True, kw_only=True)
class Proxy:
    """The state shared by the routes of the proxy.

    Attributes:
        upstream: The endpoint that chats are forwarded to.
        background: The background tasks.
        retries: Chats that wait for the store.
    """

    upstream: Upstream
    background: Background
    retries: Retries


def _proxy_of(request: Request) -> Proxy:
    proxy = request.app.state.proxy
    assert isinstance(proxy, Proxy)
    return proxy


_OBJECT: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}},
    **CHAT_ERRORS,
}


@router.post(
    "/v1/chat/completions", summary="Chat with memory", responses=_ANSWERS, openapi_extra=_OBJECT
)
async def chat(request: Request, caller: FromCaller) -> Response:
    """Forward a chat to the upstream with memory, and store it."""
    return await _answer(request, caller, ChatBody)


@router.post(
    "/v1/responses", summary="Respond with memory", responses=_ANSWERS, openapi_extra=_OBJECT
)
async def respond(request: Request, caller: FromCaller) -> Response:
    """Forward a request of the Responses API to the upstream with memory, and store it."""
    return await _answer(request, caller, ResponsesBody)


@router.api_route(
    "/v1/{path:path}",
    methods=["DELETE", "GET", "PATCH", "POST", "PUT"],
    include_in_schema=False,
)
async def pass_on(request: Request, caller: FromCaller, path: str) -> Response:
    """Forward any other request to the upstream, without memory."""
    if len(path) > _LONGEST_PATH or any(part in (".", "..") for part in path.split("/")):
        raise Refused(404, "no such path")
    # Quote the decoded path, so that no part of it can become a query or another path.
    path = f"/{quote(path, safe='/:@')}"
    state, data = state_of(request), b""
    if request.method not in ("DELETE", "GET"):
        data = await _read_body(request, state)
        tokens = round(len(data) / state.settings.formation.characters_per_token)
        await DailyLimit(state, caller, caller.user_id).reserve(tokens)
    query = request.scope["query_string"].decode("latin-1")
    response = await _proxy_of(request).upstream.send(
        request.method,
        f"{path}?{query}" if query else path,
        request.headers.raw,
        data,
        pass_token=_may_pass_token(request),
    )
    return _Passed(response, chunks(response), response_headers(response))


async def _answer(request: Request, caller: Caller, kind: type[ChatBody]) -> Response:
    state = state_of(request)
    data = (await _read_body(request, state)).removeprefix(codecs.BOM_UTF8)
    try:
        body = kind(data) if len(data) <= _SHORT else await in_thread(kind, data)
    except BadField as error:
        raise Refused(400, str(error)) from error
    except ValueError:
        body = None
    exchange = _Exchange(request, caller, state, kind)
    with _proxy_of(request).background.relaying():
        answer = await _until_hang_up(request.receive, exchange.run(data, body))
    if answer is None:
        raise Refused(499, "the client disconnected")
    return answer


class _Passed(StreamingResponse):
    """An answer of the upstream as it arrives, until the client disconnects.

    It closes the upstream's connection even if the client disconnects before the first byte, when
    nothing reads the stream.
    """

    def __init__(
        self,
        upstream: httpx.Response,
        stream: AsyncIterator[bytes],
        headers: list[Header],
    ) -> None:
        super().__init__(stream, status_code=upstream.status_code)
        self.raw_headers = headers
        self._upstream = upstream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        try:
            await _until_hang_up(receive, self.stream_response(send))
        finally:
            await self._upstream.aclose()


class _Exchange:
    """One chat request and its answer.

    Args:
        request: The request.
        caller: The caller.
        state: State of the server.
        kind: What is asked for.
    """

    def __init__(
        self, request: Request, caller: Caller, state: ServerState, kind: type[ChatBody]
    ) -> None:
        self._kind = kind
        self._read_stream, self._read_whole = _READERS[kind]
        self._request = request
        self._caller = caller
        self._state = state
        self._proxy = _proxy_of(request)
        self._settings = state.settings.server
        self._chats = state.service.chats
        self._stages = Stages(self._proxy.background, state.metrics)
        self._recording: Recording | None = None
        self._turn: ChatTurn | None = None
        self._hits: list[SearchHit] = []
        self._note: Note | None = None
        self._retrieved = self._is_forwarded = False
        self._is_stored = state.stores_chats and _may_store(request)
        self._size = 0
        self._use = DailyLimit(state, caller, caller.user_id)
        self._begun = utc_now()

    async def run(self, data: bytes, body: ChatBody | None) -> Response:
        """Add memory, forward the request, and return the answer.

        Raises:
            UpstreamFailed: there is no answer; the error has the memory headers.
        """
        try:
            return await self._run(data, body)
        except UpstreamFailed as error:
            error.headers = {name.decode(): value.decode() for name, value in self._own_headers()}
            raise
        except asyncio.CancelledError:
            if not self._is_forwarded:  # the client disconnected during a search
                self._proxy.background.start(self._store_turn())
                self._proxy.background.start(self._use.count(0))
            raise

    async def _run(self, data: bytes, body: ChatBody | None) -> Response:
        self._size = len(data)
        if body is None:
            self._stages.skip("memory", "the request cannot be parsed")
        else:
            data = await self._add_memory(body)
        self._size = len(data)
        await self._reserve_use(USUAL_ANSWER if body is None else body.most_answer_tokens)
        try:
            response = await self._forward(data)
        except UpstreamFailed as error:
            if error.status_code != 504:  # a late answer may have used the reservation
                await self._settle_use(0)
            raise
        headers = [*response_headers(response), *self._own_headers()]
        if response.status_code >= 300:
            await self._settle_use(0)
            return _Passed(response, chunks(response), headers)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        decode = decoder(response.headers.get("content-encoding", ""))
        if decode is None:
            self._stages.skip("answer", "it cannot be parsed")
            return _Passed(response, chunks(response), headers)
        if kind == "text/event-stream":
            relay = self._relay(chunks(response), self._read_stream(decode))
            return _Passed(response, relay, headers)
        return await self._pass_whole(response, decode, headers, is_json="json" in kind)

    async def _forward(self, data: bytes) -> httpx.Response:
        """Send a body to the upstream, and store the turn meanwhile.

        Raises:
            UpstreamFailed: there is no answer; the turn is stored.
        """
        self._is_forwarded = True
        if self._note is not None and not (self._recording and self._is_stored):
            self._state.service.told.notes.add(self._note)
        storing = self._proxy.background.start(self._store_turn())
        try:
            response = await self._proxy.upstream.send(
                "POST",
                self._kind.path,
                self._request.headers.raw,
                data,
                pass_token=_may_pass_token(self._request),
            )
        except BaseException:
            await asyncio.shield(storing)  # also if the client disconnected
            raise
        try:
            await asyncio.shield(storing)
        except asyncio.CancelledError:
            self._proxy.background.start(response.aclose())
            raise
        return response

    # -- memory --------------------------------------------------------------------------------

    async def _add_memory(self, body: ChatBody) -> bytes:
        """Return the body with memory.

        Raises:
            Refused: no such agent or user within reach.
        """
        settings = self._settings
        if is_utility(body.said, body.instructions, settings.utility_prompts):
            self._stages.left_out["memory"] = "a prompt of a front end, not of a person"
            return body.with_memory("", "")
        kept = keep(self._request, self._caller, self._state, body)
        self._recording = Recording(kept, self._state, self._proxy.background, self._proxy.retries)
        turn = self._turn = await self._recording.find(self._stages)
        asked = self._recording.asked
        if turn is None or asked is None:
            return body.with_memory("", "")
        message, retrieval = body.last_user_message, self._retrieval(body.memory)
        base, (searched, self._hits) = await asyncio.gather(
            self._stages.run(
                "context",
                self._chats.memory.context(turn),
                settings.context_timeout_seconds,
                or_else=BaseContext(EMPTY, b"", self._begun),
            ),
            self._retrieve(asked.agent, turn, message, retrieval),
        )
        self._retrieved = searched
        added = self._chats.memory.render(asked, turn, base, self._hits)
        self._note = added.note
        _log.info(
            "added to a chat of session %s: words of context: %d, facts found: %d",
            turn.session.id, len(added.context.split()), len(self._hits),
        )  # fmt: skip
        return body.with_memory(added.context, added.facts)

    def _retrieval(self, fields: MemoryFields) -> Retrieval:
        settings = self._settings
        asked_for = fields.memory_top_k is not None
        top_k = fields.memory_top_k if fields.memory_top_k is not None else settings.memory_top_k
        threshold = fields.memory_score_threshold
        return Retrieval(
            mode="always" if asked_for else settings.recall,
            top_k=top_k,
            recency_weight=fields.memory_recency_weight,
            score_threshold=settings.memory_score_threshold if threshold is None else threshold,
        )

    async def _retrieve(
        self, agent: Agent, turn: ChatTurn, message: str, retrieval: Retrieval
    ) -> tuple[bool, list[SearchHit]]:
        """Return whether a search ran, and the facts it found."""
        if retrieval.top_k <= 0 or retrieval.mode == "off" or not message.strip():
            return False, []
        if not turn.has_facts:
            return True, []
        queries = recall_queries((message,))
        if retrieval.mode != "always":
            queries = await self._stages.run(
                "recall",
                self._chats.memory.queries(agent, turn, message, retrieval.mode),
                self._state.settings.context.recall_timeout_seconds,
                or_else=(),
            )
        if not queries:
            return False, []
        hits = await self._stages.run(
            "search",
            self._chats.memory.search(turn.view, queries, retrieval),
            self._settings.search_timeout_seconds,
            or_else=None,
        )
        return hits is not None, hits or []

    # -- storage -------------------------------------------------------------------------------

    async def _store_turn(self) -> None:
        if self._recording is not None and self._is_stored:
            if self._is_forwarded:
                self._recording.tell(self._note)
            await self._store("store", self._recording, self._recording.store())

    async def _store(
        self, stage: str, recording: Recording, work: Coroutine[Any, Any, None]
    ) -> None:
        await self._stages.run(
            stage, work, self._settings.store_timeout_seconds, or_else=None, must_end=True
        )
        recording.wait_if_late()

    async def _keep_answer(self, answer: Answer, usage: Any) -> None:
        """Store the answer before its end is sent, also if the client disconnects meanwhile."""
        storing = self._proxy.background.start(self._store_answer(answer, usage))
        await asyncio.shield(storing)

    async def _store_answer(self, answer: Answer, usage: Any) -> None:
        if self._hits and not self._state.settings.store.read_only:
            counting = in_thread(self._chats.memory.count_access, self._hits)
            self._proxy.background.start(counting)  # after the first token
        await self._count_use(usage, answer)
        recording = self._recording
        if recording is None or not recording.expects_answer or not self._is_stored:
            return
        await self._store("answer", recording, recording.store_answer(answer))

    # -- the answer ----------------------------------------------------------------------------

    async def _relay(
        self, stream: AsyncGenerator[bytes], reader: StreamReader
    ) -> AsyncIterator[bytes]:
        """Yield an event stream, and store the answer before its last bytes."""
        with self._proxy.background.relaying():
            is_stored, cut_off = False, "the client disconnected"
            try:
                async for chunk in stream:
                    reader.feed(chunk)
                    if reader.is_done and not is_stored:
                        is_stored = True
                        await self._keep_answer(reader.answer(), reader.usage)
                    yield chunk
                if not is_stored:
                    reader.end()
                    is_stored = True
                    await self._keep_answer(reader.answer(), reader.usage)
            except StreamBroken as error:
                cut_off = str(error)
                raise
            finally:
                if not is_stored:
                    reader.end()
                    answer = self._store_answer(reader.answer(cut_off), reader.usage)
                    self._proxy.background.start(answer)
                self._proxy.background.start(stream.aclose())

    async def _pass_whole(
        self,
        response: httpx.Response,
        decode: Decode,
        headers: list[Header],
        *,
        is_json: bool,
    ) -> Response:
        """Store an answer without streaming, and return it with the facts found."""
        try:
            data = b"".join([chunk async for chunk in chunks(response)])
        except StreamBroken as error:
            raise UpstreamFailed(str(error)) from error
        try:
            text = decode(data)
            whole = json.loads(text) if is_json else None
        except (ValueError, RecursionError):
            whole = None
        if whole is None:
            self._stages.skip("answer", "it cannot be parsed")
        else:
            usage = whole.get("usage") if isinstance(whole, dict) else None
            await self._keep_answer(self._read_whole(whole), usage)
        dropped: tuple[bytes, ...] = (b"x-edenmem-",)
        if self._retrieved and isinstance(whole, dict):
            data, dropped = _with_hits(text, self._hits), (*dropped, b"content-encoding")
        kept = [each for each in headers if not each[0].startswith(dropped)]
        answer = Response(data, status_code=response.status_code)
        size = (b"content-length", str(len(data)).encode())
        answer.raw_headers = [*kept, *self._own_headers(), size]
        return answer

    async def _reserve_use(self, answer: int) -> None:
        """Reserve the estimated tokens, which stay counted if the use remains unknown.

        Raises:
            Refused: the daily limit is reached.
        """
        asked = self._recording.asked if self._recording is not None else None
        if asked and asked.user and self._caller.user_id is None:
            self._use = DailyLimit(self._state, self._caller, asked.user.id)
        per_token = self._state.settings.formation.characters_per_token
        await self._use.reserve(round(self._size / per_token) + answer)

    async def _settle_use(self, tokens: int) -> None:
        """Replace the reservation with the tokens used."""
        limit = self._settings.store_timeout_seconds
        await self._stages.run("use", self._use.count(tokens), limit, or_else=None, must_end=True)

    async def _count_use(self, usage: Any, answer: Answer) -> None:
        """Count the tokens that the upstream reports, or an estimate."""
        named = usage if isinstance(usage, dict) else {}
        per_token = self._state.settings.formation.characters_per_token
        estimates = (self._size / per_token, len(answer.content) / per_token)
        counts = [
            count if is_count(count := named.get(chat, named.get(response))) else round(guess)
            for (chat, response), guess in zip(_COUNTS, estimates, strict=True)
        ]
        for direction, count in zip(("in", "out"), counts, strict=True):
            self._state.metrics.tokens.labels(direction).inc(count)
        await self._settle_use(sum(counts))

    # -- headers -------------------------------------------------------------------------------

    def _own_headers(self) -> list[Header]:
        own: list[Header] = []
        if self._turn is not None and (self._turn.messages or not self._turn.is_new):
            own.append((b"x-edenmem-session", self._turn.session.id.encode()))
        if self._note is not None:
            own.append((b"x-edenmem-told", self._note.reply.id.encode()))
        if self._stages.left_out:
            own.append((b"x-edenmem-left-out", self._stages.header.encode()))
        return own


async def _read_body(request: Request, state: ServerState) -> bytes:
    """Return the decoded body of a request.

    Raises:
        Refused: the body is too large or too slow, or has an unsupported encoding.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "deflate"):
        raise Refused(415, f"unsupported Content-Encoding: {encoding[:40]!r}")
    data = await request.body()
    if encoding == "identity":
        return data
    return await in_thread(inflate, data, encoding, state.settings.server.max_body_mb)


async def _until_hang_up(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of the work, or cancel it and return None if the client disconnects."""
    working, leaving = asyncio.create_task(work), asyncio.create_task(_hang_up(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:  # the server stops
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        raise
    finally:
        leaving.cancel()
    if not working.done():
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return None
    return working.result()


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _with_hits(body: bytes, hits: list[SearchHit]) -> bytes:
    """Return a JSON object with the field ``memory_hits``, and otherwise unchanged."""
    found = [
        {
            "role": "memory",
            "content": hit.fact.content,
            "created_at": hit.fact.recent_at.isoformat(),
            "score": round(hit.score, 4),
            "id": hit.fact.id,
            "scope": str(hit.fact.scope),
        }
        for hit in hits
    ]
    stripped = body.rstrip()
    comma = "" if stripped[:-1].rstrip().endswith(b"{") else ", "
    return stripped[:-1] + f'{comma}"memory_hits": {json.dumps(found)}}}'.encode()


def _may_store(request: Request) -> bool:
    """Return whether the client lets its chat be stored.

    Raises:
        Refused: the header has another value.
    """
    value = header(request, "store").lower()
    if value not in ("", "yes", "no"):
        raise Refused(400, "X-Edenmem-Store must be 'yes' or 'no'")
    return value != "no"


def _may_pass_token(request: Request) -> bool:
    """Return whether the bearer token of a request is a key of the upstream."""
    _, _, value = request.headers.get("authorization", "").partition(" ")
    return not value.strip().startswith(PREFIX)
