"""`EdenmemSession`: a session of the OpenAI Agents SDK whose items are messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from edenmem import MemoryService, Message
from edenmem.integrations.common import Conversation

if TYPE_CHECKING:
    from agents import SessionSettings, TResponseInputItem


class EdenmemSession:
    """A session of the OpenAI Agents SDK, from which memory can be formed.

    Messages keep their text, calls of functions their name, arguments and result. Items of other
    types, such as reasoning, are not stored. Call `MemoryService.maybe_form_memories` after a run.

    Args:
        service: The service.
        session_id: The key of the conversation.
        agent: Name or ID of the agent.
        user: Name or ID of the user (None: no known user, and no user memory).
    """

    session_settings: SessionSettings | None = None

    def __init__(
        self, service: MemoryService, session_id: str, *, agent: str, user: str | None = None
    ) -> None:
        self.session_id = session_id
        self._talk = Conversation(service, session_id, agent=agent, user=user)

    async def id(self) -> str:
        """Return the ID of the session, which the first call creates."""
        return await self._talk.id()

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the newest items, oldest first."""
        items = [_item(message) for message in await self._talk.messages()]
        return items if limit is None else items[len(items) - limit :] if limit > 0 else []

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items."""
        read = [_message(cast(Mapping[str, Any], item)) for item in items]
        await self._talk.add([message for message in read if message is not None])

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the last item back; see `MemoryService.retract_messages`."""
        last = (await self._talk.messages())[-1:]
        await self._talk.retract(last)
        return _item(last[0]) if last else None

    async def clear_session(self) -> None:
        """Take all items back; see `MemoryService.retract_messages`."""
        await self._talk.retract(await self._talk.messages())


def _message(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a message in the form of chat APIs, or None for an item that is not stored."""
    kind = item.get("type", "message")
    if kind == "function_call":
        call = {"id": item["call_id"], "function": item}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if kind == "function_call_output":
        output = item["output"]
        text = output if isinstance(output, str) else json.dumps(output)
        return {"role": "tool", "content": text or "(empty)", "name": item["call_id"]}
    if kind == "message" and "role" in item:
        return {"role": item["role"], "content": item["content"]}
    return None


def _item(message: Message) -> TResponseInputItem:
    item: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "tool":
        item = {"type": "function_call_output", "call_id": message.name, "output": message.content}
    for call in message.tool_calls:
        arguments = call.args if isinstance(call.args, str) else json.dumps(call.args)
        item = {"type": "function_call", "call_id": call.id, "name": call.tool}
        item["arguments"] = arguments
    return cast("TResponseInputItem", item)
