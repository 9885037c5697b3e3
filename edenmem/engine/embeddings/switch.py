"""Switch a whole store to another embedding model without interrupting searches.

The new vectors are staged next to the old ones, which stay in force until all new vectors are
searchable and, with labeled queries, as good. The switch itself is one small write. The new model
is in force from then on; readers with the old model are served until the old vectors are dropped.

Every step can be interrupted and repeated: the store records the phase of the switch, and the
remaining work is to embed facts without a vector of the new model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from edenmem.engine.embeddings.backfill import Backfiller, BackfillPlan, BackfillReport
from edenmem.engine.embeddings.status import demand_own_database, vector_status
from edenmem.engine.indexes import Clock, Sleep, poll, wait_for_indexes
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import ConfigError, ConflictError, NotFoundError, StoreError, UsageError
from edenmem.models.embeddings import WAY_ON, SwitchPhase, VectorSwitch, check_same
from edenmem.models.indexes import IndexState, IndexWish
from edenmem.models.statistics import sum_by_model
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store

#: Maximum number of passes; each embeds the facts changed during the previous one.
_PASSES = 20


class SwitchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a switch; ``begun`` tells whether ``switch`` is under way or would be new."""

    switch: VectorSwitch
    begun: bool
    backfill: BackfillPlan


class ModelSwitcher:
    """Embed all facts with a new model, and bring the model into force.

    Args:
        runtime: The runtime with the new embedding model and its settings.
        monotonic: Clock for waiting, in seconds.
        sleep: Function for waiting, in seconds.
    """

    def __init__(
        self, runtime: Runtime, *, monotonic: Clock = time.monotonic, sleep: Sleep = time.sleep
    ) -> None:
        self._store = runtime.store
        self.runtime = runtime
        self._embedder = runtime.demand_embedder()
        self._clock = runtime.clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._backfiller = Backfiller(runtime, staged=True)

    async def plan(self) -> SwitchPlan:
        """Plan the switch. Calls the model once if its dimensions are unknown.

        Raises:
            UsageError: no fact has a vector of another model.
            ConflictError: another switch is under way, or this one is being ended.
            ProviderError: the model is unavailable.
            StoreError: the database cannot be used.
        """
        model = self._embedder.model
        under_way = await in_thread(self._store.switches.vector_switch)
        dimensions = await self._dimensions(under_way)
        backfill = await in_thread(self._backfiller.plan)
        if under_way is None:
            models = backfill.status.total.others
            previous = max(models, key=lambda name: (models[name], name), default="")
            if not previous:
                raise UsageError(
                    f"no fact has a vector of another model than {model!r}",
                    hint="create missing vectors with 'edenmem embed backfill', without a switch",
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
        progress: Callable[[int], None] = lambda done: None,
    ) -> BackfillReport:
        """Create all missing new vectors; searches are unaffected.

        Can be interrupted and repeated. The report has the failures, and the reason of an early
        end.

        Raises:
            ConflictError: another switch is under way, or this one was ended concurrently.
            StoreError: the database cannot be used.
        """
        if plan.switch.phase == "filling":
            await in_thread(self._begin, plan.switch)
        reports: list[BackfillReport] = []
        for _ in range(_PASSES):
            before = sum(report.embedded + report.changed for report in reports)

            def report_done(done: int, before: int = before) -> None:
                progress(before + done)

            report = await self._backfiller.run(concurrency=concurrency, progress=report_done)
            reports.append(report)
            if report.stopped_early or report.embedded + report.changed == 0:
                break
        return _join_reports(reports)

    def _begin(self, switch: VectorSwitch) -> None:
        """Store a switch, or go on with the stored one; start building its search index."""
        while not self._store.switches.move_switch(None, switch):
            current = self._store.switches.vector_switch()
            if current is not None:  # else it has just ended
                check_same(current, switch)
                break
        state = self._store.switches.switch_index()
        if state is not None:
            _build(self._store, [state], _wish(self.runtime.settings, switch))

    def wait(self, patience: float, progress: Callable[[str], None] = lambda why: None) -> None:
        """Wait until search finds all new vectors. Blocks.

        Args:
            patience: Time limit in seconds.
            progress: Called with the reason for waiting.

        Raises:
            StoreError: the index of the new vectors failed, or the time limit is exceeded.
        """
        why = ""

        def ready() -> bool:
            nonlocal why
            state = self._store.switches.switch_index()
            if state is not None and state.status in ("failed", "missing"):
                raise _unusable(state, f"create the index with 'edenmem index create {state.name}'")
            if state is not None and not state.queryable:
                why = f"the search index {state.name} is being built"
            elif not self._store.switches.finds_vectors(self._embedder.model):
                why = "search does not find the latest vectors yet"
            else:
                return True
            progress(why)
            return False

        if not poll(ready, timeout=patience, clock=self._monotonic, sleep=self._sleep):
            raise StoreError(
                f"after {patience:,.0f} s {why}",
                hint="run the command again to continue waiting; searches are unaffected",
            )

    async def commit(self, *, concurrency: int = 4, patience: float = 900.0) -> BackfillReport:
        """Bring the new model into force, once all facts have new vectors.

        Facts added or changed concurrently are embedded afterwards.

        Returns:
            The report on the vectors created meanwhile.

        Raises:
            ConflictError: new vectors are missing, or the switch was ended concurrently.
            StoreError: the new vectors are not searchable.
        """
        plan = await self.plan()
        first = await self.fill(plan, concurrency=concurrency)
        if plan.switch.phase == "switched":
            return first
        left = count_missing(first)
        if left or first.stopped_early:
            facts = "1 fact has" if left == 1 else f"{left:,} facts have"
            raise ConflictError(
                first.stopped_early or f"{facts} no vector of {first.model!r}",
                hint="run the command again; until all have one, the old model is in force",
            )
        await in_thread(self.wait, patience)
        await in_thread(_enter, self._store, first.model, "filling", "switched")
        plan = await self.plan()
        return _join_reports([first, await self.fill(plan, concurrency=concurrency)])

    async def _dimensions(self, under_way: VectorSwitch | None) -> int:
        try:
            return self._embedder.dimensions
        except ConfigError:  # known from the beginning of the switch, or from an answer
            if under_way is not None and under_way.model == self._embedder.model:
                return under_way.dimensions
            answer = await self._embedder.embed(["dimensions"], role="passage")
            return len(answer.vectors[0]) // 4


