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
from collections.abc import Callable, Iterator, Sequence

import msgspec

from edenmem.engine.embeddings.backfill import Backfiller, BackfillPlan, BackfillReport
from edenmem.engine.embeddings.status import VectorStatus, demand_own_database, vector_status
from edenmem.engine.indexes.manager import Clock, Sleep, poll, wait_for_indexes
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.runtime.usage import sum_totals
from edenmem.errors import ConfigError, ConflictError, NotFoundError, StoreError, UsageError
from edenmem.models.indexes import IndexState, IndexWish
from edenmem.models.switch import WAY_ON, SwitchPhase, VectorSwitch
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
        runtime: With the settings of the new embedding model, and the model.
        monotonic: Seconds that only grow, and ``sleep`` to pass them, for waiting for indexes.
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
        """What there is to do. A model whose dimensions nobody knows is asked for one vector.

        Raises:
            UsageError: there is nothing to switch from, since no fact has a vector of another
                model.
            ConflictError: another switch is under way, or this one is being ended.
            ProviderError: the model could not be asked.
            StoreError: the database cannot be used.
        """
        model = self._embedder.model
        under_way = await in_thread(self._store.switches.vector_switch)
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
            await in_thread(self._store.switches.begin_switch, plan.switch)
        reports: list[BackfillReport] = []
        for _ in range(_PASSES):
            before = sum(report.embedded + report.changed for report in reports)

            def report_done(done: int, before: int = before) -> None:
                tell(before + done)

            report = await self._backfiller.run(concurrency=concurrency, tell=report_done)
            reports.append(report)
            if report.stopped_early or report.embedded + report.changed == 0:
                break
        return _join_reports(reports)

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
            state = self._store.switches.switch_index()
            if state is not None and state.status in ("failed", "missing"):
                raise StoreError(
                    f"the search index {state.name} is {state.status}"
                    + (f": {state.note}" if state.note else ""),
                    hint=f"'edenmem index create {state.name}' makes it",
                )
            if state is not None and not state.queryable:
                why = f"the search index {state.name} is being built"
            elif not self._store.switches.finds_vectors(self._embedder.model):
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
            self._store.switches.move_switch,
            first.model,
            before="filling",
            after="switched",
            at=self._clock(),
        )
        if not moved:
            raise ConflictError(f"somebody ended the switch to {first.model!r} meanwhile")
        plan = await self.plan()
        return _join_reports([first, await self.fill(plan, concurrency=concurrency)])

    async def _dimensions(self, under_way: VectorSwitch | None) -> int:
        try:
            return self._embedder.dimensions
        except ConfigError:  # only an answer of the model tells, or told when the switch began
            if under_way is not None and under_way.model == self._embedder.model:
                return under_way.dimensions
            answer = await self._embedder.embed(["dimensions"], role="passage")
            return len(answer.vectors[0]) // 4


def lacking(report: BackfillReport) -> int:
    """How many facts got no vector and should have one."""
    return sum(len(batch.fact_ids) for batch in report.failed if not batch.blank)


def _commonest(models: dict[str, int]) -> str:
    return max(models, key=lambda name: (models[name], name), default="")


def _join_reports(reports: Sequence[BackfillReport]) -> BackfillReport:
    """One report of several passes. What failed in the last pass is what is left."""
    last = reports[-1]
    return msgspec.structs.replace(
        last,
        embedded=sum(report.embedded for report in reports),
        changed=sum(report.changed for report in reports),
        usage=sum_totals(total for report in reports for total in report.usage),
        seconds=sum(report.seconds for report in reports),
    )


Tell = Callable[[str, int], None]


