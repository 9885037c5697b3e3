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
#: A longer line of an event stream is not read.
_MOST_LINE = 4 * 1024 * 1024
_DONE = "[DONE]"


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
        self.id = self.name = self.arguments = ""


class StreamReader:
    """Puts the answer of an event stream together. Of several choices it is the first."""

    def __init__(self, encoding: str = "") -> None:
        self._decoder = Decoder(encoding)
        self._rest = b""
        self._data: list[str] = []
        self._content: list[str] = []
        self._size = 0
        self._calls: dict[int, _Call] = {}
        self.is_done = False
        self.usage: Mapping[str, Any] | None = None

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        data = self._rest + self._decoder.decode(chunk)
        # A lone "\r" ends a line too, but not before it is known not to begin "\r\n".
        lines = data.replace(b"\r\n", b"\n").split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > _MOST_LINE:
            self._rest = b""
        for line in lines:
            for each in line.removesuffix(b"\r").split(b"\r"):
                self._take(each)

    def end(self) -> None:
        """Take what stands without an end of line."""
        self._take(self._rest)
        self._take(b"")
        self._rest = b""

    def answer(self, cut_off: str = "") -> Answer:
        """Return what has arrived; ``cut_off`` says why it is not whole."""
        content = "".join(self._content)
        if cut_off and (content or self._calls):
            content = f"{content}\n\n{CUT_OFF}: {cut_off}]".lstrip()
        calls = [call for _, call in sorted(self._calls.items()) if call.name]
        return Answer(
            content=read_content(content),
            tool_calls=tuple(tool_call(c.name, c.arguments, id=c.id) for c in calls),
        )

    def _take(self, line: bytes) -> None:
        if line:
            name, _, value = line.decode("utf-8", "replace").partition(":")
            if name == "data":
                self._data.append(value.removeprefix(" "))
            return
        data, self._data = "\n".join(self._data), []
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
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
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
                into.arguments += arguments
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
