"""Switching a whole store to another embedding model, while everybody goes on searching.

The new vectors are made beside the old ones, which are in force until all of the new ones are
there, can be searched and, if labelled queries are given, have been seen to find as well. The
switch itself is one small write. From then on the new model is in force, and readers of the old
one are still served, until the old vectors are dropped.

Every step may be cut off and done again: where a switch stands is in the store, and what is left
to do is what has no vector of the new model yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from edenmem.embed.protocol import Embedder
from edenmem.engine.backfilling import Backfiller, BackfillPlan, BackfillReport
from edenmem.engine.index_waiting import Clock, Sleep, poll
from edenmem.engine.metering import joined_totals
from edenmem.engine.offload import in_thread
from edenmem.errors import ConfigError, ConflictError, StoreError, UsageError
from edenmem.models.ids import utc_now
from edenmem.models.switch import WAY_ON, VectorSwitch
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store

#: Passes that may follow the first: each takes what was learned or changed during the one before.
_PASSES = 20


class SwitchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a switch would do. ``switch`` is where it stands, or how it would begin; ``begun``
    says which of the two."""

    switch: VectorSwitch
    begun: bool
    backfill: BackfillPlan


class ModelSwitcher:
    """Makes the vectors of a new model, and brings it into force.

    Args:
        store: Where memory is.
        settings: With the new embedding model.
        embedder: The new one.
        clock: The current time.
        monotonic: Seconds that only grow, and ``sleep`` to pass them, for waiting for indexes.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        embedder: Embedder,
        clock: Callable[[], datetime] = utc_now,
        monotonic: Clock = time.monotonic,
        sleep: Sleep = time.sleep,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._backfiller = Backfiller(store, settings, embedder=embedder, clock=clock, beside=True)

    @property
    def embedder(self) -> Embedder:
        """The new model."""
        return self._embedder

    async def plan(self) -> SwitchPlan:
        """What there is to do. A model whose dimensions nobody knows is asked for one vector.

        Raises:
            UsageError: there is nothing to switch from, since no fact has a vector of another
                model.
            ConflictError: another switch is under way, or this one is being ended.
            ProviderError: the model could not be asked.
            StoreError: the database cannot be used.
        """
        model = self._embedder.model
        under_way = await in_thread(self._store.vector_switch)
        dimensions = await self._dimensions(under_way)
        backfill = await in_thread(self._backfiller.plan)
        if under_way is None:
            previous = _commonest(backfill.status.total.others)
            if not previous:
                raise UsageError(
                    f"no fact has a vector of another model than {model!r}",
                    hint="'edenmem embed backfill' without a switch makes what is missing",
                )
            switch = VectorSwitch(
                model=model, dimensions=dimensions, previous=previous, begun_at=self._clock()
            )
            return SwitchPlan(switch=switch, begun=False, backfill=backfill)
        if (under_way.model, under_way.dimensions) != (model, dimensions):
            raise ConflictError(
                f"a switch from {under_way.previous!r} to {under_way.model!r} "
                f"({under_way.dimensions:,} dimensions) is under way: {under_way.phase}",
                hint=WAY_ON[under_way.phase],
            )
        if under_way.phase not in ("filling", "switched"):
            raise ConflictError(
                f"the switch to {model!r} is {under_way.phase}",
                hint=WAY_ON[under_way.phase],
            )
        return SwitchPlan(switch=under_way, begun=True, backfill=backfill)

    async def fill(
        self,
        plan: SwitchPlan,
        *,
        concurrency: int = 4,
        tell: Callable[[int], None] = lambda done: None,
    ) -> BackfillReport:
        """Make the new vectors that are missing, until none is; searches go on as before.

        It may be stopped at any time, and called again. Some may be left: those that failed are
        in the report, and so is why the run was ended early.

        Raises:
            ConflictError: another switch is under way, or somebody ended this one.
            StoreError: the database cannot be used.
        """
        if plan.switch.phase == "filling":
            await in_thread(self._store.begin_switch, plan.switch)
        reports: list[BackfillReport] = []
        for _ in range(_PASSES):
            before = sum(report.embedded + report.changed for report in reports)

            def told(done: int, before: int = before) -> None:
                tell(before + done)

            report = await self._backfiller.run(concurrency=concurrency, tell=told)
            reports.append(report)
            if report.stopped_early or report.embedded + report.changed == 0:
                break
        return _joined(reports)

    async def wait(
        self, *, patience: float, tell: Callable[[str], None] = lambda why: None
    ) -> None:
        """Wait until search finds all new vectors that were made so far.

        Args:
            patience: Seconds.
            tell: Called with what is waited for.

        Raises:
            StoreError: the index of the new vectors failed, or takes longer than ``patience``.
        """
        await in_thread(self._wait, patience, tell)

    def _wait(self, patience: float, tell: Callable[[str], None]) -> None:
        why = ""

        def ready() -> bool:
            nonlocal why
            state = self._store.switch_index()
            if state is not None and state.status in ("failed", "missing"):
                raise StoreError(
                    f"the search index {state.name} is {state.status}"
                    + (f": {state.note}" if state.note else ""),
                    hint=f"'edenmem index create {state.name}' makes it",
                )
            if state is not None and not state.queryable:
                why = f"the search index {state.name} is being built"
            elif not self._store.finds_vectors(self._embedder.model):
                why = "search has not taken up the latest vectors yet"
            else:
                return True
            tell(why)
            return False

        if not poll(ready, timeout=patience, clock=self._monotonic, sleep=self._sleep):
            raise StoreError(
                f"after {patience:,.0f} s {why}",
                hint="run the same command again to go on waiting; searches are as before",
            )

    async def commit(self, *, concurrency: int = 4, patience: float = 900.0) -> BackfillReport:
        """Bring the new model into force, if every fact that can has its vector.

        What is learned or changed at that very moment is embedded right afterwards.

        Returns:
            What was embedded on the way.

        Raises:
            ConflictError: facts are without their new vectors, or somebody ended the switch.
            StoreError: the new vectors cannot be searched.
        """
        plan = await self.plan()
        if plan.switch.phase == "switched":
            return await self.fill(plan, concurrency=concurrency)
        first = await self.fill(plan, concurrency=concurrency)
        left = lacking(first)
        if left or first.stopped_early:
            raise ConflictError(
                first.stopped_early or f"{left:,} facts are without a vector of {first.model!r}",
                hint="run the same command again; until all have one, the old model is in force",
            )
        await self.wait(patience=patience)
        moved = await in_thread(
            self._store.move_switch,
            first.model,
            before="filling",
            after="switched",
            at=self._clock(),
        )
        if not moved:
            raise ConflictError(f"somebody ended the switch to {first.model!r} meanwhile")
        plan = await self.plan()
        return _joined([first, await self.fill(plan, concurrency=concurrency)])

    async def _dimensions(self, under_way: VectorSwitch | None) -> int:
        try:
            return self._embedder.dimensions
        except ConfigError:  # only an answer of the model tells, or told when the switch began
            if under_way is not None and under_way.model == self._embedder.model:
                return under_way.dimensions
            answer = await self._embedder.embed(["dimensions"])
            return len(answer.vectors[0]) // 4


def lacking(report: BackfillReport) -> int:
    """How many facts got no vector and should have one."""
    return sum(len(batch.fact_ids) for batch in report.failed if not batch.blank)


def _commonest(models: dict[str, int]) -> str:
    return max(models, key=lambda name: (models[name], name), default="")


def _joined(reports: Sequence[BackfillReport]) -> BackfillReport:
    """One report of several passes. What failed in the last pass is what is left."""
    last = reports[-1]
    return msgspec.structs.replace(
        last,
        embedded=sum(report.embedded for report in reports),
        changed=sum(report.changed for report in reports),
        usage=joined_totals(total for report in reports for total in report.usage),
        seconds=sum(report.seconds for report in reports),
    )
