"""Giving facts the vectors that they lack: of the configured model, a batch at a time.

Nothing is remembered about a run, since nothing needs to be: a fact that has its vector is no
longer among those that lack one, so a run that was stopped or killed goes on where it was. Until
the new vector of a fact is written, it keeps its old one.
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

#: Facts in one batch: one request to most endpoints, one write to the store.
BATCH = 100
#: Facts that are held at most while batches of one agent each fill up.
_HELD = 20 * BATCH
#: Facts whose length the estimate goes by.
_SAMPLE = 1000
#: Batches in a row that fail before the run is given up: the endpoint is down, not the batch.
_GIVE_UP = 5
#: What no further batch would fare better with.
_HOPELESS = (ProviderAuthError, ProviderMisconfigured, BudgetExceeded)


class BackfillPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a backfill would do, and about what it costs.

    ``facts`` are those that would be embedded, ``replaced`` those of them (at most) that have a
    vector already. ``tokens`` is estimated from the facts' lengths; ``cost`` is in US dollars,
    None if no price is known.
    """

    model: str
    facts: int
    replaced: int
    tokens: int
    cost: float | None
    status: VectorStatus


class FailedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that got no vector, and why. ``blank``: they never can, since they say nothing."""

    fact_ids: tuple[str, ...]
    reason: str
    hint: str = ""
    blank: bool = False


class BackfillReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a backfill did.

    ``embedded`` facts have their vector; ``changed`` ones were edited or deleted meanwhile, and
    an edited one is up to the next run. ``stopped_early`` is the error that no further batch
    would have escaped.
    """

    model: str
    embedded: int = 0
    changed: int = 0
    failed: tuple[FailedBatch, ...] = ()
    usage: tuple[UsageTotal, ...] = ()
    stopped_early: str = ""
    hint: str = ""
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        """What was read by the model."""
        return sum(total.input_tokens for total in self.usage)

    @property
    def cost(self) -> float | None:
        """In US dollars; None if no price is known."""
        if any(total.unpriced for total in self.usage):
            return None
        return sum(total.cost for total in self.usage)