def _enter(store: Store, model: str, before: SwitchPhase, after: SwitchPhase) -> None:
    """Bring the switch to ``model`` from one phase into another.

    Raises:
        ConflictError: the switch is in another phase.
    """
    there = store.switches.vector_switch()
    if (
        there is None
        or (there.model, there.phase) != (model, before)
        or not store.switches.move_switch(there, msgspec.structs.replace(there, phase=after))
    ):
        raise ConflictError(
            f"the switch to {model!r} was changed concurrently",
            hint="show its phase with 'edenmem embed status'",
        )


def _wish(settings: Settings, switch: VectorSwitch) -> IndexWish:
    return IndexWish(dimensions=switch.dimensions, analyzer=settings.search.analyzer)


def _build(store: Store, states: Sequence[IndexState], wish: IndexWish) -> None:
    """Start building the indexes that are missing or have another definition."""
    for state in states:
        if state.status == "different":
            store.indexes.update_index(state.name, wish)
        elif state.status == "missing":
            store.indexes.create_index(state.name, wish)


def count_missing(report: BackfillReport) -> int:
    """Count the facts without a vector, except blank ones."""
    return sum(len(batch.fact_ids) for batch in report.failed if not batch.blank)


def _join_reports(reports: Sequence[BackfillReport]) -> BackfillReport:
    """Join the reports of several passes; failures are those of the last pass."""
    last = reports[-1]
    return msgspec.structs.replace(
        last,
        embedded=sum(report.embedded for report in reports),
        changed=sum(report.changed for report in reports),
        usage=sum_by_model(total for report in reports for total in report.usage),
        seconds=sum(report.seconds for report in reports),
    )


Progress = Callable[[str, int], None]


