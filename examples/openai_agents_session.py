"""A session of the OpenAI Agents SDK whose messages form memory.

    pip install . openai-agents
    python examples/openai_agents_session.py

Two runs continue one conversation, which edenmem keeps. The answers are scripted; remove `Script`
to use a model of OpenAI, and with a model for edenmem call ``maybe_form_memories`` after each run.
"""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

try:
    from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText
except ImportError as error:
    raise SystemExit(f"{error}: install openai-agents") from error

from edenmem import MemoryService, load_settings
from edenmem.integrations.openai_agents import EdenmemSession


class Script(Model):
    """Answers with the number of messages that it sees."""

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
        """Return the next answer."""
        text = f"I see {len(input)} messages. The first: {input[0]['content']}"
        part = ResponseOutputText(text=text, type="output_text", annotations=[])
        answer = ResponseOutputMessage(
            id="answer", content=[part], role="assistant", status="completed", type="message"
        )
        return ModelResponse(output=[answer], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        """Scripts are not streamed."""
        raise NotImplementedError


async def main(folder: str) -> None:
    """Run an agent twice in one session."""
    set_tracing_disabled(True)
    settings = load_settings(overrides={"store.uri": f"sqlite:///{folder}/memory.db"}).settings
    async with MemoryService.from_settings(settings) as service:
        await service.initialize()
        for question in ("My workshop opens on 3 March.", "When does it open?"):
            session = EdenmemSession(service, "chat-42", agent="mira", user="lena")
            context = await service.get_memory_context(await session.id(), message=question)
            agent = Agent(name="Mira", model=Script(), instructions=f"You remember:\n{context}")
            result = await Runner.run(agent, question, session=session)
            print(f"lena: {question}\nmira: {result.final_output}")
            if service.can_form:
                await service.maybe_form_memories(await session.id())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(folder))
