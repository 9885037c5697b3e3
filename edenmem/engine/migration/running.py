"""One run: batches of items into the store, the ledger after each, and whoever is first keeps
others out.

The ledger is written after the batch that it tells of. A process that is killed in between has
applied a batch that the ledger does not know; the next one applies it again, which changes nothing,
and finds by the audit entries that it was this run that moved the items.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from edenmem.embed.protocol import Embedder
from edenmem.engine.backfilling import Backfiller, BackfillReport
from edenmem.engine.migration.applying import Applier
from edenmem.engine.migration.condensing import Condenser
from edenmem.engine.migration.items import Done, Outcome, Rounds, named
from edenmem.engine.migration.lease import held
from edenmem.engine.migration.people import add_people
from edenmem.engine.migration.plan import V1Plan
from edenmem.engine.migration.reports import MigrationReport, RunOptions
from edenmem.engine.migration.room import facts_by_scope, room_notices
from edenmem.engine.migration.verifying import verify
from edenmem.engine.offload import in_thread
from edenmem.engine.vector_status import vector_advice
from edenmem.errors import EdenmemError, StoreError
from edenmem.llm.protocol import LLM
from edenmem.models.changes import Actor
from edenmem.models.ids import new_id, utc_now
from edenmem.models.migration import MigrationRun, RunProblem, RunState
from edenmem.models.v1 import V1Item
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store

#: Problems that the ledger keeps of a run; all are counted.
KEPT_PROBLEMS = 100

Tell = Callable[[str, int, int], None]


def resumable(store: Store, source: str, options: RunOptions) -> MigrationRun | None:
    """The run of the same source with the same options that was not finished, if there is one."""
    for run in store.migration_runs():
        unfinished = run.state in (RunState.RUNNING, RunState.FAILED)
        if unfinished and run.source == source and run.options == options.kept():
            return run
    return None


class V1Runner:
    """Moves a plan into a store.

    Args:
        store: Where to.
        settings: Of the store's owner.
        plan: What to move.
        options: How.
        actor: Who does it.
        llm: Shortens texts, where that is asked for.
        embedder: Gives facts their vectors, where that is asked for.
        clock: The current time.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        plan: V1Plan,
        options: RunOptions,
        *,
        actor: Actor,
        llm: LLM | None = None,
        embedder: Embedder | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._store = store
        self._settings = settings
        self._plan = plan
        self._options = options
        self._actor = actor
        self._llm = llm
        self._embedder = embedder
        self._clock = clock

    async def run(self, *, tell: Tell = lambda step, done, total: None) -> MigrationReport:
        """Move everything, verify it, and say what became of it.

        ``tell`` is called with the step, how much of it is done, and how much it is.

        Raises:
            ConflictError: another run is at work on this store.
            StoreError: the database cannot be used; the ledger says how far the run came, and the
                same call goes on there.
        """
        with held(self._store, self._actor, self._clock):
            run = await in_thread(self._begin)
            work = _Run(self, run)
            try:
                return await work.through(tell)
            except (EdenmemError, asyncio.CancelledError) as error:
                with suppress(StoreError):
                    await in_thread(work.note_failure, str(error) or "interrupted")
                raise

    def _begin(self) -> MigrationRun:
        now = self._clock()
        earlier = resumable(self._store, self._plan.location, self._options)
        if earlier is not None:
            run = msgspec.structs.replace(
                earlier, state=RunState.RUNNING, resumed=earlier.resumed + 1, updated_at=now
            )
        else:
            run_id = new_id()
            run = MigrationRun(
                id=run_id,
                source=self._plan.location,
                actor=msgspec.structs.replace(self._actor, run_id=run_id),
                started_at=now,
                updated_at=now,
                options=self._options.kept(),
                documents=dict(self._plan.totals),
            )
        run = msgspec.structs.replace(run, total=self._plan.item_total(), error="")
        self._store.put_migration_run(run)
        return run


