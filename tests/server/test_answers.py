"""An answer in an event stream, as it is put together for the store."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edenmem.engine.chats.messages import CUT_OFF
from edenmem.server.proxy.answers import StreamReader


def _event(content: str = "", finish: str | None = None, **fields: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice], **fields}).encode() + b"\n\n"


def _read(*chunks: bytes) -> str:
    reader = StreamReader()
    for chunk in chunks:
        reader.feed(chunk)
    reader.end()
    return reader.answer().content


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_pieces_of_any_size_make_the_same_answer(end: bytes) -> None:
    data = (_event("one\n") + _event("twö", "stop")).replace(b"\n", end)
    for size in (1, 2, 7, len(data)):
        pieces = [data[place : place + size] for place in range(0, len(data), size)]
        assert _read(*pieces) == "one\ntwö"


@pytest.mark.parametrize(
    "last",
    [
        b'data: {"error": {"message": "boom"}}\n\n',
        b'data: {"error": {"message": "boom"}}\n\ndata: [DONE]\n\n',
        b'event: error\ndata: {"message": "boom"}\n\ndata: [DONE]\n\n',
        b"",
        b": still there\n\n",
    ],
)
def test_an_answer_without_its_end_is_marked(last: bytes) -> None:
    assert _read(_event("half"), last).startswith(f"half\n\n{CUT_OFF}: the upstream ")


@pytest.mark.parametrize("last", [b"data: [DONE]\n\n", _event("", "length")])
def test_an_answer_with_its_end_is_whole(last: bytes) -> None:
    assert _read(_event("whole"), last) == "whole"


def test_an_event_without_end_is_given_up() -> None:
    for endless in (b"data: " + b"A" * 1000 + b"\n", b"data:\n" * 100, b"A" * 1000):
        reader = StreamReader()
        reader.feed(_event("half"))
        for _ in range(10_000):
            reader.feed(endless)
        reader.feed(b"\n\n" + _event("more", "stop"))
        assert reader.answer().content == f"half\n\n{CUT_OFF}: it is too long]"
