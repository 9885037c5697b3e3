"""Lists of messages as in OpenAI's chat API: one list, many, or an object with each list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from edenmem.engine.exchange.documents import read_pairs
from edenmem.engine.exchange.files import Source
from edenmem.engine.exchange.formats.common import LeftOut, session_name

_TIMES = ("created_at", "timestamp", "create_time", "created", "time")


def read(source: Source, left_out: LeftOut) -> Iterator[tuple[int, Any]]:
    """Yield the lines of a file; messages that no list holds are one chat."""
    loose: list[Any] = []
    fields: dict[str, Any] = {}
    number = 0
    for number, field, item in read_pairs(source):
        if field and field != "messages":
            fields[field] = item
        elif isinstance(item, list):
            yield number, _chat({"messages": item}, source.name, number)
        elif isinstance(item, dict) and isinstance(item.get("messages"), list):
            yield number, _chat(item, source.name, number)
        elif isinstance(item, dict) and "role" in item:
            loose.append(item)
        else:
            yield number, item
    if loose:
        yield number, _chat({**fields, "messages": loose}, source.name, 1)


def _chat(item: dict[str, Any], file: str, number: int) -> dict[str, Any]:
    """Return the line of a chat. It is recognized by its ID, else by file and beginning."""
    messages = [_message(each) for each in item["messages"]]
    return {
        "session": session_name("chat", item, PurePath(file).stem, number, messages[:1]),
        "title": item.get("title"),
        "messages": messages,
    }


def _message(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    at = next((given[name] for name in _TIMES if given.get(name) is not None), None)
    return {**{n: v for n, v in given.items() if n not in _TIMES}, "created_at": at}
