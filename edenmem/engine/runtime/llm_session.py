"""The questions of one piece of work to a language model, and what they cost together."""

from __future__ import annotations

from edenmem.engine.runtime.prompts import render
from edenmem.errors import ProviderError
from edenmem.llm.protocol import LLM, AnswerT, LLMRequest
from edenmem.models.formation import CallUsage


class Asker:
    """Asks about one thing, named by ``key`` (see `edenmem.llm.protocol.LLMRequest`).

    ``spent`` grows with each answer, and with what a failure cost, so that whoever handles an
    error later knows what was paid.
    """

    def __init__(self, llm: LLM, key: str) -> None:
        self.spent: list[CallUsage] = []
        self._llm = llm
        self._key = key

    async def ask(
        self, task: str, answer: type[AnswerT], *, model: str, **values: object
    ) -> AnswerT:
        """Render the task's prompt with ``values`` and return the validated answer.

        Raises:
            ProviderError: no valid answer was to be had.
        """
        system, user = render(task, **values)
        request = LLMRequest(
            task=task, key=self._key, model=model, system=system, user=user, answer=answer
        )
        try:
            reply = await self._llm.ask(request)
        except ProviderError as error:
            self.spent.extend(error.usage)
            raise
        self.spent.extend(reply.usage)
        return reply.value
