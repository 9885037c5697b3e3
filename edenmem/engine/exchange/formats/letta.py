"""Agent files of Letta (.af of 2025 and 2026): memory blocks become facts, messages a chat."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from edenmem.engine.exchange.documents import read_pairs
from edenmem.engine.exchange.files import Source
from edenmem.engine.exchange.formats.common import LeftOut, fact, text_of, time
from edenmem.engine.exchange.formats.notes import statements

_PARTS = {"reasoning": "thoughts of the model", "redacted_reasoning": "thoughts of the model"}
_COUNTED = {"tools": "tools", "sources": "sources", "files": "files", "mcp_servers": "MCP servers"}
#: A tool with which agents of MemGPT answer.
_ANSWER = "send_message"


def read(source: Source, left_out: LeftOut) -> Iterator[tuple[int, Any]]:
    """Yield the lines of a file."""
    number, loose, name = 0, list[Any](), "agent"
    for number, field, item in read_pairs(source):
        if field in _COUNTED:
            left_out[_COUNTED[field]] += 1
        elif field == "name":
            name = item
        elif field == "messages":
            loose.append(item)
        elif field in ("blocks", "core_memory") and isinstance(item, dict):
            yield from ((number, line) for line in _facts(item, left_out))
        elif field == "agents" and isinstance(item, dict):
            left_out["system prompts and settings of agents"] += 1
            yield from _chat(number, item.get("name"), item.get("messages") or (), left_out)
    yield from _chat(number, name, loose, left_out)


def _facts(block: dict[str, Any], left_out: LeftOut) -> Iterator[dict[str, Any]]:
    label = str(block.get("label") or "")
    if "persona" in label:
        left_out["personas of agents"] += 1
        return
    for each in statements(str(block.get("value") or ""), left_out):
        yield fact("letta", each.text, formed_at=block.get("updated_at"), metadata={"block": label})


def _chat(
    number: int, name: object, messages: Any, left_out: LeftOut
) -> Iterator[tuple[int, dict[str, Any]]]:
    kept = [message for each in messages if (message := _message(each, left_out))]
    if kept:
        yield number, {"session": f"letta-{name}", "messages": kept}


def _message(given: dict[str, Any], left_out: LeftOut) -> dict[str, Any] | None:
    role = given.get("role")
    text = text_of(given.get("content", given.get("text")), left_out, _PARTS)
    if role == "system":
        left_out["system messages"] += 1
        return None
    if role == "user":
        if wrapped := _decoded(text):  # older agents wrap messages, and events
            is_said = wrapped.get("type") == "user_message"
            text = str(wrapped.get("message") or "") if is_said else ""
        if not text or text.startswith("<system-"):
            left_out["events of Letta"] += 1
            return None
    for call in given.get("tool_calls") or ():
        called = call.get("function") or {}
        if called.get("name") == _ANSWER:
            text = _decoded(called.get("arguments")).get("message") or text
        else:
            left_out["tool calls and results"] += 1
    if role not in ("user", "assistant"):
        left_out["tool calls and results"] += 1
        return None
    return (
        {"role": role, "content": text, "created_at": time(given.get("created_at"))}
        if text
        else None
    )


def _decoded(text: Any) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