class SwitchEnding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of ending a switch.

    ``in_force`` is the model to configure; ``facts`` counts changed facts, ``stale`` those without
    a vector of that model, which need a backfill.
    """

    action: str
    in_force: str
    facts: int = 0
    stale: int = 0


def check_model_name(settings: Settings, model: str) -> None:
    """Check that the opened model is the requested one.

    Raises:
        UsageError: another model was opened.
    """
    wanted = settings.embedding.model
    default = type(settings.embedding)().model
    if wanted != default and model.partition("@")[0] != wanted:
        raise UsageError(
            f"--model {wanted!r}: the configured provider uses {model!r}",
            hint="specify the provider too: --set embedding.provider=openai, or local",
        )


class SwitchEnder:
    """End the current switch of a store; ``timeout`` limits waiting for indexes, in seconds."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        timeout: float = 900.0,
        monotonic: Clock = time.monotonic,
        sleep: Sleep = time.sleep,
    ) -> None:
        self._store = runtime.store
        self._settings = runtime.settings
        self._timeout = timeout
        self._monotonic = monotonic
        self._sleep = sleep

    def expect(self, *phases: SwitchPhase) -> VectorSwitch:
        """Return the switch, if it is in one of these phases.

        Raises:
            NotFoundError: no switch is under way.
            ConflictError: the switch is in another phase.
        """
        switch = self._store.switches.vector_switch()
        if switch is None:
            raise NotFoundError(
                "no switch of the embedding model is under way",
                hint="begin one with 'edenmem embed use NAME'",
            )
        if switch.phase not in phases:
            raise ConflictError(
                f"not possible while the switch from {switch.previous!r} to {switch.model!r} is "
                f"{switch.phase}",
                hint=WAY_ON[switch.phase],
            )
        return switch

    def back(self) -> SwitchEnding:
        """Bring the old model back into force, in one step.

        The new vectors are kept. Facts added since the switch have only new vectors, and need a
        backfill.

        Raises:
            NotFoundError: no switch is under way.
            ConflictError: the new model is not in force, or the old vectors are being dropped.
            StoreError: the database cannot be used.
        """
        switch = self.expect("switched")
        _enter(self._store, switch.model, "switched", "filling")
        status = vector_status(self._store, switch.previous, dimensions=None)
        return SwitchEnding(
            action="back", in_force=switch.previous, stale=max(0, status.total.stale)
        )

    def drop_old(self, progress: Progress = lambda what, done: None) -> SwitchEnding:
        """Replace the old vectors by the new ones permanently.

        Readers with the new model are served meanwhile; those with the old model are refused from
        now on.

        Args:
            progress: Called with the current step, and the number of facts done.

        Raises:
            NotFoundError: no switch is under way.
            ConflictError: the new model is not in force, facts have no new vector, or the platform
                uses the database with the old model.
            StoreError: the search index of the settled vectors is not ready in time.
        """
        switch = self.expect("switched", "settling", "clearing")
        facts = 0
        if switch.phase == "switched":
            demand_own_database(self._store, self._settings, switch.model)
            stale = self._store.vectors.stale_facts(switch.model, dimensions=switch.dimensions)
            if any(fact.content.strip() for fact in stale):
                raise ConflictError(
                    f"some facts have no vector of {switch.model!r} yet, and would lose their old"
                    " one",
                    hint="configure the new model, and run 'edenmem embed backfill'",
                )
            _enter(self._store, switch.model, "switched", "settling")
            switch = self.expect("settling")
        if switch.phase == "settling":
            facts += self._repeat(self._store.switches.settle_vectors, "settling", progress)
            self._index_settled(switch, progress)
            _enter(self._store, switch.model, "settling", "clearing")
        facts += self._repeat(self._store.switches.settle_vectors, "settling", progress)
        self._clear(switch, progress)
        return SwitchEnding(action="drop-old", in_force=switch.model, facts=facts)

    def abandon(self, progress: Progress = lambda what, done: None) -> SwitchEnding:
        """Drop the new vectors; the old model stays in force.

        Raises:
            NotFoundError: no switch is under way.
            ConflictError: the new model is already in force.
            StoreError: the database cannot be used.
        """
        switch = self.expect("filling", "abandoning")
        if switch.phase == "filling":
            _enter(self._store, switch.model, "filling", "abandoning")
        facts = self._clear(switch, progress)
        return SwitchEnding(action="abandon", in_force=switch.previous, facts=facts)

    # -- steps -------------------------------------------------------------------------------

    def _repeat(self, step: Callable[[], Iterator[int]], what: str, progress: Progress) -> int:
        """Repeat a step until a pass finds nothing to do."""
        done = 0
        while True:
            before = done
            for count in step():
                done += count
                progress(what, done)
            if done == before:
                return done

    def _index_settled(self, switch: VectorSwitch, progress: Progress) -> None:
        """Wait until the permanent search index has the new vectors, before it is used."""
        wish = _wish(self._settings, switch)

        def states() -> list[IndexState]:
            return [
                state for state in self._store.indexes.list_indexes(wish) if state.kind == "vector"
            ]

        _build(self._store, states(), wish)
        seen = wait_for_indexes(
            states,
            progress=lambda seen: progress("building the search index", 0),
            timeout=self._timeout,
            clock=self._monotonic,
            sleep=self._sleep,
        )
        for state in seen:
            if state.status in ("building", "failed", "different"):
                raise _unusable(state, "run the command again; until then the other index is used")
        self._until(
            lambda: self._store.switches.finds_vectors(switch.model),
            "search does not find the vectors",
        )

    def _clear(self, switch: VectorSwitch, progress: Progress) -> int:
        self._until(
            self._store.switches.drop_switch_index, "the index of the new vectors still exists"
        )
        done = self._repeat(self._store.switches.clear_staged, "clearing", progress)
        there = self._store.switches.vector_switch()
        if there is not None and there.phase in ("clearing", "abandoning"):
            self._store.switches.move_switch(there, None)
        return done

    def _until(self, done: Callable[[], bool], why: str) -> None:
        if not poll(done, timeout=self._timeout, clock=self._monotonic, sleep=self._sleep):
            raise StoreError(f"after {self._timeout:,.0f} s {why}", hint="run the command again")


def _unusable(state: IndexState, hint: str) -> StoreError:
    why = f": {state.note}" if state.note else ""
    return StoreError(f"the search index {state.name} is {state.status}{why}", hint=hint)
