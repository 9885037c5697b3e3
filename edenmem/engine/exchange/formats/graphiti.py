"""Episodes of Graphiti (0.29) and Zep: episodes of messages are chats, facts and texts facts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edenmem.engine.exchange.documents import read_items
from edenmem.engine.exchange.files import Source
from edenmem.engine.exchange.formats.common import LeftOut, fact, time
from edenmem.engine.exchange.formats.notes import statements

#: Names of speakers that are roles, or mean one.
_ROLES = {
    **dict.fromkeys(("user", "human", "customer"), "user"),
    **dict.fromkeys(("assistant", "ai", "bot", "agent"), "assistant"),
    "system": "system",
}


def read(source: Source, left_out: LeftOut) -> Iterator[tuple[int, Any]]:
    """Yield the lines of a file. Messages are collected, since those of chats are mixed."""
    chats: dict[str, list[dict[str, Any]]] = {}
    number = 0
    for number, item in read_items(source, "episodes", "edges"):
        if not isinstance(item, dict):
            yield number, item
            continue
        at = item.get("valid_at") or item.get("created_at")
        if "fact" in item:
            if item.get("invalid_at") or item.get("expired_at"):
                left_out["facts that are no longer true"] += 1
            else:
                yield number, fact("graphiti", item["fact"], item.get("uuid"), formed_at=at)
        elif item.get("source", "message" if item.get("role_type") else "text") == "message":
            key = item.get("thread_id") or item.get("session_id") or item.get("group_id")
            chats.setdefault(f"graphiti-{key}", []).append(_message(item, at))
        elif item.get("source") == "json":
            left_out["episodes with JSON"] += 1
        else:
            for each in statements(str(item.get("content") or ""), left_out):
                yield number, fact("graphiti", each.text, formed_at=at)
    for name, messages in chats.items():
        messages.sort(key=lambda message: str(message["created_at"] or ""))
        yield number, {"session": name, "messages": messages}


def _message(item: dict[str, Any], at: object) -> dict[str, Any]:
    """Return a message; the content of an episode of Graphiti begins with the speaker."""
    content = str(item.get("content") or "")
    role, name = item.get("role_type"), item.get("role")
    if role is None:
        speaker, colon, text = content.partition(":")
        named = speaker.strip() if colon and "\n" not in speaker and len(speaker) < 60 else "user"
        content = text.strip() if colon and named else content
        role = _ROLES.get(named.casefold(), "user")
        name = None if named.casefold() in _ROLES else named
    role = _ROLES.get(str(role), "system")
    return {
        "role": role,
        "content": content,
        "name": name if role == "user" else None,
        "created_at": time(at),
    }
