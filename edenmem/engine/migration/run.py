"""Run a migration: compare, write what differs, verify, and keep the ledger, under a lease.

A process killed at any point leaves whole documents. The next one compares again and writes
what is missing: the store says what was written, and its log by which run.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import Any, TypeVar

import msgspec

from edenmem.engine.embeddings.backfill import Backfiller, BackfillReport
from edenmem.engine.embeddings.status import vector_advice
from edenmem.engine.migration.applying import MAX_PROBLEMS, Applier, Done
from edenmem.engine.migration.comparison import Steps
from edenmem.engine.migration.items import Treatment, format_sources
from edenmem.engine.migration.ledger import hold_lease, refuse_other_options, resumable
from edenmem.engine.migration.people import add_people
from edenmem.engine.migration.reports import (
    MigrationReport,
    RunOptions,
    Verification,
)
from edenmem.engine.migration.source import StagedPlan
from edenmem.engine.migration.verification import verify
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import EdenmemError, StoreError
from edenmem.models.ids import new_id
from edenmem.models.migration import (
    INTERRUPTION,
    MigrationRun,
    RunProblem,
    RunState,
    tell_state,
)
from edenmem.models.v1 import Outcome

#: Problems of a run kept in the ledger; all are counted.
KEPT_PROBLEMS = 100
#: Time between writes to the ledger while nothing is moved.
_ALIVE = timedelta(seconds=10)

RunProgress = Callable[[str, int, int], None]
T = TypeVar("T")


class _Stopped(Exception):
    """End the blocking work of a cancelled task."""


async def in_steps(
    work: Callable[[Callable[[int], None]], T], progress: Steps = lambda n: None
) -> T:
    """Run blocking work in a thread; a cancellation ends the work at its next step."""
    stop = threading.Event()

    def step(done: int) -> None:
        if stop.is_set():
            raise _Stopped
        progress(done)

    task = asyncio.ensure_future(in_thread(work, step))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.gather(task, return_exceptions=True)
        raise


class V1Runner:
    """Run a migration plan.

    Args:
        runtime: With ``embedder`` to embed facts, as the options say.
        plan: The plan.
        options: The options.
    """

    def __init__(self, runtime: Runtime, plan: StagedPlan, options: RunOptions) -> None:
        self._runtime = runtime
        self._plan = plan
        self._store = runtime.store
        self._options = options
        self._clock = runtime.clock
        self._began = time.monotonic()
        self._before = 0.0
        self._notices: list[str] = []
        self._counts: Counter[str] = Counter()
        self._has_written = False

    async def run(
        self, *, progress: RunProgress = lambda step, done, total: None
    ) -> MigrationReport:
        """Move all items and verify them.

        ``progress`` is called with the name of the step, the number of items done, and their total.

        Raises:
            ConflictError: another migration is running on this store, or an earlier run had other
                options.
            StoreError: the database cannot be used; the same call resumes the run.
        """
        with hold_lease(self._runtime):
            await in_thread(refuse_other_options, self._store, self._options)
            await in_thread(self._find_run)
            self._plan.keep = True
            try:
                report = await self._through(progress)
            except (EdenmemError, asyncio.CancelledError) as error:
                why = str(error) or INTERRUPTION
                with suppress(StoreError):
                    await in_thread(self._put, state=RunState.FAILED, error=why)
                raise
            self._plan.keep = False
            return report

    def _find_run(self) -> None:
        """Find the run to resume, or begin a new one that is not in the ledger yet."""
        now, about = self._clock(), self._plan.about
        run = resumable(self._store, about.location, self._options)
        if run is None:
            run_id = new_id()
            run = MigrationRun(
                id=run_id,
                source=about.location,
                actor=msgspec.structs.replace(self._runtime.actor, run_id=run_id),
                started_at=now,
                updated_at=now,
                options=self._options.to_ledger(),
                documents=about.totals,
                resumed=-1,
            )
        self._before = run.seconds
        self._runtime = self._runtime.for_actor(run.actor)
        self._run = msgspec.structs.replace(
            run,
            state=RunState.RUNNING,
            resumed=run.resumed + 1,
            done=0,
            counts={},
            problems=(),
            total=about.item_total,
            results=about.results,
            error="",
            incomplete=about.incomplete,
            incomplete_accepted=self._options.accept_incomplete,
        )

    async def _through(self, progress: RunProgress) -> MigrationReport:
        """Execute all steps of the run, beginning with its entry in the ledger."""
        total = self._run.total
        await in_thread(self._put)
        await in_thread(self._add_people)
        applier = await in_steps(self._compare, lambda done: progress("comparing", done, 0))
        progress("moving", self._run.done, total)
        batches = applier.run()
        while batch := await in_thread(next, batches, None):
            await in_thread(self._note, batch)
            progress("moving", self._run.done, total)
        await in_thread(self._end_moving, applier)
        embedding = await self._embed(progress) if self._options.embed else None
        # An interrupted verification is repeated: the run is not done before.
        check = await in_steps(
            self._verify, lambda done: progress("verifying", done, max(total, done))
        )
        at = self._clock()
        done = {
            "state": RunState.DONE,
            "finished_at": at,
            "verification": check.check(at),
        }
        await in_thread(self._put, **done)
        return MigrationReport(
            run=msgspec.structs.replace(self._run, state=tell_state(self._run, (), self._clock())),
            problems_by_kind=self._plan.stage.count_problems(),
            problems=tuple(islice(self._plan.problems(), MAX_PROBLEMS)),
            conflicts=tuple(applier.conflicts),
            embedding=embedding,
            verification=check,
            notices=tuple(self._notices),
        )

    def _add_people(self) -> None:
        """Add accounts, and note bad documents."""
        self._notices = add_people(self._runtime, self._plan)
        problems = tuple(
            RunProblem(source=format_sources(item.sources), reason=item.reason)
            for item in islice(self._plan.items(Outcome.BAD), KEPT_PROBLEMS // 2)
        )
        self._run = msgspec.structs.replace(self._run, problems=problems)

    def _compare(self, step: Steps) -> Applier:
        """Load the state of the store, and settle what it has already."""
        resumed = self._run.id if self._run.resumed else None
        applier = Applier(self._runtime, self._plan, self._options, step, resumed=resumed)
        self._run = msgspec.structs.replace(self._run, done=self._plan.stage.count_settled())
        return applier

    def _note(self, batch: Sequence[Done]) -> None:
        """Add the outcomes of a batch to the ledger."""
        problems = list(self._run.problems)
        for each in batch:
            decision = each.decision
            self._counts[decision.outcome] += 1
            self._has_written |= bool(decision.changes)
            listed = decision.outcome in (Outcome.FAILED, Outcome.KEPT)
            if listed and len(problems) < KEPT_PROBLEMS:
                source = format_sources(each.item.sources)
                problems.append(RunProblem(source=source, reason=decision.detail))
        done = min(self._run.done + len(batch), self._run.total)
        self._put(problems=tuple(problems), counts=dict(self._counts), done=done)

    def _end_moving(self, applier: Applier) -> None:
        """Remove what v1 has moved, and note the outcomes of all items."""
        applier.remove_moved()
        counts = dict(self._plan.stage.outcomes())
        if removed := applier.treatments[Treatment.REMOVED]:
            self._has_written, counts["removed"] = True, removed
        self._put(counts=counts, done=self._run.total)

    async def _embed(self, progress: RunProgress) -> BackfillReport | None:
        runtime = self._runtime
        if runtime.embedder is None:
            self._notices.append("no embedding model is configured: facts have no vectors yet")
            return None
        model = runtime.embedder.model
        if await in_thread(self._store.switches.platform_model, model):
            advice = await in_thread(vector_advice, self._store, runtime.settings, model)
            self._notices.append(f"facts have no vectors yet: {advice}")
            return None
        backfiller = Backfiller(runtime)
        agents = self._options.v1.agents
        chosen = agents[0] if len(agents) == 1 else None
        total = (await in_thread(backfiller.status, chosen)).total.stale

        def report(done: int) -> None:
            self._stay_alive()
            progress("embedding", done, total)

        return await backfiller.run(agent_id=chosen, progress=report)

    def _verify(self, progress: Steps) -> Verification:
        def report(items: int) -> None:
            self._stay_alive()
            progress(items)

        self._put()
        run = msgspec.structs.replace(self._run, state=RunState.DONE)
        is_loaded = not self._has_written
        return verify(self._store, self._plan, run, progress=report, is_loaded=is_loaded)

    def _stay_alive(self) -> None:
        """Keep the run from looking interrupted."""
        if self._clock() - self._run.updated_at > _ALIVE:
            self._put()

    def _put(self, **changes: Any) -> None:
        """Write the run to the ledger, with changes."""
        seconds = self._before + time.monotonic() - self._began
        self._run = msgspec.structs.replace(
            self._run, updated_at=self._clock(), seconds=seconds, **changes
        )
        self._store.migrations.put_migration_run(self._run)
