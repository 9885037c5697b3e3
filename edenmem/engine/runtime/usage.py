"""Usage of model calls, counted per call, so that failed work is included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from edenmem.embed.protocol import Embedder, Embedding, Role
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.errors import ProviderError
from edenmem.models.formation import CallUsage, UsageEntry, UsageTotal
from edenmem.models.ids import new_id
from edenmem.models.statistics import sum_by_model
from edenmem.store.protocol.store import Store

if TYPE_CHECKING:
    from edenmem.llm.protocol import LLM, AnswerT, LLMAnswer, LLMRequest


class Meter:
    """Count usage by model."""

    def __init__(self) -> None:
        self.totals: tuple[UsageTotal, ...] = ()

    def add(self, calls: Iterable[CallUsage]) -> None:
        """Add the usage of calls."""
        added = (
            UsageTotal(
                model=call.model,
                calls=1,
                input_tokens=call.input_tokens,
                output_tokens=call.output_tokens,
                cost=call.cost or 0.0,
                unpriced=int(call.cost is None),
                estimated=int(call.estimated),
            )
            for call in calls
        )
        self.totals = sum_by_model([*self.totals, *added])


class MeteredLLM:
    """An `edenmem.llm.protocol.LLM` that counts its calls, including failed ones.

    ``asking`` is called with the task of each request.
    """

    def __init__(
        self, llm: LLM, meter: Meter, *, asking: Callable[[str], None] | None = None
    ) -> None:
        self._llm = llm
        self._meter = meter
        self._asking = asking

    @property
    def description(self) -> str:
        """Return the description of the model."""
        return self._llm.description

    @property
    def is_scripted(self) -> bool:
        """Check whether answers come from a script."""
        return self._llm.is_scripted

    async def ask(self, request: LLMRequest[AnswerT]) -> LLMAnswer[AnswerT]:
        """Send a request, and count its usage."""
        if self._asking is not None:
            self._asking(request.task)
        try:
            answer = await self._llm.ask(request)
        except ProviderError as error:
            self._meter.add(error.usage)
            raise
        self._meter.add(answer.usage)
        return answer

    async def close(self) -> None:
        """Close connections."""
        await self._llm.close()


class MeteredEmbedder:
    """An `edenmem.embed.protocol.Embedder` that counts its calls, including failed ones."""

    def __init__(self, embedder: Embedder, meter: Meter) -> None:
        self._embedder = embedder
        self._meter = meter

    @property
    def model(self) -> str:
        """Return the name of the model."""
        return self._embedder.model

    @property
    def dimensions(self) -> int:
        """Return the length of vectors."""
        return self._embedder.dimensions

    async def embed(self, texts: Sequence[str], *, role: Role) -> Embedding:
        """Embed texts, and count the usage."""
        try:
            embedding = await self._embedder.embed(texts, role=role)
        except ProviderError as error:
            self._meter.add(error.usage)
            raise
        self._meter.add(embedding.usage)
        return embedding

    async def close(self) -> None:
        """Close connections."""
        await self._embedder.close()


async def keep_usage(
    store: Store, agent_id: str, work: str, calls: Sequence[CallUsage], *, at: datetime
) -> None:
    """Record the calls of a task in the usage log, if there are any.

    Raises:
        StoreError: the database cannot be used.
    """
    if calls:
        entry = UsageEntry(id=new_id(at), at=at, agent_id=agent_id, work=work, calls=tuple(calls))
        await in_thread(store.usage.add_usage, entry)
