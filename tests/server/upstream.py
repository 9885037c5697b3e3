"""A strict OpenAI-compatible upstream on a real socket; the model's name says how it behaves.

It refuses what the real one refuses, and more: unknown fields, instructions after the first
message, answers of tools that were not called, headers that belong to another connection.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import threading
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Any, Self

_FIELDS = frozenset(
    {
        *("model", "messages", "stream", "stream_options", "temperature", "top_p", "n", "user"),
        *("tools", "tool_choice", "parallel_tool_calls", "max_tokens", "max_completion_tokens"),
        *("response_format", "seed", "stop", "logprobs", "metadata", "x_unknown", "store"),
        "safety_identifier",
    }
)
_ROLES = {"system", "developer", "user", "assistant", "tool"}
_FORBIDDEN_HEADERS = {"te", "trailer", "upgrade", "proxy-authorization", "cookie", "x-real-ip"}

#: What a stream has beside the answer, and what must arrive unchanged.
COMMENT = b": keep-alive of the upstream\r\n\r\n"


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    path: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.json["messages"]
        return found

    def header(self, name: str) -> str | None:
        return next((v for n, v in self.headers if n.lower() == name), None)


@dataclass
class FakeUpstream:
    """The server, in a thread with a loop of its own.

    ``gate``: models whose name begins with "gated" go on when it is set. ``forms``: the answers of
    the model "forming", by the name of the JSON schema that is asked for.
    """

    seen: list[Seen] = field(default_factory=list)
    sent: dict[str, bytes] = field(default_factory=dict)
    hung_up: threading.Event = field(default_factory=threading.Event)
    gate: threading.Event = field(default_factory=threading.Event)
    reached: threading.Event = field(default_factory=threading.Event)
    forms: dict[str, dict[str, Any]] = field(default_factory=dict)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def last(self) -> Seen:
        return self.seen[-1]

    def reset(self) -> None:
        for event in (self.hung_up, self.gate, self.reached):
            event.clear()
        self.seen.clear()

    def __enter__(self) -> Self:
        started = threading.Event()
        self._loop = asyncio.new_event_loop()

        async def main() -> None:
            self._stop = asyncio.Event()
            server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=2**26)
            self.port = server.sockets[0].getsockname()[1]
            started.set()
            async with server:
                await self._stop.wait()
                server.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        def run() -> None:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(main())
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert started.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        except asyncio.CancelledError:
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        headers = [(n, v.strip()) for n, _, v in (line.partition(":") for line in lines)]
        named = {n.lower(): v for n, v in headers}
        body = await reader.readexactly(int(named.get("content-length", 0)))
        request = Seen(first.split(" ")[1], headers, body)
        self.seen.append(request)
        self.reached.set()
        out = _Out(writer, self)
        if problem := _refusal(request, named):
            await out.answer(400, {"error": {"message": problem, "type": "strict"}})
            return True
        if "/models" in request.path:
            await out.answer(200, {"object": "list", "data": [{"id": "plain", "object": "model"}]})
            return True
        if not request.path.endswith("/completions") or "/chat/" not in request.path:
            if request.path != "/v1/responses":
                await out.answer(200, {"path": request.path, "body": body.decode("latin-1")})
            else:
                await _respond(out, request.json)
            return True
        model = request.json["model"]
        behave = _BEHAVIORS.get(model.partition(":")[0], _plain)
        return await behave(out, request.json, reader) is not False


class _Out:
    def __init__(self, writer: asyncio.StreamWriter, upstream: FakeUpstream) -> None:
        self.writer = writer
        self.upstream = upstream

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status: int, *headers: str) -> None:
        await self.raw("\r\n".join([f"HTTP/1.1 {status} Text", *headers, "", ""]).encode())

    async def answer(self, status: int, content: Any, *headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content, indent=1).encode()
        kind = "content-type: application/json"
        await self.head(status, kind, f"content-length: {len(data)}", *headers)
        await self.raw(data)

    async def chunk(self, data: bytes) -> None:
        await self.raw(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _refusal(request: Seen, headers: dict[str, str]) -> str:
    """Why the request is refused; "" if it is not."""
    bad = [n for n in headers if n in _FORBIDDEN_HEADERS or n.startswith("x-edenmem")]
    if bad or headers.get("authorization", "Bearer key") != "Bearer key":
        return f"unexpected headers {bad}, or a wrong key"
    if request.path == "/v1/responses":
        return _refused_response(request.json)
    if request.path != "/v1/chat/completions":
        return ""
    body = request.json
    if unknown := set(body) - _FIELDS:
        return f"Unrecognized request arguments supplied: {sorted(unknown)}"
    called: set[str] = set()
    for place, message in enumerate(body["messages"]):
        role = message.get("role")
        if role not in _ROLES:
            return f"messages[{place}]: invalid role {role!r}"
        if role in ("system", "developer") and place:
            return f"messages[{place}]: instructions must come first"
        called |= {call["id"] for call in message.get("tool_calls") or ()}
        if role == "tool" and message.get("tool_call_id") not in called:
            return f"messages[{place}]: answers a call that nobody made"
        if not isinstance(message.get("content"), str | list) and not message.get("tool_calls"):
            return f"messages[{place}]: no content"
        for part in message["content"] if isinstance(message.get("content"), list) else ():
            if part.get("type") not in ("text", "image_url", "input_audio") or "type" not in part:
                return f"messages[{place}]: invalid part"
    return ""


_RESPONSE_FIELDS = frozenset(
    {
        *("model", "input", "instructions", "previous_response_id", "conversation", "stream"),
        *("tools", "tool_choice", "parallel_tool_calls", "store", "user", "metadata", "include"),
        *("safety_identifier", "max_output_tokens", "temperature", "text", "reasoning"),
        *("stream_options", "truncation"),
    }
)
_NUMBERS = count(1)
_PARTS = {"user": {"input_text", "input_image"}, "assistant": {"output_text", "refusal"}}


def _refused_response(body: dict[str, Any]) -> str:
    """Why a request of the Responses API is refused; "" if it is not."""
    if unknown := set(body) - _RESPONSE_FIELDS:
        return f"Unknown parameter: {sorted(unknown)}"
    if not isinstance(body.get("instructions") or "", str):
        return "instructions must be a text"
    called = {each.get("call_id") for each in body["input"] if "arguments" in each}
    for item in body["input"] if isinstance(body["input"], list) else ():
        kind, role = item.get("type", "message"), item.get("role")
        if kind == "function_call_output" and item["call_id"] not in called:
            return "no tool call found for this output"
        if kind == "message" and isinstance(item["content"], list):
            kinds = {each["type"] for each in item["content"]}
            if not kinds <= _PARTS.get(role, {"input_text"}):
                return f"invalid parts of {role}: {kinds}"
    return ""


async def _respond(out: _Out, body: dict[str, Any]) -> None:
    """Answer as the Responses API does; a model "tools" calls one unless it has the result."""
    given = body["input"]
    items = given if isinstance(given, list) else [{"role": "user", "content": given}]
    last = items[-1]
    content = last.get("content", last.get("output"))
    if isinstance(content, list):
        content = content[-1].get("text", "")
    text = {"type": "output_text", "text": f"answer to: {content[-40:]}", "annotations": []}
    output: dict[str, Any] = {
        "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [text],
    }  # fmt: skip
    if body["model"] == "tools" and last.get("type") != "function_call_output":
        output = {
            "id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "weather",
            "arguments": '{"city": "Łódź"}', "status": "completed",
        }  # fmt: skip
    number = next(_NUMBERS)
    whole = {
        "id": f"resp_{number}", "object": "response", "created_at": 1, "status": "completed",
        "model": body["model"], "output": [output], "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": [],
        "usage": {
            "input_tokens": 3, "output_tokens": 2, "total_tokens": 5,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }  # fmt: skip
    if not body.get("stream"):
        await out.answer(200, whole)
        return
    place = {"output_index": 0, "item_id": output["id"]}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", **place, "item": {**output, "content": []}},
    ]
    if output["type"] == "message":
        words = re.findall(r"\S+\s*", text["text"])
        events += [
            {"type": "response.content_part.added", **place, "content_index": 0,
             "part": {**text, "text": ""}},
            *({"type": "response.output_text.delta", **place, "content_index": 0, "delta": word,
               "logprobs": []} for word in words),
            {"type": "response.output_text.done", **place, "content_index": 0,
             "text": text["text"], "logprobs": []},
        ]  # fmt: skip
    else:
        arguments = output["arguments"]
        events += [
            {"type": "response.function_call_arguments.delta", **place, "delta": arguments},
            {"type": "response.function_call_arguments.done", **place, "arguments": arguments,
             "name": output["name"]},
        ]  # fmt: skip
    events.append({"type": "response.output_item.done", **place, "item": output})
    if body["model"] != "cut":
        events.append({"type": "response.completed", "response": whole})
    data = [
        f"event: {each['type']}\ndata: {json.dumps({**each, 'sequence_number': place})}\n\n"
        for place, each in enumerate(events)
    ]
    await _stream(out, [each.encode() for each in data])


def _delta(index: int = 0, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "plain",
        "choices": [{"index": index, "delta": delta, "finish_reason": finish}],
    }


def _usage(**fields: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "plain",
        "choices": [],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        **fields,
    }


def _events(*events: dict[str, Any]) -> list[bytes]:
    return [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]


def reply_to(body: dict[str, Any]) -> str:
    """The text of an answer: how many messages there were, and the last one's end."""
    content = body["messages"][-1].get("content")
    text = content if isinstance(content, str) else json.dumps(content)
    return f"answer to: {text[-40:]}"


