"""What several formats have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec.json import encode

from edenmem.engine.sessions.format import BadLine, parse_time
from edenmem.models.ids import derived_id

#: Items that are not taken over, by name.
LeftOut = Counter[str]

#: Fields with the ID of a chat.
_IDS = ("session_id", "conversation_id", "thread_id", "chat_id", "uuid", "id")


def fact(system: str, content: object, id: object = None, **fields: object) -> dict[str, Any]:
    """Return the line of a fact; missing fields are left out.

    The ID of the other system becomes the key, so that an import finds the fact again after its
    text changed.
    """
    line: dict[str, Any] = {"type": "fact", "content": content, **fields}
    if isinstance(metadata := line.get("metadata"), dict):
        line["metadata"] = {
            name: each if isinstance(each, str) else encode(each).decode()
            for name, each in metadata.items()
            if each not in (None, "")
        }
    for name in ("formed_at", "updated_at", "said_at", "expires_at"):
        line[name] = time(line.get(name))
    if line["updated_at"] == line["formed_at"]:
        line["updated_at"] = None
    if id is not None:
        line |= {"key": f"{system}:{id}", "source": f"{system} {id}"}
    return {name: value for name, value in line.items() if value is not None}


def session_name(
    system: str, item: Mapping[str, Any], *beginning: object, title: object = None
) -> str:
    """Return a name for a chat from its ID, or else from what its beginning has of its own.

    With a title, which people read better, it is the ID of the session with that name.
    """
    named = next((str(item[name]) for name in _IDS if item.get(name)), "")
    name = f"{system}-{named or derived_id('chat', str(beginning))[:12]}"
    return derived_id("session", name) if title else name


def time(value: object) -> object:
    """Return a time of any form in ISO 8601; an invalid one unchanged."""
    try:
        at = parse_time(value, "")
    except BadLine:
        return value
    return at.isoformat() if at is not None else None


def branch(parents: Mapping[str, str | None], leaf: str | None) -> list[str]:
    """Return the nodes of a tree from the root to a leaf."""
    path: dict[str, None] = {}
    while leaf in parents and leaf not in path:
        assert leaf is not None
        path[leaf] = None
        leaf = parents[leaf]
    return list(path)[::-1]


def text_of(parts: object, left_out: LeftOut, others: Mapping[str, str]) -> str:
    """Join the texts of a message in parts, and count the other parts.

    ``others`` are the names of kinds of parts; those of any other kind are counted as files.
    """
    texts: list[str] = []
    for part in parts if isinstance(parts, list) else [parts]:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            kind = part.get("type", part.get("content_type"))
            if isinstance(part.get("text"), str) and kind not in others:
                texts.append(part["text"])
            else:
                left_out[others.get(str(kind), "images and files")] += 1
    return "\n".join(text for text in texts if text.strip())
