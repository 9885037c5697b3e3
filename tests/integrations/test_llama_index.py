"""The memory for LlamaIndex, compared with the framework's own buffer, and in a chat."""

from __future__ import annotations

from typing import Any

import pytest

from edenmem import SyncMemoryService

pytest.importorskip("llama_index.core")

from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.core.memory import BaseMemory, ChatMemoryBuffer

from edenmem.integrations.llama_index import EdenmemMemory


def said(role: str, text: str) -> ChatMessage:
    return ChatMessage(role=role, content=text)


def answers(memory: BaseMemory) -> list[Any]:
    """Return what a memory answers after the same calls."""
    texts = []

    def look() -> None:
        texts.append([(each.role.value, each.content) for each in memory.get_all()])

    look()
    memory.put(said("user", "When?"))
    memory.put_messages([said("assistant", "On 3 March."), said("user", "Sure?")])
    look()
    memory.set([said("user", "When?"), said("assistant", "On 4 March.")])
    look()
    memory.set([said("user", "When?"), said("assistant", "On 4 March."), said("user", "Oh.")])
    look()
    memory.reset()
    look()
    memory.put(said("user", "Hello."))
    look()
    return texts


def test_it_answers_as_the_buffer_of_the_framework(service: SyncMemoryService) -> None:
    memory = EdenmemMemory.from_defaults(service=service, session="a", agent="mira", user="lena")
    assert answers(memory) == answers(ChatMemoryBuffer.from_defaults(token_limit=9_999))


def test_a_chat_has_memory_and_history(service: SyncMemoryService) -> None:
    service.memory_for("mira", user="lena").add_fact("Lena drinks green tea.")
    for question in ("Hello.", "Again."):
        memory = EdenmemMemory.from_defaults(
            service=service, session="chat", agent="mira", user="lena"
        )
        engine = SimpleChatEngine.from_defaults(llm=MockLLM(), memory=memory)
        answer = engine.chat(question)
    assert "Lena drinks green tea." in str(answer)  # the mock repeats what it is given
    session = service.ensure_session("chat", agents=["mira"])
    kept = [each.content for each in service.service.host.messages(session.id)]
    assert (kept[0], kept[2], len(kept)) == ("Hello.", "Again.", 4)
