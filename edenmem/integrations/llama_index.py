"""`EdenmemMemory`: the memory of a LlamaIndex agent: what it remembers, and its conversation."""

from __future__ import annotations

from itertools import takewhile
from typing import Any, Self

from edenmem import Message, SyncMemoryService
from edenmem.integrations import for_prompt, requires
from edenmem.integrations.common import Conversation

with requires("llama-index-core"):
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.llms import ChatMessage
    from llama_index.core.memory import BaseMemory

_KEPT = ("user", "assistant")


class EdenmemMemory(BaseMemory):
    """The memory of a LlamaIndex agent or chat engine, for one conversation.

    The memory of agent and user comes first, as a system message, then the conversation. Texts of
    user and agent are kept; calls of tools and their results are not. Call
    `SyncMemoryService.maybe_form_memories` after an answer.
    """

    _service: SyncMemoryService = PrivateAttr()
    _talk: Conversation = PrivateAttr()

    @classmethod
    def from_defaults(cls, **kwargs: Any) -> Self:
        """Return the memory of a conversation.

        Args:
            **kwargs: ``service`` (a `SyncMemoryService`), ``session`` (the key of the
                conversation), ``agent``, and ``user`` if there is one (names or IDs).
        """
        made = cls()
        made._service = kwargs.pop("service")
        made._talk = Conversation(made._service.service, **{"user": None, **kwargs})
        return made

    def get(self, input: str | None = None, **_: Any) -> list[ChatMessage]:
        """Return the memory, with what fits the input, and the conversation."""
        session_id = self._service.run(self._talk.id())
        xml = self._service.get_memory_context(session_id, message=input)
        return [ChatMessage(role="system", content=for_prompt(xml)), *self.get_all()]

    def get_all(self) -> list[ChatMessage]:
        """Return the conversation."""
        return [ChatMessage(role=each.role, content=each.content) for each in self._messages()]

    def put(self, message: ChatMessage) -> None:
        """Add a message to the conversation."""
        self.put_messages([message])

    def put_messages(self, messages: list[ChatMessage]) -> None:
        """Add messages to the conversation."""
        self._service.run(self._talk.add([_message(each) for each in messages if _is_kept(each)]))

    def set(self, messages: list[ChatMessage]) -> None:
        """Make this the conversation: take back the messages that differ, and add the rest."""
        stored, wanted = self._messages(), [each for each in messages if _is_kept(each)]
        pairs = zip(stored, map(_message, wanted), strict=False)
        is_same = ((old.role, old.content) == (new["role"], new["content"]) for old, new in pairs)
        common = sum(takewhile(bool, is_same))
        self._service.run(self._talk.retract(stored[common:]))
        self.put_messages(wanted[common:])

    def reset(self) -> None:
        """Take all messages back; see `MemoryService.retract_messages`."""
        self._service.run(self._talk.retract(self._messages()))

    def _messages(self) -> list[Message]:
        found = self._service.run(self._talk.messages())
        return [each for each in found if each.role in _KEPT and each.content]


def _is_kept(message: ChatMessage) -> bool:
    return message.role.value in _KEPT and bool(message.content)


def _message(message: ChatMessage) -> dict[str, Any]:
    return {"role": message.role.value, "content": str(message.content)}
