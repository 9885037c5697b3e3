"""What several frameworks need: items as facts, and the messages of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from edenmem import AgentMemory, Fact, FactFields, MemoryService, Message, SearchHit


class Items:
    """The facts with one tag in the memory of a user; without a user, in that of all users.

    Args:
        memory: The memory, from `MemoryService.memory_for`.
        tag: The tag that marks these facts.
    """

    def __init__(self, memory: AgentMemory, tag: str) -> None:
        self._memory, self._tags = memory, (tag,)
        self._shared = memory.user_id is None

    @classmethod
    async def open(
        cls, service: MemoryService, tag: str, agent: str, user: str | None, *, create: bool
    ) -> Items:
        """Open the items of a user, or of all; ``create`` adds an unknown agent or user.

        Raises:
            NotFoundError: The agent or the user does not exist.
        """
        if create:
            await service.ensure_agent(agent)
            if user is not None:
                await service.ensure_user(user)
        return cls(await service.memory_for(agent, user=user), tag)

    async def facts(self, path: str | None = None) -> list[Fact]:
        """Return all items, or the one with a path."""
        return await self._memory.facts(limit=None, tags=self._tags, key=path, shared=self._shared)

    async def search(self, query: str) -> list[SearchHit]:
        """Return the items that fit a query, best first."""
        report = await self._memory.search(query, top_k=100, tags=self._tags, shared=self._shared)
        return list(report.hits)

    async def put(
        self,
        path: str,
        text: str,
        value: Mapping[str, Any],
        *,
        minutes: float | None = None,
        version: int | None = None,
    ) -> None:
        """Write an item, which is found by its text and may expire after some minutes.

        See `AgentMemory.put_fact`.
        """
        expires_at = None if minutes is None else datetime.now(UTC) + timedelta(minutes=minutes)
        fields = FactFields(key=path, tags=self._tags, value=dict(value), expires_at=expires_at)
        await self._memory.put_fact(text, shared=self._shared, fields=fields, version=version)

    async def move(self, fact: Fact, path: str) -> None:
        """Give an item another path."""
        fields = FactFields(key=path, tags=fact.tags, value=fact.value)
        await self._memory.edit_fact(fact.id, version=fact.version, fields=fields)

    async def delete(self, path: str) -> None:
        """Delete the item with a path, if there is one."""
        for fact in await self.facts(path):
            await self._memory.forget_fact(fact.id)


def path_of(*names: str) -> str:
    """Return the path with these names, which may contain slashes."""
    return "/".join(name.replace("%", "%25").replace("/", "%2F") for name in names)


def names_of(path: str) -> list[str]:
    """Return the names of a path from `path_of`."""
    return [unquote(name) for name in path.split("/")]


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