class _Run:
    """What one process does of a run."""

    def __init__(self, runner: V1Runner, run: MigrationRun) -> None:
        self._runner = runner
        self._store = runner._store
        self._options = runner._options
        self._clock = runner._clock
        self._run = run
        self._began = time.monotonic()
        self._before = run.seconds
        self._notices: list[str] = []
        rounds = Rounds(self._store.migration_runs())
        self._applier = Applier(
            self._store,
            actor=run.actor,
            rounds=rounds,
            on_conflict=self._options.on_conflict,
            clock=self._clock,
            resumed=run.resumed > 0,
        )
        self._condenser = Condenser(
            self._store,
            runner._settings,
            actor=run.actor,
            rounds=rounds,
            llm=runner._llm if self._options.condense else None,
            clock=self._clock,
        )

    async def through(self, tell: Tell) -> MigrationReport:
        """All steps of the run."""
        plan, run = self._runner._plan, self._run
        self._notices += await in_thread(
            add_people, self._store, plan, actor=run.actor, at=self._clock()
        )
        tell("moving", run.done, run.total)
        items = plan.items(after=run.last_key or None)
        while batch := await in_thread(_next, items, self._options.batch_size):
            done = await in_thread(self._applier.apply, batch)
            await self._condenser.condense(done)
            await in_thread(self._note, done)
            tell("moving", self._run.done, self._run.total)
        self._notices += await in_thread(self._room)
        embedding = await self._embed(tell) if self._options.embed else None
        await in_thread(self._finish)
        verification = await in_thread(
            verify, self._store, plan, self._run, tell=lambda n: tell("verifying", n, run.total)
        )
        return MigrationReport(
            run=self._run,
            condensed=self._condenser.condensed,
            kept_whole=tuple(self._condenser.kept_whole),
            usage=self._condenser.usage,
            embedding=embedding,
            verification=verification,
            notices=tuple(self._notices),
        )

    def _room(self) -> list[str]:
        agents = [person.id for person in self._runner._plan.agents()]
        facts = facts_by_scope(self._store, agents)
        return room_notices(self._store, self._runner._settings, facts)

    async def _embed(self, tell: Tell) -> BackfillReport | None:
        runner = self._runner
        if runner._embedder is None:
            self._notices.append("there is no embedding model: facts have no vectors yet")
            return None
        model = runner._embedder.model
        if await in_thread(self._store.platform_model, model):
            advice = await in_thread(vector_advice, self._store, runner._settings, model)
            self._notices.append(f"facts have no vectors yet: {advice}")
            return None
        backfiller = Backfiller(
            self._store, runner._settings, embedder=runner._embedder, clock=self._clock
        )
        agents = self._options.v1.agents
        chosen = agents[0] if len(agents) == 1 else None
        total = (await in_thread(backfiller.status, chosen)).total.stale
        return await backfiller.run(
            agent_id=chosen, tell=lambda done: tell("embedding", done, total)
        )

    # -- the ledger ------------------------------------------------------------------------------

    def _note(self, done: list[Done]) -> None:
        counts = dict(self._run.counts)
        problems = list(self._run.problems)
        for each in done:
            outcome = each.outcome.value
            counts[outcome] = counts.get(outcome, 0) + 1
            if each.outcome in _TOLD and len(problems) < KEPT_PROBLEMS:
                reason = each.detail or each.item.reason
                problems.append(RunProblem(source=named(each.item.sources), reason=reason))
        self._put(
            counts=counts,
            problems=tuple(problems),
            last_key=done[-1].item.key,
            done=self._run.done + len(done),
        )

    def _finish(self) -> None:
        self._put(state=RunState.DONE, finished_at=self._clock())

    def note_failure(self, reason: str) -> None:
        """Say in the ledger why the run stopped; the same command goes on."""
        self._put(state=RunState.FAILED, error=reason)

    def _put(self, **changes: Any) -> None:
        seconds = self._before + time.monotonic() - self._began
        self._run = msgspec.structs.replace(
            self._run, updated_at=self._clock(), seconds=seconds, **changes
        )
        self._store.put_migration_run(self._run)


#: Outcomes that a person should hear of, item by item.
_TOLD = (Outcome.FAILED, Outcome.BAD, Outcome.KEPT)


def _next(items: Iterator[V1Item], size: int) -> list[V1Item]:
    return list(islice(items, size))