class SwitchEnding(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a switch: ``in_force`` is the model to configure. ``facts`` were changed, and
    ``stale`` have no vector of that model, so that a backfill is due."""

    action: str
    in_force: str
    facts: int = 0
    stale: int = 0


def switch_status(store: Store) -> tuple[VectorSwitch, VectorStatus] | None:
    """The switch that is under way, and how many facts have vectors of the new model.

    Raises:
        StoreError: the database cannot be used.
    """
    switch = store.switches.vector_switch()
    if switch is None:
        return None
    return switch, vector_status(store, switch.model, dimensions=switch.dimensions)


def check_not_staged(store: Store, model: str) -> None:
    """Refuse to backfill with the model of a switch that is being prepared: it would only prepare
    the switch.

    Raises:
        ConflictError: such a switch is under way.
    """
    under_way = store.switches.vector_switch()
    if under_way is not None and under_way.phase == "filling" and under_way.model == model:
        raise ConflictError(
            f"a switch to {model!r} is being prepared, and {under_way.previous!r} is in force",
            hint="'edenmem embed backfill --switch' goes on with it",
        )


def check_model_name(settings: Settings, model: str) -> None:
    """See that the model which was named is the one that was opened.

    Raises:
        UsageError: it is another.
    """
    wanted = settings.embedding.model
    default = type(settings.embedding)().model
    if wanted != default and model.partition("@")[0] != wanted:
        raise UsageError(
            f"--model {wanted!r}: the configured provider gives {model!r}",
            hint="name the provider too: --to provider=openai, or --to provider=local",
        )


class SwitchEnder:
    """Ends the one switch that a store is in. ``timeout``: seconds to wait for search indexes."""

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
        self._clock = runtime.clock
        self._monotonic = monotonic
        self._sleep = sleep

    def expect(self, *phases: SwitchPhase) -> VectorSwitch:
        """The switch, if it is in one of these phases.

        Raises:
            NotFoundError: no switch is under way.
            ConflictError: it is in another phase.
        """
        switch = self._store.switches.vector_switch()
        if switch is None:
            raise NotFoundError(
                "no switch of the embedding model is under way",
                hint="'edenmem embed backfill --model NAME' begins one",
            )
        if switch.phase not in phases:
            raise ConflictError(
                f"the switch from {switch.previous!r} to {switch.model!r} is {switch.phase}, "
                "so this cannot be done to it",
                hint=WAY_ON[switch.phase],
            )
        return switch

    def back(self) -> SwitchEnding:
        """Bring the old model back into force, in one step. The new vectors are kept, and what was
        learned since with vectors of the new model alone is found by a backfill.

        Raises:
            NotFoundError: no switch is under way.
            ConflictError: it has not been made, or the old vectors are being dropped.
            StoreError: the database cannot be used.
        """
        switch = self.expect("switched")
        self._move(switch, "switched", "filling")
        status = vector_status(self._store, switch.previous, dimensions=None)
        return SwitchEnding(
            action="back", in_force=switch.previous, stale=max(0, status.total.stale)
        )

    def drop_old(self, tell: Tell = lambda what, done: None) -> SwitchEnding:
        """Put the new vectors in the place of the old ones, for good. Readers of the new model are
        served all the while; those of the old one are refused from now on.

        Args:
            tell: Called with what is done, and to how many facts so far.

        Raises:
            NotFoundError: no switch is under way.
            ConflictError: it has not been made, facts have no vector of the new model, or the
                platform uses the database, with vectors of the old one.
            StoreError: the search index of the settled vectors is not there in time.
        """
        switch = self.expect("switched", "settling", "clearing")
        if switch.phase == "switched":
            demand_own_database(self._store, self._settings, switch.model)
        facts = 0
        if switch.phase == "switched":
            self._refuse_to_lose(switch)
            self._move(switch, "switched", "settling")
            switch = self.expect("settling")
        if switch.phase == "settling":
            facts += self._repeat(self._store.switches.settle_vectors, "settling", tell)
            self._index_settled(switch, tell)
            self._move(switch, "settling", "clearing")
        facts += self._repeat(self._store.switches.settle_vectors, "settling", tell)
        self._clear(switch, tell)
        return SwitchEnding(action="drop-old", in_force=switch.model, facts=facts)

    def abandon(self, tell: Tell = lambda what, done: None) -> SwitchEnding:
        """Take the new vectors away; the old model is in force as it was all the time.

        Raises:
            NotFoundError: no switch is under way.
            ConflictError: it has been made already.
            StoreError: the database cannot be used.
        """
        switch = self.expect("filling", "abandoning")
        if switch.phase == "filling":
            self._move(switch, "filling", "abandoning")
        facts = self._clear(switch, tell)
        return SwitchEnding(action="abandon", in_force=switch.previous, facts=facts)

    # -- steps -------------------------------------------------------------------------------

    def _move(self, switch: VectorSwitch, before: SwitchPhase, after: SwitchPhase) -> None:
        if not self._store.switches.move_switch(
            switch.model, before=before, after=after, at=self._clock()
        ):
            raise ConflictError(
                f"somebody else moved the switch to {switch.model!r} on meanwhile",
                hint="'edenmem embed status' tells where it stands",
            )

    def _refuse_to_lose(self, switch: VectorSwitch) -> None:
        """See that every fact which meaning finds by the old model is found by the new one."""
        stale = self._store.vectors.stale_facts(switch.model, dimensions=switch.dimensions)
        if any(fact.content.strip() for fact in stale):
            raise ConflictError(
                f"some facts have no vector of {switch.model!r} yet, and would lose what they have",
                hint="'edenmem embed backfill' with the new model configured makes them",
            )

    def _repeat(self, step: Callable[[], Iterator[int]], what: str, tell: Tell) -> int:
        """Pass after pass, until one finds nothing to do."""
        done = 0
        while True:
            before = done
            for count in step():
                done += count
                tell(what, done)
            if done == before:
                return done

    def _index_settled(self, switch: VectorSwitch, tell: Tell) -> None:
        """Have the search index of the vectors' place take up the new ones before it is searched;
        until then the other one is."""
        wish = IndexWish(dimensions=switch.dimensions, analyzer=self._settings.search.analyzer)

        def states() -> list[IndexState]:
            return [
                state for state in self._store.indexes.list_indexes(wish) if state.kind == "vector"
            ]

        for state in states():
            if state.status == "different":
                self._store.indexes.update_index(state.name, wish)
            elif state.status == "missing":
                self._store.indexes.create_index(state.name, wish)
        seen = wait_for_indexes(
            states,
            tell=lambda seen: tell("building the search index", 0) if _building(seen) else None,
            timeout=self._timeout,
            clock=self._monotonic,
            sleep=self._sleep,
        )
        wrong = [*_building(seen), *(s for s in seen if s.status in ("failed", "different"))]
        if wrong:
            raise StoreError(
                f"the search index {wrong[0].name} is {wrong[0].status}"
                + (f": {wrong[0].note}" if wrong[0].note else ""),
                hint="run the same command again; until it is ready the other index is searched",
            )
        self._until(
            lambda: self._store.switches.finds_vectors(switch.model),
            "search has not taken up the vectors",
        )

    def _clear(self, switch: VectorSwitch, tell: Tell) -> int:
        self._until(
            self._store.switches.drop_switch_index, "the index of the new vectors is still there"
        )
        done = self._repeat(self._store.switches.clear_staged, "clearing", tell)
        self._store.switches.end_switch(switch.model)
        return done

    def _until(self, done: Callable[[], bool], why: str) -> None:
        if not poll(done, timeout=self._timeout, clock=self._monotonic, sleep=self._sleep):
            raise StoreError(
                f"after {self._timeout:,.0f} s {why}", hint="run the same command again"
            )


def _building(states: Sequence[IndexState]) -> list[IndexState]:
    return [state for state in states if state.status == "building"]
