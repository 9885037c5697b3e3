"""Backfill the vectors of facts with the configured model, batch by batch.

A run has no stored state: facts with a current vector are skipped, so an interrupted run simply
resumes. A fact keeps its old vector until the new one is written.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from edenmem.engine.embeddings.status import VectorStatus, demand_own_database, vector_status
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.runtime.usage import Meter, keep_usage
from edenmem.errors import (
    BudgetExceeded,
    ConfigError,
    ProviderAuthError,
    ProviderError,
    ProviderMisconfigured,
)
from edenmem.models.formation import CallUsage, UsageTotal
from edenmem.models.memory import Fact

#: Number of facts per batch: one request to most endpoints, one write to the store.
BATCH = 100
#: Maximum number of facts held while batches per agent fill up.
_HELD = 20 * BATCH
#: Number of facts sampled to estimate tokens.
_SAMPLE = 1000
#: Number of consecutive failed batches before the run gives up.
_GIVE_UP = 5
#: Errors that every further batch would repeat.
_HOPELESS = (ProviderAuthError, ProviderMisconfigured, BudgetExceeded)


class BackfillPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a backfill, and its estimated cost.

    ``facts`` counts the facts to embed, ``replaced`` (at most) those of them with a vector to
    replace. ``tokens`` is estimated from a sample; ``cost`` is in US dollars (None: no price is
    configured).
    """

    model: str
    facts: int
    replaced: int
    tokens: int
    cost: float | None
    status: VectorStatus


class FailedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that were not embedded, and why; ``blank`` texts cannot be embedded at all."""

    fact_ids: tuple[str, ...]
    reason: str
    hint: str = ""
    blank: bool = False


class BackfillReport(msgspec.Struct, kw_only=True):
    """The result of a backfill; filled batch by batch.

    ``embedded`` counts facts with a new vector, ``changed`` those edited or deleted concurrently:
    the next run embeds edited ones. ``stopped_early`` is the error that ended the run, if any.
    """

    model: str
    embedded: int = 0
    changed: int = 0
    failed: list[FailedBatch] = msgspec.field(default_factory=list)
    usage: tuple[UsageTotal, ...] = ()
    stopped_early: str = ""
    hint: str = ""
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        """Return the number of input tokens."""
        return sum(total.input_tokens for total in self.usage)

    @property
    def cost(self) -> float | None:
        """Return the cost in US dollars; None if no price is configured."""
        if any(total.unpriced for total in self.usage):
            return None
        return sum(total.cost for total in self.usage)


class Backfiller:
    """Embed the facts of a store that have no current vector.

    ``staged``: write the vectors of a switch to the embedder's model, next to the current ones.
    """

    def __init__(self, runtime: Runtime, *, staged: bool = False) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._settings = runtime.settings
        self._embedder = runtime.demand_embedder()
        self._staged = staged

    def status(self, agent_id: str | None = None) -> VectorStatus:
        """Count facts by their vectors.

        Raises:
            StoreError: the database cannot be used.
        """
        return vector_status(
            self._store, self._embedder.model, dimensions=self._dimensions(), agent_id=agent_id
        )

    def plan(self, *, agent_id: str | None = None, limit: int | None = None) -> BackfillPlan:
        """Plan a run, without model calls.

        Raises:
            ConflictError: the platform uses the database with another embedding model.
            StoreError: the database cannot be used.
        """
        demand_own_database(self._store, self._settings, self._embedder.model)
        status = self.status(agent_id)
        facts = status.total.stale if limit is None else min(limit, status.total.stale)
        sample = [
            len(fact.content)
            for fact in itertools.islice(self._stale(agent_id), min(facts, _SAMPLE))
        ]
        characters = sum(sample) / max(1, len(sample)) * facts
        tokens = math.ceil(characters / self._settings.formation.characters_per_token)
        price = self._price()
        return BackfillPlan(
            model=self._embedder.model,
            facts=facts,
            replaced=min(facts, status.total.replaced),
            tokens=tokens,
            cost=None if price is None else tokens * price / 1_000_000,
            status=status,
        )

    async def run(
        self,
        *,
        agent_id: str | None = None,
        limit: int | None = None,
        facts: Iterable[Fact] | None = None,
        concurrency: int = 4,
        progress: Callable[[int], None] = lambda done: None,
    ) -> BackfillReport:
        """Embed the given facts, or stale ones. ``progress`` is called with the number processed.

        A failed batch is reported and does not stop the others, unless all would fail. Written
        vectors stay if the run is cancelled.

        Raises:
            StoreError: the database cannot be used.
            ConflictError: the switch was ended concurrently, or the platform uses the database
                with another embedding model.
        """
        began = time.monotonic()
        model = self._embedder.model
        await in_thread(demand_own_database, self._store, self._settings, model)
        work = _Run(self._runtime, progress, staged=self._staged)
        report = work.report
        wanted = self._stale(agent_id) if facts is None else facts
        batches = batch_by_agent(itertools.islice(wanted, limit), BATCH, held=_HELD)
        under_way: set[asyncio.Task[None]] = set()
        try:
            while not report.stopped_early:
                batch = await in_thread(next, batches, None)
                if batch is None:
                    break
                if len(under_way) >= concurrency:
                    done, under_way = await asyncio.wait(
                        under_way, return_when=asyncio.FIRST_COMPLETED
                    )
                    for task in done:
                        task.result()
                if not report.stopped_early:
                    under_way.add(asyncio.create_task(work.embed(batch)))
            await asyncio.gather(*under_way)
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
        report.usage, report.seconds = work.meter.totals, time.monotonic() - began
        return report

    def _stale(self, agent_id: str | None) -> Iterator[Fact]:
        return self._store.vectors.stale_facts(
            self._embedder.model, dimensions=self._dimensions(), agent_id=agent_id
        )

    def _dimensions(self) -> int | None:
        try:
            return self._embedder.dimensions
        except ConfigError:
            return None  # unknown before the first answer: no length is wrong

    def _price(self) -> float | None:
        """Return US dollars per million tokens; None if unknown."""
        settings = self._settings.embedding
        if self._embedder.model.partition("@")[0] != settings.model:
            return 0.0  # a local model
        return settings.prices.get(settings.model)


class _Run:
    """The progress of one run."""

    def __init__(self, runtime: Runtime, progress: Callable[[int], None], *, staged: bool) -> None:
        self._store = runtime.store
        self._staged = staged
        self._embedder = runtime.demand_embedder()
        self._clock = runtime.clock
        self._progress = progress
        self._seen = self._in_a_row = 0
        self.meter = Meter()
        self.report = BackfillReport(model=self._embedder.model)

    async def embed(self, batch: list[Fact]) -> None:
        """Embed a batch of facts of one agent."""
        facts = [fact for fact in batch if fact.content.strip()]
        if len(facts) < len(batch):
            blank = tuple(fact.id for fact in batch if fact not in facts)
            self.report.failed.append(
                FailedBatch(fact_ids=blank, reason="blank texts cannot be embedded", blank=True)
            )
        if facts:
            await self._embed(facts)
        self._seen += len(batch)
        self._progress(self._seen)

    async def _embed(self, facts: list[Fact]) -> None:
        try:
            answer = await self._embedder.embed([fact.content for fact in facts], role="passage")
        except ProviderError as error:
            await self._keep(facts[0].agent_id, error.usage)
            ids, hint = tuple(fact.id for fact in facts), error.hint or ""
            self.report.failed.append(FailedBatch(fact_ids=ids, reason=error.message, hint=hint))
            self._in_a_row += 1
            is_last = isinstance(error, _HOPELESS) or self._in_a_row >= _GIVE_UP
            if is_last and not self.report.stopped_early:
                self.report.stopped_early, self.report.hint = error.message, hint
            return
        self._in_a_row = 0
        vectors = {
            fact.id: (fact.hash, vector) for fact, vector in zip(facts, answer.vectors, strict=True)
        }
        written = await in_thread(
            self._store.vectors.set_vectors,
            vectors,
            model=self._embedder.model,
            staged=self._staged,
        )
        self.report.embedded += written
        self.report.changed += len(facts) - written
        await self._keep(facts[0].agent_id, answer.usage)

    async def _keep(self, agent_id: str, calls: Sequence[CallUsage]) -> None:
        self.meter.add(calls)
        await keep_usage(self._store, agent_id, "backfill", calls, at=self._clock())


def batch_by_agent(facts: Iterable[Fact], size: int, *, held: int) -> Iterator[list[Fact]]:
    """Yield batches of up to ``size`` facts of one agent, since usage is recorded per agent.

    At most ``held`` facts are held at a time; beyond that, the longest partial batch is yielded.
    """
    partial: dict[str, list[Fact]] = {}
    total = 0
    for fact in facts:
        batch = partial.setdefault(fact.agent_id, [])
        batch.append(fact)
        total += 1
        if len(batch) < size and total >= held:
            batch = max(partial.values(), key=len)
        if len(batch) >= size or total >= held:
            del partial[batch[0].agent_id]
            total -= len(batch)
            yield batch
    yield from partial.values()
