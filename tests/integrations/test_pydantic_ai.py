"""The tools for Pydantic AI, in a run with a scripted model."""

from __future__ import annotations

from typing import Any

import pytest

from edenmem import SyncMemoryService

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from edenmem.integrations.pydantic_ai import memory_tools


def test_an_agent_remembers_finds_and_forgets(service: SyncMemoryService) -> None:
    memory = service.memory_for("mira", user="lena")
    calls = [
        ToolCallPart("remember_fact", {"fact": "The key is sk-proj-" + "a1B2" * 12}),
        ToolCallPart("remember_fact", {"fact": "Lena drinks green tea."}),
        ToolCallPart("search_memory", {"query": "tea"}),
    ]
    seen: list[Any] = []

    def answer(messages: list[Any], info: Any) -> ModelResponse:
        seen.append((messages[-1], info.instructions, sorted(t.name for t in info.function_tools)))
        return ModelResponse([calls.pop(0) if calls else TextPart("Noted.")])

    agent = Agent(FunctionModel(answer), toolsets=[memory_tools(memory.memory)])
    assert service.run(agent.run("I drink green tea.")).output == "Noted."
    _, instructions, names = seen[0]
    assert names == ["forget_fact", "remember_fact", "search_memory"]
    assert "<MemoryContext" in instructions
    replies = [message.parts[0].content for message, _, _ in seen[1:]]
    assert "must not be remembered" in str(replies[0])
    (fact,) = memory.facts()
    assert replies[1:] == [f"stored as {fact.id}", [f"{fact.id}: Lena drinks green tea."]]
    assert "Lena drinks green tea." in seen[-1][1]

    calls.append(ToolCallPart("forget_fact", {"fact_id": fact.id}))
    calls.append(ToolCallPart("forget_fact", {"fact_id": fact.id}))
    service.run(agent.run("Forget the tea."))
    assert memory.facts() == []
