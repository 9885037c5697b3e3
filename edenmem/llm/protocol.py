"""The interface of a language model."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

import msgspec
from pydantic import BaseModel

from edenmem.models.formation import CallUsage

AnswerT = TypeVar("AnswerT", bound=BaseModel)


class LLMRequest(msgspec.Struct, Generic[AnswerT], frozen=True, kw_only=True):
    """One request to a language model.

    Attributes:
        task: Kind of request: "facts", "dedup", "reflections", "single", "verify",
            "consolidate", "shorten", "recall" or "propagate".
        key: Subject of the request, with names instead of IDs, so that a replay file stays valid
            when a prompt changes:

            - formation: ``<session>/<agent>/<seq>``
            - text to remember: ``remember/<agent>[/<user>]/<first words>``
            - consolidation: ``<kind>/<agent>[/<owner's name>]/<previous version>``
            - propagation: ``<kind>/<agent>/<owner's name>/<version>/<kind above>[/<group above>]``
            - merging: ``<kind>/<agent>[/<owner's name>]/<first words of the oldest fact>``

        model: Name of the model, selected by tier and policy.
        system: System prompt.
        user: User prompt.
        answer: Pydantic model that validates the answer.
        timeout: Total time limit in seconds, without retries (None: the setting).
        spent: Usage of the calls so far; complete for a cancelled request, too.
    """

    task: str
    key: str
    model: str
    system: str
    user: str
    answer: type[AnswerT]
    timeout: float | None = None
    spent: list[CallUsage] = msgspec.field(default_factory=list)


class LLMAnswer(msgspec.Struct, Generic[AnswerT], frozen=True, kw_only=True):
    """A validated answer, with the usage of each call."""

    value: AnswerT
    usage: tuple[CallUsage, ...] = ()


class LLM(Protocol):
    """A provider of language models; safe for concurrent calls in one event loop."""

    @property
    def description(self) -> str:
        """Return the source of answers to show: a host, or "scripted answers from FILE"."""

    @property
    def is_scripted(self) -> bool:
        """Return whether answers come from a file and not from a model."""

    async def ask(self, request: LLMRequest[AnswerT]) -> LLMAnswer[AnswerT]:
        """Return the validated answer, with retries, and within concurrency limit and budget.

        Raises:
            ProviderError: a subclass (see `edenmem.errors`).
        """

    async def close(self) -> None:
        """Close connections."""
