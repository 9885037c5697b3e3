"""The answer of an upstream, read beside its way to the client. Nothing here fails a chat."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from edenmem.engine.chats.messages import (
    CUT_OFF,
    MOST_CHARACTERS,
    read_content,
    read_tool_calls,
    tool_call,
)
from edenmem.engine.chats.sessions import Answer

#: A longer body is not read.
_MOST_BYTES = 64 * 1024 * 1024
#: After a longer event a stream is not read on.
_MOST_EVENT = 4 * 1024 * 1024
#: What a line of an event takes beside its text, about.
_PER_LINE = 64
_DONE = "[DONE]"
_ERROR = "the upstream reported an error"


class Decoder:
    """Undoes the encoding of a body, as far as it is known.

    Args:
        encoding: The header ``Content-Encoding``.
    """

    def __init__(self, encoding: str) -> None:
        self.is_known = encoding in ("", "identity", "gzip", "deflate")
        self._inflate = zlib.decompressobj(wbits=47) if encoding in ("gzip", "deflate") else None
        self._size = 0

    def decode(self, data: bytes) -> bytes:
        """Return the next part of the plain body; nothing once it cannot be read."""
        if not self.is_known:
            return b""
        if self._inflate is None:
            return data
        try:
            plain = self._inflate.decompress(data, _MOST_BYTES)
        except zlib.error:
            self.is_known = False
            return b""
        self._size += len(plain)
        if self._size > _MOST_BYTES or self._inflate.unconsumed_tail:
            self.is_known = False
        return plain


class _Call:
    def __init__(self) -> None:
        self.id = self.name = ""
        self.arguments: list[str] = []


class StreamReader:
    """Puts the answer of an event stream together. Of several choices it is the first."""

    def __init__(self, encoding: str = "") -> None:
        self._decoder = Decoder(encoding)
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
        """Take the next bytes."""
        if self._data_size > _MOST_EVENT:
            return
        # Only what is new is searched: a chunk may be as short as a byte.
        before, end, after = self._decoder.decode(chunk).rpartition(b"\n")
        if end:
            # A lone "\r" ends a line too, but not before it is known not to begin "\r\n".
            whole = bytes(self._rest + before).replace(b"\r\n", b"\n")
            self._rest.clear()
            for line in whole.split(b"\n"):
                for each in line.removesuffix(b"\r").split(b"\r"):
                    self._take(each)
        self._rest += after
        if self._data_size + len(self._rest) > _MOST_EVENT:
            self._fault = "it is too long to be read"
            self._data_size = _MOST_EVENT + 1
            self._rest.clear()
            self._data.clear()

    def end(self) -> None:
        """Take what stands without an end of line."""
        self._take(bytes(self._rest))
        self._take(b"")
        self._rest.clear()

    def answer(self, cut_off: str = "") -> Answer:
        """Return what has arrived; ``cut_off`` says why it is not whole, if the stream itself does
        not."""
        cut_off = self._fault or cut_off
        if not cut_off and not self.is_done and not self._is_finished:
            cut_off = "the upstream stopped before its end"
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
            self._take_event(data)

    def _take_event(self, data: str) -> None:
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            return
        if not isinstance(event, dict):
            return
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
            text = read_content(delta.get(name))
            if text and self._size < MOST_CHARACTERS:
                self._content.append(text)
                self._size += len(text)
        calls = delta.get("tool_calls")
        if isinstance(delta.get("function_call"), dict):
            calls = [{"index": 0, "function": delta["function_call"]}]
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._take_call(call)

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


def read_answer(body: Any) -> Answer:
    """Return the answer of a whole body: that of its first choice."""
    choices = body.get("choices") if isinstance(body, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(message, dict):
        return Answer()
    content = read_content(message.get("content")) or read_content(message.get("refusal"))
    return Answer(content=content, tool_calls=read_tool_calls(message))
