"""The smallest question to a language model, to see that it answers."""

from __future__ import annotations

from pydantic import BaseModel

from edenmem.llm.protocol import LLM, LLMRequest


class Pong(BaseModel):
    """The answer."""

    ok: bool


async def ping(llm: LLM, model: str) -> None:
    """Ask a model for one word.

    Raises:
        ProviderError: it does not answer, or not as it was asked to.
    """
    await llm.ask(
        LLMRequest(
            task="doctor",
            key="doctor",
            model=model,
            system="You answer a check of the connection.",
            user='Answer {"ok": true}.',
            answer=Pong,
        )
    )