class Backfiller:
    """Looks at the vectors of a store, and makes those that are missing.

    ``staged``: only those of a switch to the embedder's model, which are put beside the others.
    """

    def __init__(self, runtime: Runtime, *, staged: bool = False) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._settings = runtime.settings
        self._embedder = runtime.demand_embedder()
        self._staged = staged

    def status(self, agent_id: str | None = None) -> VectorStatus:
        """How many facts have which vectors.

        Raises:
            StoreError: the database cannot be used.
        """
        return vector_status(
            self._store, self._embedder.model, dimensions=self._dimensions(), agent_id=agent_id
        )

    def plan(self, *, agent_id: str | None = None, limit: int | None = None) -> BackfillPlan:
        """What `run` would do; asks no model.

        Raises:
            ConflictError: the platform uses the database, with vectors of another model.
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
        concurrency: int = 4,
        tell: Callable[[int], None] = lambda done: None,
    ) -> BackfillReport:
        """Embed the facts that need it. ``tell`` is called with how many were gone through.

        A batch that the model fails is reported and does not stop the others, unless they would
        all fail. Cancelling keeps what is written.

        Raises:
            StoreError: the database cannot be used.
            ConflictError: vectors were to be put beside others, and somebody ended the switch; or
                the platform uses the database, with vectors of another model.
        """
        began = time.monotonic()
        model = self._embedder.model
        await in_thread(demand_own_database, self._store, self._settings, model)
        work = _Run(self._runtime, tell, staged=self._staged)
        facts = itertools.islice(self._stale(agent_id), limit)
        batches = of_one_agent(facts, BATCH, held=_HELD)
        under_way: set[asyncio.Task[None]] = set()
        try:
            while not work.stopped_early:
                batch = await in_thread(next, batches, None)
                if batch is None:
                    break
                if len(under_way) >= concurrency:
                    done, under_way = await asyncio.wait(
                        under_way, return_when=asyncio.FIRST_COMPLETED
                    )
                    for task in done:
                        task.result()
                if not work.stopped_early:
                    under_way.add(asyncio.create_task(work.embed(batch)))
            await asyncio.gather(*under_way)
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
        return work.report(seconds=time.monotonic() - began)

    def _stale(self, agent_id: str | None) -> Iterator[Fact]:
        return self._store.vectors.stale_facts(
            self._embedder.model, dimensions=self._dimensions(), agent_id=agent_id
        )

    def _dimensions(self) -> int | None:
        try:
            return self._embedder.dimensions
        except ConfigError:
            return None  # nothing has said it yet, so no length is wrong

    def _price(self) -> float | None:
        """US dollars for a million tokens; None if it is not known."""
        settings = self._settings.embedding
        if self._embedder.model.partition("@")[0] != settings.model:
            return 0.0  # a model of this machine
        return settings.prices.get(settings.model)


class _Run:
    """What one run has done so far."""

    def __init__(self, runtime: Runtime, tell: Callable[[int], None], *, staged: bool) -> None:
        self._store = runtime.store
        self._staged = staged
        self._embedder = runtime.demand_embedder()
        self._clock = runtime.clock
        self._tell = tell
        self._meter = Meter()
        self._embedded = 0
        self._changed = 0
        self._seen = 0
        self._in_a_row = 0
        self._failed: list[FailedBatch] = []
        self.stopped_early: ProviderError | None = None

    async def embed(self, batch: list[Fact]) -> None:
        """Give the facts of a batch, all of one agent, their vectors."""
        facts = [fact for fact in batch if fact.content.strip()]
        if len(facts) < len(batch):
            blank = tuple(fact.id for fact in batch if fact not in facts)
            self._failed.append(
                FailedBatch(fact_ids=blank, reason="a blank text has no meaning", blank=True)
            )
        if facts:
            await self._embed(facts)
        self._seen += len(batch)
        self._tell(self._seen)

    async def _embed(self, facts: list[Fact]) -> None:
        try:
            answer = await self._embedder.embed([fact.content for fact in facts], role="passage")
        except ProviderError as error:
            await self._keep(facts[0].agent_id, error.usage)
            self._fail(facts, error)
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
        self._embedded += written
        self._changed += len(facts) - written
        await self._keep(facts[0].agent_id, answer.usage)

    async def _keep(self, agent_id: str, calls: Sequence[CallUsage]) -> None:
        self._meter.add(calls)
        await keep_usage(self._store, agent_id, "backfill", calls, at=self._clock())

    def _fail(self, facts: list[Fact], error: ProviderError) -> None:
        self._failed.append(
            FailedBatch(
                fact_ids=tuple(fact.id for fact in facts),
                reason=error.message,
                hint=error.hint or "",
            )
        )
        self._in_a_row += 1
        if isinstance(error, _HOPELESS) or self._in_a_row >= _GIVE_UP:
            self.stopped_early = self.stopped_early or error

    def report(self, *, seconds: float) -> BackfillReport:
        """All of it."""
        stopped = self.stopped_early
        return BackfillReport(
            model=self._embedder.model,
            embedded=self._embedded,
            changed=self._changed,
            failed=tuple(self._failed),
            usage=self._meter.totals,
            stopped_early=stopped.message if stopped else "",
            hint=(stopped.hint or "") if stopped else "",
            seconds=seconds,
        )


def of_one_agent(facts: Iterable[Fact], size: int, *, held: int) -> Iterator[list[Fact]]:
    """Lists of up to ``size`` facts, each of one agent, since each agent's costs are its own.

    At most ``held`` facts wait for their lists to fill up; then the longest one goes as it is.
    """
    waiting: dict[str, list[Fact]] = {}
    total = 0
    for fact in facts:
        batch = waiting.setdefault(fact.agent_id, [])
        batch.append(fact)
        total += 1
        if len(batch) < size and total >= held:
            batch = max(waiting.values(), key=len)
        if len(batch) >= size or total >= held:
            del waiting[batch[0].agent_id]
            total -= len(batch)
            yield batch
    yield from waiting.values()
