"""What the engine asks of a language model."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

import msgspec
from pydantic import BaseModel

from edenmem.models.formation import CallUsage

AnswerT = TypeVar("AnswerT", bound=BaseModel)


class LLMRequest(msgspec.Struct, Generic[AnswerT], frozen=True, kw_only=True):
    """One request. ``answer`` is the pydantic model that the answer must validate against.

    ``task`` says what is asked ("facts", "dedup", "reflections", "single", "rewrite",
    "consolidate", "shorten", "recall", "propagate", "merge"). ``model`` is a model's name, already
    chosen by tier and policy. ``timeout`` is the seconds that all of it may take, without retries;
    None: as the settings say. ``key`` says about what, in names and not in ids, so that a replay
    file stays true when a prompt is edited:

    - formation: ``<session>/<agent>/<seq>``
    - a text to remember: ``remember/<agent>[/<user>]/<beginning of it>``
    - consolidation: ``<kind>/<agent>[/<owner's name>]/<version it starts from>``
    - propagation: ``<kind>/<agent>/<owner's name>/<version>/<kind above>[/<group above>]``
    - merging: ``<kind>/<agent>[/<owner's name>]/<beginning of the oldest fact>``

    ``spent`` grows with each call that is made for it, so that what a cancelled request has cost
    is known too.
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
    """A validated answer, and what it cost (each call that was made for it)."""

    value: AnswerT
    usage: tuple[CallUsage, ...] = ()


class LLM(Protocol):
    """A provider of language models. Safe to call many times at once from one event loop."""

    @property
    def description(self) -> str:
        """What answers, for a person: an endpoint's host, or "scripted answers from FILE"."""

    @property
    def is_scripted(self) -> bool:
        """Whether no model is asked."""

    async def ask(self, request: LLMRequest[AnswerT]) -> LLMAnswer[AnswerT]:
        """The validated answer. Retries, the limit on calls at once and the budget are inside.

        Raises:
            ProviderError: one of its leaves (see `edenmem.errors`).
        """

    async def close(self) -> None:
        """Let go of connections."""
