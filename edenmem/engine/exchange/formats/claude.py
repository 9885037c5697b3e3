"""Claude's export (2024 to 2026): conversations.json, or the zip that has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edenmem.engine.exchange.documents import read_items
from edenmem.engine.exchange.files import Source
from edenmem.engine.exchange.formats.common import LeftOut, branch, session_name, text_of, time

_PARTS = {
    "thinking": "thoughts of the model",
    "tool_use": "tool calls and results",
    "tool_result": "tool calls and results",
}


def read(source: Source, left_out: LeftOut) -> Iterator[tuple[int, Any]]:
    """Yield the lines of a file: of each conversation the last branch."""
    for number, item in read_items(source, "conversations"):
        if not isinstance(item, dict) or not isinstance(item.get("chat_messages"), list):
            yield number, item
            continue
        given = [each for each in item["chat_messages"] if isinstance(each, dict)]
        shown = _branch(given, item.get("current_leaf_message_uuid"))
        left_out["messages of other branches"] += len(given) - len(shown)
        messages = [message for each in shown if (message := _message(each, left_out))]
        if not messages:
            left_out["empty conversations"] += 1
            continue
        yield (
            number,
            {
                "session": session_name("claude", item, messages[0], title=item.get("name")),
                "title": item.get("name"),
                "created_at": time(item.get("created_at")),
                "messages": messages,
            },
        )


def _branch(given: list[dict[str, Any]], leaf: str | None) -> list[dict[str, Any]]:
    """Return the messages up to a leaf (None: the last one); all if they name no parents."""
    if not given or not any(each.get("parent_message_uuid") for each in given):
        return given
    by_id = {str(each.get("uuid")): each for each in given}
    parents = {id: each.get("parent_message_uuid") for id, each in by_id.items()}
    return [by_id[id] for id in branch(parents, leaf or str(given[-1].get("uuid")))]


def _message(given: dict[str, Any], left_out: LeftOut) -> dict[str, Any] | None:
    files = [*(given.get("attachments") or ()), *(given.get("files") or ())]
    left_out["images and files"] += len(files)
    text = text_of(given.get("content"), left_out, _PARTS) or given.get("text")
    if not text:
        return None
    return {
        "role": given.get("sender", given.get("role")),
        "content": text,
        "created_at": time(given.get("created_at")),
    }