async def _plain(out: _Out, body: dict[str, Any], reader: asyncio.StreamReader) -> None:
    if not body.get("stream"):
        message = {"role": "assistant", "content": reply_to(body), "refusal": None}
        choices = [
            {"index": index, "message": message, "finish_reason": "stop", "logprobs": None}
            for index in range(body.get("n") or 1)
        ]
        whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "plain"}
        await out.answer(200, {**whole, "choices": choices, **_usage_of()})
        return
    words = re.findall(r"\S+\s*", reply_to(body))
    events = _events(
        _delta(role="assistant", content=""),
        *(_delta(content=word) for word in words),
        _delta(finish="stop"),
        _usage(),
    )
    await _stream(out, [COMMENT, *events, b"data: [DONE]\n\n"])


async def _forming(out: _Out, body: dict[str, Any], reader: asyncio.StreamReader) -> None:
    schema = body["response_format"]["json_schema"]
    assert schema["strict"]
    missing = set(schema["schema"]["required"]) - out.upstream.forms[schema["name"]].keys()
    assert not missing, f"the script of {schema['name']} lacks {missing}"
    content = json.dumps(out.upstream.forms[schema["name"]])
    message = {"role": "assistant", "content": content, "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    whole = {"id": "f", "object": "chat.completion", "created": 1, "model": "forming"}
    await out.answer(200, {**whole, "choices": [choice], **_usage_of()})


def _usage_of() -> dict[str, Any]:
    return {"usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}


async def _stream(out: _Out, parts: list[bytes], *headers: str) -> None:
    kind = "content-type: text/event-stream; charset=utf-8"
    await out.head(200, kind, "transfer-encoding: chunked", "x-request-id: r1", *headers)
    out.upstream.sent["stream"] = b"".join(parts)
    for part in parts:
        await out.chunk(part)
    await out.raw(b"0\r\n\r\n")


async def _tools(out: _Out, body: dict[str, Any], reader: asyncio.StreamReader) -> None:
    if body["messages"][-1]["role"] == "tool":
        await _plain(out, body, reader)
        return
    function = {"name": "weather", "arguments": '{"city": "Łódź"}'}
    if not body.get("stream"):
        call = {"id": "call_1", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "tools"}
        await out.answer(200, {**whole, "choices": [choice], **_usage_of()})
        return
    first = {"index": 0, "id": "call_1", "type": "function"}
    events = _events(
        _delta(role="assistant", content=None),
        _delta(tool_calls=[{**first, "function": {"name": "weather", "arguments": ""}}]),
        _delta(tool_calls=[{"index": 0, "function": {"arguments": '{"city": '}}]),
        _delta(tool_calls=[{"index": 0, "function": {"arguments": '"Łódź"}'}}]),
        _delta(finish="tool_calls"),
    )
    await _stream(out, [*events, b"data: [DONE]\n\n"])


async def _choices(out: _Out, body: dict[str, Any], reader: asyncio.StreamReader) -> None:
    """Two choices, mixed, in awkward pieces: bytes, not lines."""
    data = b"".join(
        _events(
            _delta(0, content="fir"),
            _delta(1, content="other"),
            _delta(0, content="st ö"),
            _usage(),
        )
    )
    pieces = [data[place : place + 7] for place in range(0, len(data), 7)]
    await _stream(out, [*pieces, b"data: [DO", b"NE]\n\n"])


async def _cut(out: _Out, body: dict[str, Any], reader: asyncio.StreamReader) -> bool:
    await out.head(200, "content-type: text/event-stream", "transfer-encoding: chunked")
    for event in _events(_delta(content="half of"), _delta(content=" an answer")):
        await out.chunk(event)
    return False


async def _stall(out: _Out, body: dict[str, Any], reader: asyncio.StreamReader) -> bool:
    """Answers half, or nothing at all, and then waits until the other side has gone."""
    if body.get("stream"):
        await out.head(200, "content-type: text/event-stream", "transfer-encoding: chunked")
        await out.chunk(_events(_delta(content="half of"))[0])
    await reader.read()
    out.upstream.hung_up.set()
    return False


async def _gated(out: _Out, body: dict[str, Any], reader: asyncio.StreamReader) -> None:
    """Answers half, and the rest when the gate opens."""
    await out.head(200, "content-type: text/event-stream", "transfer-encoding: chunked")
    await out.chunk(_events(_delta(content="first half,"))[0])
    await asyncio.to_thread(out.upstream.gate.wait, 60)
    for part in [*_events(_delta(content=" second half")), b"data: [DONE]\n\n"]:
        await out.chunk(part)
    await out.raw(b"0\r\n\r\n")


async def _limited(out: _Out, body: dict[str, Any], reader: asyncio.StreamReader) -> None:
    error = {"error": {"message": "slow down", "type": "rate_limit", "code": "rate"}}
    await out.answer(429, error, "retry-after: 7", "x-ratelimit-reset: 7s")


async def _nonsense(out: _Out, body: dict[str, Any], reader: asyncio.StreamReader) -> None:
    data = b"<html>\xff not json"
    await out.head(200, "content-type: application/json", f"content-length: {len(data)}")
    await out.raw(data)


async def _empty(out: _Out, body: dict[str, Any], reader: asyncio.StreamReader) -> None:
    await out.answer(200, {"choices": [], "weird": 12345678901234567890, "float": 1.10})


async def _reset(out: _Out, body: dict[str, Any], reader: asyncio.StreamReader) -> bool:
    return False


async def _redirect(out: _Out, body: dict[str, Any], reader: asyncio.StreamReader) -> None:
    await out.answer(307, b"", "location: http://127.0.0.2:1/v1/chat/completions")


async def _unknown(out: _Out, body: dict[str, Any], reader: asyncio.StreamReader) -> None:
    await out.head(999, "content-length: 0")


async def _zipped(out: _Out, body: dict[str, Any], reader: asyncio.StreamReader) -> None:
    data = gzip.compress(b"".join(_events(_delta(content="zipped answer"))) + b"data: [DONE]\n\n")
    out.upstream.sent["zipped"] = data
    await _stream(out, [data[:20], data[20:]], "content-encoding: gzip")


async def _injected(out: _Out, body: dict[str, Any], reader: asyncio.StreamReader) -> None:
    await out.answer(
        200, {"choices": []}, "x-edenmem-session: forged", "set-cookie: a=b", "connection: x-hop"
    )


_BEHAVIORS = {
    "tools": _tools,
    "choices": _choices,
    "cut": _cut,
    "stall": _stall,
    "forming": _forming,
    "gated": _gated,
    "limited": _limited,
    "nonsense": _nonsense,
    "empty": _empty,
    "reset": _reset,
    "redirect": _redirect,
    "unknown": _unknown,
    "zipped": _zipped,
    "injected": _injected,
}
