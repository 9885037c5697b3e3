"""The messages of a session, for frameworks that read their history back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from edenmem import MemoryService, Message


class Conversation:
    """A session of an agent and a user, which the first call creates.

    Args:
        service: The service.
        session: The key of the conversation at the host.
        agent: Name or ID of the agent.
        user: Name or ID of the user (None: no known user, and no user memory).
    """

    def __init__(
        self, service: MemoryService, session: str, *, agent: str, user: str | None
    ) -> None:
        self.service = service
        self._key, self._agents, self._users = session, [agent], [user] if user else []
        self._id = ""

    async def id(self) -> str:
        """Return the ID of the session."""
        if not self._id:
            session = await self.service.ensure_session(
                self._key, agents=self._agents, users=self._users
            )
            self._id = session.id
        return self._id

    async def messages(self) -> list[Message]:
        """Return the messages that were not taken back."""
        found = self.service.host.messages(await self.id())
        return [each for each in await asyncio.to_thread(list, found) if not is_empty(each)]

    async def add(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Add messages in the form of chat APIs; see `MemoryService.add_messages`."""
        await self.service.add_messages(await self.id(), messages)

    async def retract(self, messages: Sequence[Message]) -> None:
        """Take messages back; see `MemoryService.retract_messages`."""
        await self.service.retract_messages(await self.id(), [each.id for each in messages])


def is_empty(message: Message) -> bool:
    """Return whether a message has no content, like those that were taken back."""
    return not (message.content or message.tool_calls)
