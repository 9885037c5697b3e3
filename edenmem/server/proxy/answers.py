"""Parsing of the upstream's answers for storage. Invalid answers never fail a chat."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from edenmem.engine.chats.messages import (
    CUT_OFF,
    MOST_CHARACTERS,
    read_content,
    read_messages,
    read_tool_calls,
    tool_call,
)
from edenmem.engine.chats.sessions import Answer

#: Maximum size of an event; a longer one ends the parsing of a stream.
_MOST_EVENT = 4 * 1024 * 1024
#: Approximate overhead in memory of a line.
_PER_LINE = 64
#: Maximum size of a part of an answer once it is decoded.
_MOST_DECODED = 64 * 1024 * 1024
_DONE = "[DONE]"
_ERROR = "the upstream reported an error"


#: Decodes the next bytes of an answer; raises `ValueError` if it cannot.
Decode = Callable[[bytes], bytes]


def decoder(encoding: str) -> Decode | None:
    """Return the decoder of a ``Content-Encoding``, or None if it is unknown."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return bytes
    if name not in ("gzip", "x-gzip", "deflate"):
        return None
    inflate = zlib.decompressobj(wbits=47)

    def decode(data: bytes) -> bytes:
        try:
            found = inflate.decompress(data, _MOST_DECODED)
        except zlib.error as error:
            raise ValueError("it is damaged") from error
        if inflate.unconsumed_tail:
            raise ValueError("it is too long")
        return found

    return decode


class _Call:
    def __init__(self) -> None:
        self.id = self.name = ""
        self.arguments: list[str] = []


class StreamReader:
    """Assemble the answer of an event stream, from the first of several choices.

    Args:
        decode: Decodes the stream.
    """

    def __init__(self, decode: Decode = bytes) -> None:
        self._decode = decode
        self._rest = bytearray()
        self._data: list[str] = []
        self._data_size = 0
        self._content: list[str] = []
        self._size = 0
        self._calls: dict[int, _Call] = {}
        self._fault = ""
        self._is_finished = False
        self.is_done = False
        self.usage: Mapping[str, Any] | None = None

    def feed(self, chunk: bytes) -> None:
        """Parse the next bytes."""
        if self._data_size > _MOST_EVENT:
            return
        try:
            chunk = self._decode(chunk)
        except ValueError as error:
            self._give_up(str(error))
            return
        # Search only the new bytes: a chunk may be a single byte.
        before, end, after = chunk.rpartition(b"\n")
        if end:
            # "\r" alone ends a line, too, unless the next chunk starts with "\n".
            whole = bytes(self._rest + before).replace(b"\r\n", b"\n")
            self._rest.clear()
            for line in whole.split(b"\n"):
                for each in line.removesuffix(b"\r").split(b"\r"):
                    self._take(each)
        self._rest += after
        if self._data_size + len(self._rest) > _MOST_EVENT:
            self._give_up("it is too long")

    def _give_up(self, fault: str) -> None:
        self._fault = fault
        self._data_size = _MOST_EVENT + 1
        self._rest.clear()
        self._data.clear()

    def end(self) -> None:
        """Parse the rest: the last line, or a whole stream with "\\r" as its only ends of lines."""
        for line in bytes(self._rest).split(b"\r"):
            self._take(line)
        self._take(b"")
        self._rest.clear()

    def answer(self, cut_off: str = "") -> Answer:
        """Return the answer so far; ``cut_off`` is the reason if it is incomplete."""
        cut_off = self._fault or cut_off
        if not cut_off and not self.is_done and not self._is_finished:
            cut_off = "the upstream stopped early"
        content = "".join(self._content)
        if cut_off and (content or self._calls):
            content = f"{content}\n\n{CUT_OFF}: {cut_off}]".lstrip()
        calls = [call for _, call in sorted(self._calls.items()) if call.name]
        return Answer(
            content=read_content(content),
            tool_calls=tuple(tool_call(c.name, "".join(c.arguments), id=c.id) for c in calls),
        )

    def _take(self, line: bytes) -> None:
        if line:
            name, _, value = line.decode("utf-8", "replace").partition(":")
            if name == "data":
                self._data.append(value.removeprefix(" "))
                self._data_size += len(line) + _PER_LINE
            elif name == "event" and value.strip() == "error":
                self._fault = _ERROR
            return
        data = "\n".join(self._data)
        self._data.clear()
        self._data_size = 0
        if data == _DONE:
            self.is_done = True
        elif data:
            self._parse(data)

    def _parse(self, data: str) -> None:
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            return
        if isinstance(event, dict):
            self._take_event(event)

    def _take_event(self, event: Mapping[str, Any]) -> None:
        if isinstance(event.get("usage"), dict):
            self.usage = event["usage"]
        if event.get("error"):
            self._fault = _ERROR
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                self._is_finished |= bool(choice.get("finish_reason"))
                delta = choice.get("delta")
                if isinstance(delta, dict):
                    self._take_delta(delta)

    def _take_delta(self, delta: Mapping[str, Any]) -> None:
        for name in ("content", "refusal"):
            self._add(read_content(delta.get(name)))
        calls = delta.get("tool_calls")
        if isinstance(delta.get("function_call"), dict):
            calls = [{"index": 0, "function": delta["function_call"]}]
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._take_call(call)

    def _add(self, text: str) -> None:
        if text and self._size < MOST_CHARACTERS:
            self._content.append(text)
            self._size += len(text)

    def _take_call(self, call: Mapping[str, Any]) -> None:
        index = call.get("index", 0)
        if not isinstance(index, int) or len(self._calls) > 1000:
            return
        into = self._calls.setdefault(index, _Call())
        function = call.get("function")
        if isinstance(call.get("id"), str):
            into.id = call["id"]
        if isinstance(function, dict):
            if isinstance(function.get("name"), str) and not into.name:
                into.name = function["name"]
            arguments = function.get("arguments")
            if isinstance(arguments, str) and self._size < MOST_CHARACTERS:
                into.arguments.append(arguments)
                self._size += len(arguments)


