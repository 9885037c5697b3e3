"""ChatGPT's export (2023 to 2026): conversations.json, its parts, or the zip that has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edenmem.engine.exchange.documents import read_items
from edenmem.engine.exchange.files import Source
from edenmem.engine.exchange.formats.common import LeftOut, branch, session_name, text_of, time

#: Kinds of content that are no part of the talk.
_INTERNAL = {
    "user_editable_context": "custom instructions",
    "model_editable_context": "memories of the model",
    "thoughts": "thoughts of the model",
    "reasoning_recap": "thoughts of the model",
}
_TALK = ("text", "multimodal_text")


def read(source: Source, left_out: LeftOut) -> Iterator[tuple[int, Any]]:
    """Yield the lines of a file: of each conversation the branch that ChatGPT shows."""
    for number, item in read_items(source, "conversations"):
        if not isinstance(item, dict) or not isinstance(item.get("mapping"), dict):
            yield number, item
            continue
        nodes = {id: node for id, node in item["mapping"].items() if isinstance(node, dict)}
        parents = {id: node.get("parent") for id, node in nodes.items()}
        shown = branch(parents, item.get("current_node")) or branch(
            parents, next(reversed(nodes), None)
        )
        aside = LeftOut()
        others = [_message(nodes[id], aside) for id in nodes.keys() - set(shown)]
        left_out["messages of other branches"] += sum(each is not None for each in others)
        messages = [message for id in shown if (message := _message(nodes[id], left_out))]
        if not messages:
            left_out["empty conversations"] += 1
            continue
        title, created = item.get("title"), item.get("create_time")
        yield (
            number,
            {
                "session": session_name("chatgpt", item, created, messages[0], title=title),
                "title": title,
                "created_at": time(created),
                "incognito": item.get("is_do_not_remember") is True,
                "messages": messages,
            },
        )


def _message(node: dict[str, Any], left_out: LeftOut) -> dict[str, Any] | None:
    """Return a message, or None for what people do not see."""
    message = node.get("message")
    if not isinstance(message, dict):
        return None
    role, content = (message.get("author") or {}).get("role"), message.get("content") or {}
    kind, details = content.get("content_type"), message.get("metadata") or {}
    name = _INTERNAL.get(str(kind))
    if (name is None and role == "system") or details.get("is_visually_hidden_from_conversation"):
        name = "hidden messages"
    elif name is None and (
        role == "tool" or kind not in _TALK or message.get("recipient") not in (None, "all")
    ):
        name = "tool calls and results"
    if name is not None:
        left_out[name] += any(content.get("parts") or [True])
        return None
    left_out["images and files"] += len(details.get("attachments") or ())
    text = text_of(content.get("parts"), left_out, {})
    if not text:
        return None
    return {"role": role, "content": text, "created_at": time(message.get("create_time"))}
