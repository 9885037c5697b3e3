"""Run a migration: batches of items into the store, and the ledger after each, under a lease.

The ledger is written after each batch. If the process is killed in between, the next process
applies the last batch again, which changes nothing, and recognizes its own items by their audit
entries.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from edenmem.engine.consolidation import draft as consolidation_draft
from edenmem.engine.consolidation.draft import Assignment, DraftRefused
from edenmem.engine.embeddings.backfill import Backfiller, BackfillReport
from edenmem.engine.embeddings.status import find_local_embedder, vector_advice
from edenmem.engine.migration.applier import Applier
from edenmem.engine.migration.items import (
    MOVED,
    SHORTENED,
    Done,
    Outcome,
    Rounds,
    V1Plan,
    batched_items,
    change_id,
    format_sources,
)
from edenmem.engine.migration.reports import (
    MigrationReport,
    RunOptions,
    Verification,
    check_of,
)
from edenmem.engine.migration.source import add_people, join_names
from edenmem.engine.migration.verification import verify
from edenmem.engine.runtime.answers import TextAnswer
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.llm_session import Asker
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.runtime.usage import Meter, keep_usage
from edenmem.engine.scopes.overview import defaults_of
from edenmem.errors import (
    BudgetExceeded,
    ConflictError,
    EdenmemError,
    ProviderAuthError,
    ProviderError,
    StoreError,
)
from edenmem.llm.protocol import LLM
from edenmem.models.changes import ChangeSet, WriteConsolidation
from edenmem.models.formation import UsageTotal
from edenmem.models.ids import new_id
from edenmem.models.migration import INTERRUPTION, MigrationRun, RunProblem, RunState, tell_state
from edenmem.models.scope import Scope
from edenmem.models.v1 import V1Item, V1Problem, V1Text
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store, batched
from edenmem.text import word_count

#: A lease expires after this time without renewal.
LEASE = timedelta(minutes=1)


@contextmanager
def hold_lease(runtime: Runtime) -> Iterator[None]:
    """Prevent other migrations from running meanwhile. Blocks.

    Raises:
        ConflictError: another migration is running.
        StoreError: the database cannot be used.
    """
    here = f" on {runtime.actor.host}, process "
    holder = f"{runtime.actor.name}{here}{os.getpid()} ({new_id()[-6:]})"

    def take() -> None:
        migrations, now = runtime.store.migrations, runtime.clock()
        held = migrations.take_migration_lease(holder, now=now, until=now + LEASE)
        if held is not None and _is_dead(held[0], here):
            migrations.end_migration_lease(held[0])
            held = migrations.take_migration_lease(holder, now=now, until=now + LEASE)
        if held is not None:
            other, until = held
            seconds = math.ceil((until - now).total_seconds())
            raise ConflictError(
                f"another migration is running on this store: {other}",
                hint=f"wait until it ends; if it was killed, retry in {seconds} s",
            )

    over = threading.Event()

    def keep() -> None:
        while not over.wait(LEASE.total_seconds() / 4):
            # A lost lease is harmless: another process would apply the same changes.
            with suppress(EdenmemError):
                take()

    take()
    keeper = threading.Thread(target=keep, name="edenmem-migration-lease", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()
        with suppress(StoreError):  # the lease expires anyway
            runtime.store.migrations.end_migration_lease(holder)


def _is_dead(holder: str, here: str) -> bool:
    """Return whether the holder of a lease is a process of this host that ended."""
    _, is_here, process = holder.partition(here)
    number = process.partition(" ")[0]
    if not is_here or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass  # a process of another account
    return False


_BATCH = 500


def room_notices(store: Store, settings: Settings, facts: Mapping[Scope, int]) -> list[str]:
    """Return a notice if scopes hold, or will hold, more ``facts`` than their limit."""
    full = []
    for scopes in batched(facts, _BATCH):
        policies = store.memory.policies(scopes)
        for scope in scopes:
            policy = policies.get(scope)
            own = policy.fact_buffer_max if policy is not None else None
            limit = own if own is not None else defaults_of(settings, scope.kind).fact_buffer_max
            if limit and facts[scope] > limit:
                full.append(scope.key)
    if not full:
        return []
    scopes_have = "scope has" if len(full) == 1 else "scopes have"
    return [
        f"{len(full):,} {scopes_have} more facts than fact_buffer_max: the next formation drops "
        "the oldest, which are the migrated ones. Raise the limit with 'edenmem scope policy': "
        f"{join_names(full)}"
    ]


def facts_by_scope(store: Store, agent_ids: Sequence[str]) -> dict[Scope, int]:
    """Return the number of facts in each scope of these agents."""
    return {
        summary.scope: summary.facts
        for agent_id in agent_ids
        for summary in store.memory.scopes(agent_id=agent_id)
        if summary.facts
    }


#: Problems of a run kept in the ledger; all are counted.
KEPT_PROBLEMS = 100

RunProgress = Callable[[str, int, int], None]
Steps = Callable[[int], None]
T = TypeVar("T")


def resumable(store: Store, source: str, options: RunOptions) -> MigrationRun | None:
    """Return the unfinished run with the same source and options, or None."""
    for run in store.migrations.migration_runs():
        unfinished = run.state in (RunState.RUNNING, RunState.FAILED)
        if unfinished and run.source == source and run.options == options.to_ledger():
            return run
    return None


class V1Runner:
    """Run a migration plan.

    Args:
        runtime: With ``llm`` to shorten texts and ``embedder`` to embed facts, as the options say.
        plan: The items to migrate.
        options: The options.
    """

    def __init__(self, runtime: Runtime, plan: V1Plan, options: RunOptions) -> None:
        self._runtime = runtime
        self._plan = plan
        self._options = options

    async def run(
        self, *, progress: RunProgress = lambda step, done, total: None
    ) -> MigrationReport:
        """Move all items and verify them.

        ``progress`` is called with the name of the step, the number of items done, and their total.

        Raises:
            ConflictError: another migration is running on this store.
            StoreError: the database cannot be used; the same call resumes the run.
        """
        with hold_lease(self._runtime):
            await _in_steps(self._plan.item_total)  # slow; cached for the rest of the run
            run = await in_thread(self._find_run)
            runtime = self._runtime.for_actor(run.actor)
            work = _Run(runtime, self._plan, self._options, run)
            try:
                return await work.through(progress)
            except (EdenmemError, asyncio.CancelledError) as error:
                with suppress(StoreError):
                    await in_thread(work.note_failure, str(error) or INTERRUPTION)
                raise

    def _find_run(self) -> MigrationRun:
        """Return the run to resume, or a new one that is not in the ledger yet."""
        now, store = self._runtime.clock(), self._runtime.store
        earlier = resumable(store, self._plan.location, self._options)
        if earlier is not None:
            run = msgspec.structs.replace(
                earlier, state=RunState.RUNNING, resumed=earlier.resumed + 1, updated_at=now
            )
        else:
            run_id = new_id()
            run = MigrationRun(
                id=run_id,
                source=self._plan.location,
                actor=msgspec.structs.replace(self._runtime.actor, run_id=run_id),
                started_at=now,
                updated_at=now,
                options=self._options.to_ledger(),
                documents=dict(self._plan.totals),
            )
        return msgspec.structs.replace(
            run,
            total=self._plan.item_total(),
            fates=dict(self._plan.fates()),
            error="",
            incomplete=tuple(self._plan.incomplete),
            incomplete_accepted=self._options.accept_incomplete,
        )


class _Stopped(Exception):
    """End the blocking work of a cancelled task."""


async def _in_steps(
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


# -- texts over their limit ------------------------------------------------------------------------

#: Maximum number of texts over their limit that are named.
_WHOLE_NAMED = 100
#: Minimum length of a shortened text, as a share of its word limit.
_LEAST = 0.2
#: Errors that every further request would repeat.
_HOPELESS = (ProviderAuthError, BudgetExceeded)


class Condenser:
    """Shorten the texts of one run with a language model.

    The whole text is written first and stays in history. Without a model, or if its answer is
    rejected, the whole text stays current: no text is ever truncated.
    """

    def __init__(self, runtime: Runtime, *, rounds: Rounds) -> None:
        self._store = runtime.store
        self._settings = runtime.settings
        self._actor = runtime.actor
        self._rounds = rounds
        self._llm = runtime.llm
        self._clock = runtime.clock
        self._meter = Meter()
        self.condensed = 0
        self.kept_whole: list[str] = []

    @property
    def usage(self) -> tuple[UsageTotal, ...]:
        """Return the usage of the model."""
        return self._meter.totals

    async def condense(self, done: Sequence[Done]) -> None:
        """Shorten the texts over their limit.

        Raises:
            StoreError: the database cannot be used.
        """
        for each in done:
            text = each.item.target
            if isinstance(text, V1Text) and text.words > text.word_limit and each.outcome in MOVED:
                await self._one(each.item, text)

    async def _one(self, item: V1Item, text: V1Text) -> None:
        size = f"{text.scope.key}: {text.words:,} words, the limit is {text.word_limit:,}"
        own = change_id(item, self._rounds.of(item), "condensed")
        if self._llm is None:
            self._keep(size)
        elif len(text.content) > self._settings.formation.max_characters:
            self._keep(f"{size}; too long for one prompt")
        elif not await in_thread(self._store.log.audit_entry, own):
            await self._ask(self._llm, item, text, own, size)

    def _keep(self, why: str) -> None:
        if len(self.kept_whole) < _WHOLE_NAMED:
            self.kept_whole.append(why)

    async def _ask(self, llm: LLM, item: V1Item, text: V1Text, own: str, size: str) -> None:
        asker = Asker(llm, f"migrate/{text.scope.key}")
        try:
            content = await self._shorten(asker, text)
        except (ProviderError, DraftRefused) as error:
            self._keep(f"{size}; {error.message}")
            if isinstance(error, _HOPELESS):
                self._llm = None
            return
        finally:
            self._meter.add(asker.spent)
            await keep_usage(self._store, item.agent_id, "migration", asker.spent, at=self._clock())
        if await in_thread(self._write, text, content, own):
            self.condensed += 1
        else:
            self._keep(f"{size}; it was changed in the meantime")

    async def _shorten(self, asker: Asker, text: V1Text) -> str:
        assignment = Assignment(
            kind=text.scope.kind,
            owner="",
            current="",
            reflections=(),
            instructions=None,
            word_limit=text.word_limit,
            now=self._clock(),
        )
        content = text.content
        for _ in range(2):
            answer = await asker.ask(
                "shorten",
                TextAnswer,
                model=self._settings.llm.slow_model,
                kind=text.scope.kind,
                fixed=(),
                text=content,
                words=word_count(content),
                word_limit=text.word_limit,
            )
            content = consolidation_draft.validate_draft(answer.text, assignment)
            if word_count(content) <= text.word_limit:
                break
        consolidation_draft.demand_length(content, text.word_limit)
        if word_count(content) < text.word_limit * _LEAST:
            raise DraftRefused(f"the shortened text has only {word_count(content)} words")
        return content

    def _write(self, text: V1Text, content: str, own: str) -> bool:
        current = self._store.memory.consolidations([text.scope]).get(text.scope)
        if current is None or current.consolidated_content != text.content:
            return False
        now = self._clock()
        change = WriteConsolidation(
            id=own,
            reason=SHORTENED,
            scope=text.scope,
            expected_version=current.version,
            content=content,
            word_limit=text.word_limit,
            at=now,
        )
        (result,) = self._store.changes.apply(
            ChangeSet(actor=self._actor, at=now, changes=(change,))
        )
        return result.ok


class _Run:
    """The part of a run that one process does."""

    def __init__(
        self, runtime: Runtime, plan: V1Plan, options: RunOptions, run: MigrationRun
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

    def _tools(self) -> tuple[Applier, Condenser]:
        """Create the applier and condenser, once this run is in the ledger."""
        runtime, options = self._runtime, self._options
        rounds = Rounds(self._store.migrations.migration_runs())
        applier = Applier(
            runtime,
            self._plan,
            rounds=rounds,
            on_conflict=options.on_conflict,
            resumed=self._run.resumed > 0,
        )
        if not options.condense:
            runtime = msgspec.structs.replace(runtime, llm=None)
        return applier, Condenser(runtime, rounds=rounds)

    async def through(self, progress: RunProgress) -> MigrationReport:
        """Execute all steps of the run, beginning with its entry in the ledger."""
        plan, run = self._plan, self._run
        await in_thread(self._put)
        applier, condenser = await in_thread(self._tools)
        taken, notices = await in_thread(add_people, self._runtime, plan)
        self._notices += notices
        self._note_taken(taken)
        progress("moving", run.done, run.total)
        items = plan.items(after=run.last_key or None)
        batches = batched_items(items, self._options.batch_size)
        while batch := await in_thread(next, batches, None):
            done = await in_thread(applier.apply, batch)
            await condenser.condense(done)
            await in_thread(self._note, done)
            progress("moving", self._run.done, self._run.total)
        self._notices += await in_thread(self._room)
        embedding = await self._embed(progress) if self._options.embed else None
        verification = await _in_steps(
            self._verify, lambda done: progress("verifying", done, run.total)
        )
        await in_thread(self._finish, verification)
        state = tell_state(self._run, (), self._runtime.clock())
        return MigrationReport(
            run=msgspec.structs.replace(self._run, state=state),
            condensed=condenser.condensed,
            kept_whole=tuple(condenser.kept_whole),
            usage=condenser.usage,
            embedding=embedding,
            verification=verification,
            notices=tuple(self._notices),
        )

    def _room(self) -> list[str]:
        agents = [person.id for person in self._plan.agents()]
        facts = facts_by_scope(self._store, agents)
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

    def _note(self, done: list[Done]) -> None:
        counts = dict(self._run.counts)
        problems = list(self._run.problems)
        for each in done:
            outcome = each.outcome.value
            counts[outcome] = counts.get(outcome, 0) + 1
            if each.outcome in _LISTED and len(problems) < KEPT_PROBLEMS:
                reason = each.detail or each.item.reason
                problems.append(RunProblem(source=format_sources(each.item.sources), reason=reason))
        self._put(
            counts=counts,
            problems=tuple(problems),
            last_key=done[-1].item.key,
            done=self._run.done + len(done),
        )

    def _note_taken(self, taken: Sequence[V1Problem]) -> None:
        """Note the accounts that were not added, for the next ledger entry."""
        named = [
            RunProblem(source=f"{each.collection}/{each.document_id}", reason=each.detail)
            for each in taken[: KEPT_PROBLEMS // 2]
        ]
        others = [each for each in self._run.problems if not each.source.startswith(_ACCOUNTS)]
        self._run = msgspec.structs.replace(
            self._run,
            names_taken=len(taken),
            problems=tuple([*named, *others][:KEPT_PROBLEMS]),
        )

    def _verify(self, progress: Steps) -> Verification:
        """Verify the run before it counts as done: an interrupted verification is repeated."""
        self._put()

        def report(items: int) -> None:
            self._put()  # keeps the run from looking interrupted
            progress(items)

        run = msgspec.structs.replace(self._run, state=RunState.DONE)
        embedder = find_local_embedder(self._runtime)
        return verify(self._store, self._plan, run, embedder=embedder, progress=report)

    def _finish(self, verification: Verification) -> None:
        at = self._clock()
        check = check_of(verification, at)
        self._put(state=RunState.DONE, finished_at=at, verification=check)

    def note_failure(self, reason: str) -> None:
        """Record in the ledger why the run stopped."""
        self._put(state=RunState.FAILED, error=reason)

    def _put(self, **changes: Any) -> None:
        seconds = self._before + time.monotonic() - self._began
        self._run = msgspec.structs.replace(
            self._run, updated_at=self._clock(), seconds=seconds, **changes
        )
        self._store.migrations.put_migration_run(self._run)


#: Prefix of the sources of account problems.
_ACCOUNTS = "users3/"
#: Outcomes listed item by item.
_LISTED = (Outcome.FAILED, Outcome.BAD, Outcome.KEPT)
