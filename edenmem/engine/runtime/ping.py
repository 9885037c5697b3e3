"""Check whether a model answers, with one short question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from edenmem.llm.protocol import LLMRequest

if TYPE_CHECKING:
    from edenmem.llm.protocol import LLM
    from edenmem.models.formation import CallUsage


class Pong(BaseModel):
    """The answer."""

    ok: bool


async def ping(llm: LLM, model: str) -> tuple[CallUsage, ...]:
    """Send a short question to a model, and return its usage.

    Raises:
        ProviderError: the model gave no answer, or an invalid one.
    """
    request = LLMRequest(
        task="doctor",
        key="doctor",
        model=model,
        system="You answer a check of the connection.",
        user='Answer {"ok": true}.',
        answer=Pong,
    )
    return (await llm.ask(request)).usage
