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
from itertools import islice
from typing import Any, TypeVar

import msgspec

from edenmem.engine.embeddings.backfill import Backfiller, BackfillReport
from edenmem.engine.embeddings.status import vector_advice
from edenmem.engine.migration.applying import MOVED, Applier, Done
from edenmem.engine.migration.comparison import load_found, load_written
from edenmem.engine.migration.items import Treatment, format_sources
from edenmem.engine.migration.ledger import hold_lease, refuse_other_options, resumable
from edenmem.engine.migration.people import add_people
from edenmem.engine.migration.planning import (
    MAX_PROBLEMS,
    conflict_of,
    facts_by_scope,
    room_notices,
)
from edenmem.engine.migration.reports import (
    MigrationReport,
    PlanConflict,
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
from edenmem.models.v1 import Outcome, V1Problem

#: Problems of a run kept in the ledger; all are counted.
KEPT_PROBLEMS = 100

RunProgress = Callable[[str, int, int], None]
Steps = Callable[[int], None]
T = TypeVar("T")


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
        self._options = options

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
            await in_thread(refuse_other_options, self._runtime.store, self._options)
            run = await in_thread(self._find_run)
            runtime = self._runtime.for_actor(run.actor)
            work = _Run(runtime, self._plan, self._options, run)
            self._plan.keep = True
            try:
                report = await work.through(progress)
            except (EdenmemError, asyncio.CancelledError) as error:
                with suppress(StoreError):
                    await in_thread(work.note_failure, str(error) or INTERRUPTION)
                raise
            self._plan.keep = False
            return report

    def _find_run(self) -> MigrationRun:
        """Return the run to resume, or a new one that is not in the ledger yet."""
        now, store = self._runtime.clock(), self._runtime.store
        earlier = resumable(store, self._plan.about.location, self._options)
        if earlier is not None:
            run = msgspec.structs.replace(
                earlier, state=RunState.RUNNING, resumed=earlier.resumed + 1, updated_at=now
            )
        else:
            run_id = new_id()
            run = MigrationRun(
                id=run_id,
                source=self._plan.about.location,
                actor=msgspec.structs.replace(self._runtime.actor, run_id=run_id),
                started_at=now,
                updated_at=now,
                options=self._options.to_ledger(),
                documents=self._plan.about.totals,
            )
        return msgspec.structs.replace(
            run,
            done=0,
            counts={},
            problems=(),
            total=self._plan.about.item_total,
            fates=self._plan.about.fates,
            error="",
            incomplete=self._plan.about.incomplete,
            incomplete_accepted=self._options.accept_incomplete,
        )


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


class _Run:
    """The part of a run that one process does."""

    def __init__(
        self, runtime: Runtime, plan: StagedPlan, options: RunOptions, run: MigrationRun
    ) -> None:
        self._runtime = runtime
        self._plan = plan
        self._store = runtime.store
        self._options = options
        self._clock = runtime.clock
        self._run = run
        self._began = time.monotonic()
        self._before = run.seconds
        self._notices: list[str] = []
        self._conflicts: list[PlanConflict] = []
        self._counts: Counter[str] = Counter()
        self._has_written = False

    async def through(self, progress: RunProgress) -> MigrationReport:
        """Execute all steps of the run, beginning with its entry in the ledger."""
        total = self._run.total
        await in_thread(self._put)
        taken, notices = await in_thread(add_people, self._runtime, self._plan)
        self._notices += notices
        await in_thread(self._note_problems, taken)
        applier = await in_steps(self._compare, lambda done: progress("comparing", done, 0))
        progress("moving", self._run.done, total)
        batches = applier.run()
        while batch := await in_thread(next, batches, None):
            await in_thread(self._note, batch)
            progress("moving", self._run.done, total)
        await in_thread(self._follow_moved, applier)
        counts = await in_thread(self._plan.stage.outcomes)
        await in_thread(self._put_counts, counts | self._counts_of_moved())
        self._notices += await in_thread(self._room)
        embedding = await self._embed(progress) if self._options.embed else None
        verification = await in_steps(
            self._verify, lambda done: progress("verifying", done, max(total, done))
        )
        await in_thread(self._finish, verification)
        return MigrationReport(
            run=msgspec.structs.replace(self._run, state=tell_state(self._run, (), self._clock())),
            problems_by_kind=self._plan.stage.count_problems(),
            problems=tuple(islice(self._plan.problems(), MAX_PROBLEMS)),
            conflicts=tuple(self._conflicts),
            embedding=embedding,
            verification=verification,
            notices=tuple(self._notices),
        )

    def _compare(self, step: Steps) -> Applier:
        """Load the state of the store, and settle what it has already."""
        runs = self._store.migrations.migration_runs()
        run_ids = {run.id for run in runs}
        if not self._run.resumed:
            run_ids.remove(self._run.id)  # it has written nothing yet
        own = [self._run.id] if self._run.resumed else []
        load_found(self._store, self._plan, step)
        load_written(self._store, self._plan, own, set())
        self._plan.stage.settle_equal(self._run.id)
        self._run = msgspec.structs.replace(self._run, done=self._plan.stage.count_settled())
        return Applier(
            self._runtime,
            self._plan,
            run_ids=run_ids,
            on_conflict=self._options.on_conflict,
            batch_size=self._options.batch_size,
        )

    def _note(self, batch: Sequence[Done]) -> None:
        """Add the outcomes of a batch to the ledger."""
        problems = list(self._run.problems)
        for each in batch:
            decision = each.decision
            self._counts[decision.outcome] += 1
            self._has_written |= bool(decision.changes)
            if decision.treatment is not None and len(self._conflicts) < MAX_PROBLEMS:
                self._conflicts.append(conflict_of(each))
            listed = decision.outcome in (Outcome.FAILED, Outcome.KEPT)
            if listed and len(problems) < KEPT_PROBLEMS:
                source = format_sources(each.item.sources)
                problems.append(RunProblem(source=source, reason=decision.detail))
        done = min(self._run.done + len(batch), self._run.total)
        self._put(problems=tuple(problems), counts=dict(self._counts), done=done)

    def _note_problems(self, taken: Sequence[V1Problem]) -> None:
        """Note accounts that were not added, and bad documents, for the next ledger entry."""
        named = [
            RunProblem(source=f"{each.collection}/{each.document_id}", reason=each.detail)
            for each in taken[: KEPT_PROBLEMS // 2]
        ]
        named += [
            RunProblem(source=format_sources(item.sources), reason=item.reason)
            for item in islice(self._plan.items(Outcome.BAD), KEPT_PROBLEMS // 2)
        ]
        self._run = msgspec.structs.replace(
            self._run, names_taken=len(taken), problems=tuple(named)
        )

    def _follow_moved(self, applier: Applier) -> None:
        for memory in applier.remove_moved():
            self._has_written = True
            self._counts["removed"] += 1
            if len(self._conflicts) < MAX_PROBLEMS:
                self._conflicts.append(
                    PlanConflict(
                        kind=type(memory).__name__.lower(),
                        source="",
                        scope=memory.home.key,
                        treatment=Treatment.REMOVED,
                        reason=MOVED,
                    )
                )

    def _counts_of_moved(self) -> dict[str, int]:
        removed = self._counts["removed"]
        return {"removed": removed} if removed else {}

    def _put_counts(self, counts: dict[str, int]) -> None:
        self._put(counts=dict(counts), done=self._run.total)

    def _room(self) -> list[str]:
        facts = facts_by_scope(self._store, self._plan.about.agents)
        return room_notices(self._store, self._runtime.settings, facts)

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
            self._put()  # keeps the run from looking interrupted
            progress("embedding", done, total)

        return await backfiller.run(agent_id=chosen, progress=report)

    # -- the ledger ------------------------------------------------------------------------------

    def _verify(self, progress: Steps) -> Verification:
        """Verify the run before it counts as done: an interrupted verification is repeated."""
        self._put()

        def report(items: int) -> None:
            self._put()  # keeps the run from looking interrupted
            progress(items)

        run = msgspec.structs.replace(self._run, state=RunState.DONE)
        is_loaded = not self._has_written
        return verify(self._store, self._plan, run, progress=report, is_loaded=is_loaded)

    def _finish(self, verification: Verification) -> None:
        at = self._clock()
        self._put(state=RunState.DONE, finished_at=at, verification=verification.check(at))

    def note_failure(self, reason: str) -> None:
        """Record in the ledger why the run stopped."""
        self._put(state=RunState.FAILED, error=reason)

    def _put(self, **changes: Any) -> None:
        seconds = self._before + time.monotonic() - self._began
        self._run = msgspec.structs.replace(
            self._run, updated_at=self._clock(), seconds=seconds, **changes
        )
        self._store.migrations.put_migration_run(self._run)