class ResponseReader(StreamReader):
    """Assemble the answer of an event stream of the Responses API."""

    def _take_event(self, event: Mapping[str, Any]) -> None:
        kind, delta = event.get("type"), event.get("delta")
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            self._add(read_content(delta))
        elif kind == "error":
            self._fault = _ERROR
        elif isinstance(response := event.get("response"), dict):
            self._response_id = str(response.get("id", ""))
            if kind in ("response.completed", "response.incomplete"):
                self.is_done, self._whole = True, read_response(response)
                usage = response.get("usage")
                self.usage = usage if isinstance(usage, dict) else None
            elif kind == "response.failed":
                self._fault = _ERROR

    def answer(self, cut_off: str = "") -> Answer:
        """Return the answer so far; ``cut_off`` is the reason if it is incomplete."""
        if self._whole is not None:
            return self._whole
        return msgspec.structs.replace(super().answer(cut_off), id=self._response_id)

    _whole: Answer | None = None
    _response_id = ""


def read_response(body: Any) -> Answer:
    """Return the answer in a complete body of the Responses API."""
    output = body.get("output") if isinstance(body, dict) else None
    said = read_messages(output if isinstance(output, list) else [])
    response_id = body.get("id") if isinstance(body, dict) else None
    return Answer(
        content="\n\n".join(filter(None, (each.content for each in said))),
        tool_calls=tuple(call for each in said for call in each.tool_calls),
        id=response_id if isinstance(response_id, str) else "",
    )


def read_answer(body: Any) -> Answer:
    """Return the first choice of a complete body."""
    choices = body.get("choices") if isinstance(body, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(message, dict):
        return Answer()
    content = read_content(message.get("content")) or read_content(message.get("refusal"))
    return Answer(content=content, tool_calls=read_tool_calls(message))
