"""Memory as tools of a Pydantic AI agent.

    pip install . pydantic-ai-slim
    python examples/pydantic_ai_tools.py

The agent remembers a fact in the first run and finds it in the second. The model is scripted; put
the name of a model in its place.
"""

from __future__ import annotations

import asyncio
import tempfile

try:
    from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel
except ImportError as error:
    raise SystemExit(f"{error}: install pydantic-ai-slim") from error

from edenmem import MemoryService, load_settings
from edenmem.integrations.pydantic_ai import memory_tools


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Remember statements, search for questions, and repeat what the tools return."""
    part = messages[-1].parts[-1]
    content = str(getattr(part, "content", ""))
    if part.part_kind == "tool-return":
        return ModelResponse([TextPart(content)])
    if content.endswith("?"):
        return ModelResponse([ToolCallPart("search_memory", {"query": content})])
    return ModelResponse([ToolCallPart("remember_fact", {"fact": content})])


async def main(folder: str) -> None:
    """Run the agent twice."""
    settings = load_settings(overrides={"store.uri": f"sqlite:///{folder}/memory.db"}).settings
    async with MemoryService.from_settings(settings) as service:
        await service.initialize()
        await service.ensure_agent("mira")
        await service.ensure_user("lena")
        memory = await service.memory_for("mira", user="lena")
        agent = Agent(FunctionModel(script), toolsets=[memory_tools(memory)])
        for text in ("Lena's workshop opens on 3 March.", "When does the workshop open?"):
            result = await agent.run(text)
            print(f"lena: {text}\nmira: {result.output}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(folder))
