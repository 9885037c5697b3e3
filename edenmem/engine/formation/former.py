"""Form memory from messages: claim, extract facts, record, apply, then the same with reflections.

Consolidation and the session's cached context come later, in the service. A range of messages is
done once the outcome of its last step has been applied. The next worker applies recorded outcomes
without asking a model again. A step is never repeated once its outcome is in memory, even if the
next step fails.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from edenmem.engine.formation.attempt import Attempt
from edenmem.engine.formation.claims import Claims, LeaseLost, choose_range, halve, step
from edenmem.engine.formation.extraction import Task
from edenmem.engine.formation.formation_input import FormationInput
from edenmem.engine.formation.pipeline import Outcome, Pipeline
from edenmem.engine.formation.recheck import apply_recorded, recheck
from edenmem.engine.formation.sharing import Backlogs
from edenmem.engine.reports import FormationReport
from edenmem.engine.runtime.concurrency import (
    demand_loop,
    in_loop,
    in_thread,
    run_in_turns,
)
from edenmem.engine.runtime.llm_session import Asker, ping
from edenmem.engine.runtime.runtime import Runtime, require_llm
from edenmem.engine.runtime.usage import keep_usage
from edenmem.errors import (
    BudgetExceeded,
    ConfigError,
    ContextOverflow,
    EdenmemError,
    EmbeddingModelMismatch,
    FactKeyConflict,
    InputError,
    ProviderAnswerInvalid,
    ProviderAuthError,
    ProviderError,
    ProviderMisconfigured,
    ProviderRateLimited,
    ProviderTimeout,
    ReplayMiss,
    StoreError,
    StoreReadOnly,
    UnavailableError,
)
from edenmem.memory.formations import is_free, narrow, record, supersede
from edenmem.models.forgetting import block
from edenmem.models.formation import CallUsage, Formation, FormationStatus, Reach, Trigger
from edenmem.models.host import Agent, Message, Session
from edenmem.models.scope import Scope
from edenmem.observation import observed
from edenmem.store.protocol.formations import Backlog
from edenmem.store.protocol.store import Store

#: The step after the facts.
REFLECTIONS: Task = "reflections"

#: Errors that no range of messages causes: they stop the run and count as no failed attempt.
_NOT_ITS_FAULT = (
    ProviderAuthError,
    ProviderMisconfigured,
    ProviderRateLimited,
    ProviderTimeout,
    ReplayMiss,
    BudgetExceeded,
    EmbeddingModelMismatch,
    StoreError,
)


#: The end of a forgetting that is not closed.
_OPEN = datetime.max.replace(tzinfo=UTC)

#: Time limit in seconds for a short question after a time-out on a range.
PING_SECONDS = 30.0


class RangeTimedOut(ProviderError):
    """A model that answers other requests did not answer about this range in time."""


class _Look(NamedTuple):
    """The work on a session: an unfinished formation, or a backlog, and the reach from now on."""

    unfinished: Formation | None
    backlog: Backlog
    reach: Reach
    is_due: bool = False


class Former:
    """Forms memories of sessions, as one worker."""

    def __init__(self, runtime: Runtime, *, worker: str | None = None) -> None:
        self._store = runtime.store
        self._settings = runtime.settings
        self._llm = runtime.llm
        self._embedder = runtime.embedder
        self._clock = runtime.clock
        self._claims = Claims(
            runtime.store.formations, runtime.settings.formation, runtime.clock, worker=worker
        )
        self._backlogs = Backlogs(runtime)
        self._pipeline = Pipeline(runtime)

    @observed("formation", after=lambda reports: _details(reports), level=logging.INFO)
    async def form(
        self,
        session: Session,
        agent: Agent,
        *,
        trigger: Trigger,
        dry_run: bool = False,
        reach: Reach = Reach.WAITING,
        is_time_up: Callable[[], bool] | None = None,
    ) -> list[FormationReport]:
        """Form what is due of a session for one of its agents, range by range.

        Work left unfinished by an earlier run comes first. There is always at least one report, and
        ``left`` of the last one is the number of remaining messages. A dry run asks the models,
        claims and writes nothing, and stops after the first range.

        To repeat edenmem's own formations (``reach``), they are superseded first: their messages
        wait like new ones, so that an interrupted run loses none of them.

        ``is_time_up`` returns, when the work is cancelled, whether its time was up. The first range
        had all of the time, so this counts as a failed attempt if the models answer other requests.

        Raises:
            ConfigError: a model is needed and none is configured.
            UnavailableError: a provider or the store is unavailable. The claim was given back and
                no failed attempt was counted.
            FactKeyConflict: an index of the database refuses facts; the same.
        """
        report_on = partial(FormationReport, session_id=session.id, agent_id=agent.id)
        if session.incognito:
            return [report_on(outcome="incognito")]
        reports: list[FormationReport] = []
        waiting: int | None = None  # messages at the time of the first range
        most: int | None = None  # messages that fit into a model's context
        while waiting is None or waiting > 0:
            formed = None if dry_run else {report.formation_id for report in reports}
            unfinished, backlog, reach, is_due = await in_thread(
                self._look, session, agent, reach, trigger, supersede_but=formed
            )
            attempt_on = partial(
                Attempt,
                session=session,
                agent=agent,
                trigger=trigger,
                dry_run=dry_run,
                reach=reach,
                is_time_up=is_time_up,
            )
            if unfinished is not None:
                report = await self._resume(attempt_on(formation=unfinished))
                rest = await in_thread(
                    self._backlogs.find, session, agent.id, limit=1, reach=reach, trigger=trigger
                )
                report = replace(report, left=rest.total)
            else:
                is_begun = waiting is not None and trigger is not Trigger.THRESHOLD
                if not backlog.total or not (is_due or is_begun or most is not None):
                    idle = report_on(
                        outcome="not_due",
                        left=backlog.total,
                        by_platform=0 if reach.platform else backlog.by_platform,
                        left_to_platform=backlog.left_to_platform,
                    )
                    return reports or [idle]
                require_llm(self._llm)
                messages = choose_range(backlog.messages[:most], self._settings.formation)
                left = backlog.total - len(messages)
                formation = await self._claims.take(
                    partial(self._open, session, agent, trigger, messages, dry_run)
                )
                if formation is None:
                    report = report_on(outcome="taken", left=left)
                else:
                    is_other = formation.message_ids != tuple(each.id for each in messages)
                    attempt = attempt_on(
                        formation=formation,
                        messages=None if is_other else messages,
                        left_to_platform=backlog.left_to_platform if trigger.forced else 0,
                    )
                    report = await self._perform(attempt)
                    report = replace(report, left=left + attempt.split_off)
                waiting = (backlog.total if waiting is None else waiting) - report.messages
            if report.split_off:
                most = report.messages
            reports.append(report)
            is_time_up = None  # the next range has less time
            if report.outcome not in ("applied", "resumed"):
                break
        return reports

    def _look(
        self,
        session: Session,
        agent: Agent,
        reach: Reach,
        trigger: Trigger,
        *,
        supersede_but: Set[str | None] | None,
    ) -> _Look:
        """Return unfinished work, or else the backlog. Blocks.

        Supersedes formations to repeat, except those of this run; None to write nothing. Before the
        first range of a run it moves a cursor forward that the platform put back.
        """
        is_first = supersede_but is not None and not supersede_but
        if is_first and trigger is not Trigger.THRESHOLD and self._backlogs.in_force.shared:
            self._store.formations.advance_cursor(session.id)
        unfinished = self._claims.find_unfinished(session.id, agent.id)
        if unfinished is not None:
            return _Look(unfinished, Backlog(messages=(), total=0), reach)
        if reach.own and supersede_but is not None:
            require_llm(self._llm)
            self._supersede(session, agent, supersede_but)
            reach = Reach.INCLUDE_FORMED if reach.platform else Reach.WAITING
        limit = self._settings.formation.max_messages
        backlog = self._backlogs.find(
            session,
            agent.id,
            limit=sys.maxsize if reach.own else limit,
            reach=reach,
            trigger=trigger,
            note=supersede_but is not None,
        )
        if reach.own:  # whole, since the erased messages may exceed one range
            forgotten = _find_forgotten(self._store, agent.id, backlog.messages)
            messages = tuple(each for each in backlog.messages if each.id not in forgotten)
            backlog = replace(backlog, messages=messages[:limit], total=len(messages))
        is_due = self._backlogs.is_due(session, agent, backlog, trigger)
        return _Look(None, backlog, reach, is_due)

    def _supersede(self, session: Session, agent: Agent, but: Set[str | None]) -> None:
        """Free the messages of all finished formations, except those of this run."""
        finished = self._store.formations.list_formations(
            session_id=session.id,
            agent_id=agent.id,
            statuses=(FormationStatus.APPLIED, FormationStatus.FAILED),
        )
        for formation in list(finished):
            if formation.id not in but:
                said = tuple(self._store.host.messages(session.id, ids=formation.message_ids))
                keep = _find_forgotten(self._store, agent.id, said)
                keep |= self._store.formations.find_blocked(formation.message_ids)
                step(self._store.formations, formation, supersede, keep=keep, now=self._clock())

    # -- one range ---------------------------------------------------------------------------

    async def _resume(self, attempt: Attempt) -> FormationReport:
        """Continue an unfinished formation: apply what was recorded, then take what is left."""
        unfinished, trigger = attempt.formation, attempt.trigger
        if unfinished.status is FormationStatus.RECORDED:
            await in_thread(self._complete, attempt)
            if attempt.dry_run:
                return attempt.report("dry_run")
            if attempt.formation.status is not FormationStatus.RELEASED:
                return attempt.report("resumed")
        if not is_free(attempt.formation, self._clock(), forced=trigger.forced):
            released = unfinished.status is FormationStatus.RELEASED
            return attempt.report(
                "waiting" if released else "taken",
                not_before=unfinished.not_before if released else None,
                error=unfinished.error,
            )
        require_llm(self._llm)

        def take_over() -> Formation | None:
            if not attempt.dry_run:
                return self._claims.take_over(attempt.formation, trigger=trigger)
            is_proposed = trigger is Trigger.PROPOSED
            return replace(
                attempt.formation, trigger=trigger if is_proposed else unfinished.trigger
            )

        taken = await self._claims.take(take_over)
        if taken is None:
            return attempt.report("taken")
        attempt.formation = taken
        await in_thread(self._leave_out_read, attempt)
        if taken.status is FormationStatus.RECORDED:  # in the meantime
            await in_thread(self._complete, attempt, self._claims.worker)
            if attempt.formation.status is not FormationStatus.CLAIMED:
                return attempt.report("resumed")
        return await self._perform(attempt)

    def _complete(self, attempt: Attempt, worker: str | None = None) -> None:
        """Apply what was recorded. Safe while the worker that recorded it runs. Blocks.

        If a step is left, the formation is released, unless it is the ``worker``'s.
        """
        formations = self._store.formations
        recorded = formations.formation(attempt.formation.id) or attempt.formation
        attempt.add(recorded.changes, recorded.decisions)
        if not attempt.dry_run:
            attempt.formation, results = apply_recorded(
                self._store, recorded, now=self._clock(), worker=worker
            )
            attempt.results = tuple(results)

    def _open(
        self,
        session: Session,
        agent: Agent,
        trigger: Trigger,
        messages: Sequence[Message],
        dry_run: bool,
    ) -> Formation | None:
        """Claim these messages; None if another worker was first. Blocks."""
        draft = self._claims.draft(session.id, agent.id, trigger, messages)
        if dry_run:
            return draft
        if self._store.formations.claim(draft):
            self._open_for_others(session, agent, trigger)
            return draft
        # The worker of another agent may have opened a formation for this agent.
        opened = self._claims.find_unfinished(session.id, agent.id)
        if opened is None or opened.status is not FormationStatus.RELEASED:
            return None
        return self._claims.take_over(opened)

    def _open_for_others(self, session: Session, agent: Agent, trigger: Trigger) -> None:
        """Open a formation for each other agent: the claim moved the cursor for all. Blocks."""
        if not self._backlogs.in_force.shared:
            return
        for other in session.agents:
            if other == agent.id or self._store.host.agent(other) is None:
                continue
            backlog = self._backlogs.find(
                session,
                other,
                limit=self._settings.formation.max_messages,
                reach=Reach.WAITING,
                trigger=trigger,
                note=True,
            )
            if backlog.messages and self._claims.find_unfinished(session.id, other) is None:
                messages = choose_range(backlog.messages, self._settings.formation)
                draft = self._claims.draft(session.id, other, trigger, messages)
                self._store.formations.claim(
                    replace(draft, status=FormationStatus.RELEASED, worker=None, lease_until=None)
                )

    def _leave_out_read(self, attempt: Attempt) -> None:
        """Leave out messages of a resumed formation that the platform read since. Blocks."""
        formation = attempt.formation
        read = self._store.formations.proof(formation.session_id, formation.agent_id)
        found = self._list_messages(formation)
        attempt.messages = tuple(message for message in found if message.id not in read)
        attempt.read_twice = len(found) - len(attempt.messages)
        is_left = attempt.read_twice and attempt.messages
        if is_left and not (attempt.dry_run or formation.next_step):
            self._narrow(attempt, attempt.messages)

    async def _perform(self, attempt: Attempt) -> FormationReport:
        """Take the steps of a formation that this worker claimed; record and apply each."""
        # No await before the try: a cancelled claim would stay taken.
        if attempt.dry_run:
            try:
                attempt.note(await self._take_steps(attempt))
            finally:
                with suppress(StoreReadOnly):
                    await self._keep_usage(attempt, attempt.usage)
            return attempt.report("dry_run")
        try:
            await demand_loop()
            outcome = await self._claims.keep(
                attempt.formation, run_in_turns(self._take_steps(attempt))
            )
            is_ours = await in_thread(self._settle, attempt, outcome)
        except LeaseLost:
            is_ours = False
        except asyncio.CancelledError:
            await self._give_back_cancelled(attempt)
            raise
        except (UnavailableError, ConfigError, InputError, FactKeyConflict) as error:
            if _may_be_its_fault(error):
                # With its hint, if that is a setting.
                is_size = isinstance(error, ContextOverflow | RangeTimedOut)
                return await self._report_failure(
                    attempt, error.advised_message if is_size else error.message
                )
            with suppress(StoreError):  # without the store, the lease expires
                await self._claims.give_back(
                    attempt.formation,
                    error=attempt.name_step(error.message),
                    usage=attempt.new_usage,
                )
            raise
        except Exception as error:
            await self._report_failure(attempt, f"{type(error).__name__}: {error}")
            raise
        if not is_ours:
            # Another worker owns the record, and this usage is not its cost.
            await self._keep_usage(attempt, attempt.new_usage)
        return attempt.report("applied" if is_ours else "taken")

    async def _give_back_cancelled(self, attempt: Attempt) -> None:
        """Give back a range whose work was cancelled.

        Counts as a failed attempt if it had all of the time and the models answer other requests.
        """
        is_slow = False
        if attempt.is_time_up is not None and attempt.is_time_up() and attempt.asker is not None:
            with suppress(asyncio.CancelledError):  # a second cancellation: the cause is unknown
                is_slow = await self._is_up(attempt, attempt.asker)
        if is_slow:
            await self._report_failure(
                attempt,
                "not formed within cold.session_timeout_seconds; raise it, or lower "
                "formation.max_characters",
            )
        else:
            await self._claims.give_back(attempt.formation, usage=attempt.new_usage)

    async def _take_steps(self, attempt: Attempt) -> Outcome:
        """Take the remaining steps, and settle all but the last; return its outcome.

        Raises:
            LeaseLost: another worker has the claim.
        """
        key = await in_thread(self._answer_key, attempt)
        asker = attempt.asker = Asker(require_llm(self._llm), key)
        if attempt.messages is None:
            attempt.messages = await in_thread(self._list_messages, attempt.formation)
        try:
            given = None
            if not attempt.formation.next_step:
                outcome, given = await self._form_facts(attempt, asker)
                is_single = self._settings.formation.extraction == "single"
                has_more = given.is_worth_asking and given.quotas.for_reflections
                if is_single or not has_more:
                    return outcome
                if attempt.dry_run:
                    attempt.note(outcome, next_step=REFLECTIONS)
                elif not await in_thread(self._settle, attempt, outcome, REFLECTIONS):
                    raise LeaseLost(attempt.formation.id)
            return await self._form_reflections(attempt, asker, given)
        except ProviderTimeout as error:
            if await self._is_up(attempt, asker):
                raise RangeTimedOut(
                    f"{error.message}, but answered a short question after that",
                    hint="lower formation.max_characters, or raise llm.timeout_seconds",
                ) from error
            raise

    async def _form_facts(self, attempt: Attempt, asker: Asker) -> tuple[Outcome, FormationInput]:
        """Form facts of the range, or of as much as fits into the model's context.

        The formation gives the remaining messages back.

        Raises:
            ContextOverflow: not even a small part of one message fits.
            LeaseLost: another worker has the claim.
        """
        pipeline = self._pipeline
        is_single = self._settings.formation.extraction == "single"
        while True:
            messages = attempt.messages or ()
            given = await pipeline.read(attempt.session, attempt.agent, messages, attempt.formation)
            if not given.is_worth_asking:
                return pipeline.find_nothing(given), given
            try:
                task: Task = "single" if is_single else "facts"
                return await pipeline.form(task, asker, given), given
            except ContextOverflow as error:
                parts = halve(messages, self._settings.formation)
                if len(parts) > 1:
                    if await in_thread(self._narrow, attempt, parts[0]):
                        attempt.split_off += len(parts[1])
                        continue
                    raise LeaseLost(attempt.formation.id) from error
                smaller = pipeline.smaller(given)
                if smaller is None:
                    error.add_hint("lower formation.max_characters")
                    raise
                pipeline = smaller

    def _narrow(self, attempt: Attempt, messages: Sequence[Message]) -> bool:
        """Limit a formation to these messages; False if another worker has claimed it. Blocks."""
        ids, last = tuple(message.id for message in messages), messages[-1].created_at
        narrowed: Formation | None
        if attempt.dry_run:
            narrowed = replace(attempt.formation, message_ids=ids, last_message_at=last)
        else:
            narrowed = self._claims.step(
                attempt.formation, narrow, message_ids=ids, last_message_at=last
            )
        if narrowed is None:
            return False
        attempt.formation, attempt.messages = narrowed, messages
        return True

    async def _form_reflections(
        self, attempt: Attempt, asker: Asker, given: FormationInput | None
    ) -> Outcome:
        """Form reflections of the range, shown in smaller parts if it is too long.

        Raises:
            ContextOverflow: not even a small part of one message fits next to existing memory.
        """
        pipeline = self._pipeline
        while True:
            given = given or await pipeline.read(
                attempt.session, attempt.agent, attempt.messages or (), attempt.formation
            )
            if not given.is_worth_asking:
                return pipeline.find_nothing(given)
            try:
                new_facts = await attempt.list_new_facts(self._store, given)
                return await pipeline.form(REFLECTIONS, asker, given, new_facts)
            except ContextOverflow as error:
                smaller = pipeline.smaller(given)
                if smaller is None:
                    error.add_hint("lower formation.max_characters or the scopes' word_limit")
                    raise
                pipeline, given = smaller, None

    def _list_messages(self, formation: Formation) -> tuple[Message, ...]:
        found = self._store.host.messages(formation.session_id, ids=formation.message_ids)
        return tuple(found)

    async def _is_up(self, attempt: Attempt, asker: Asker) -> bool:
        """Return whether the step's models answer a short question, so the range is the cause."""
        llm, names = require_llm(self._llm), self._settings.llm

        async def ask() -> None:
            async with asyncio.timeout(PING_SECONDS):
                if attempt.formation.next_step:
                    asker.spent.extend(await ping(llm, names.slow_model))
                    return
                asker.spent.extend(await ping(llm, names.fast_model))
                if self._embedder is not None:
                    asker.spent.extend((await self._embedder.embed(["ping"], role="passage")).usage)

        try:
            await in_loop(ask)
        except (TimeoutError, ProviderError):
            return False
        return True

    def _settle(self, attempt: Attempt, outcome: Outcome, next_step: str = "") -> bool:
        """Record a step's outcome and apply it; False if another worker has the claim. Blocks.

        Another worker may apply what was recorded first. Then the next step is left to others.
        """
        formation, worker = attempt.formation, self._claims.worker
        kept, refused, read_twice = recheck(self._store, formation, outcome.changes)
        attempt.read_twice = max(attempt.read_twice, read_twice)
        outcome = Outcome(kept, (*outcome.decisions, *refused))
        recorded = self._claims.step(
            formation,
            record,
            changes=outcome.changes,
            decisions=outcome.decisions,
            usage=attempt.new_usage,
            counts=attempt.count(outcome),
            next_step=next_step,
        )
        if recorded is None:
            return False
        attempt.note(outcome, next_step=next_step)
        attempt.formation, results = apply_recorded(
            self._store, recorded, now=self._clock(), worker=worker, is_checked=True
        )
        attempt.results = (*attempt.results, *results)
        return not next_step or attempt.formation.worker == worker

    def _answer_key(self, attempt: Attempt) -> str:
        """Return the key of recorded answers. Blocks.

        A repeated range keeps its number, so superseded formations do not count, nor those that
        a dry run would supersede.
        """
        formation, session = attempt.formation, attempt.session
        would_be = (FormationStatus.APPLIED, FormationStatus.FAILED) if attempt.reach.own else ()
        found = self._store.formations.list_formations(
            session_id=formation.session_id,
            agent_id=formation.agent_id,
            statuses=(FormationStatus.SUPERSEDED, *would_be),
        )
        number = formation.seq - sum(each.seq < formation.seq for each in found)
        return f"{session.label}/{attempt.agent.username}/{number}"

    async def _keep_usage(self, attempt: Attempt, calls: Sequence[CallUsage]) -> None:
        await keep_usage(self._store, attempt.agent.id, "formation", calls, at=self._clock())

    async def _report_failure(self, attempt: Attempt, error: str) -> FormationReport:
        error = attempt.name_step(error)
        again = await self._claims.count_failure(attempt.formation, error, attempt.new_usage)
        return attempt.report(
            "failed" if again is None else "waiting", not_before=again, error=error
        )


def _details(reports: Sequence[FormationReport]) -> dict[str, str | int]:
    """Return the log fields of a session's formation for an agent."""
    first = reports[0]
    return {
        "session": first.session_id,
        "agent": first.agent_id,
        "outcome": ",".join(dict.fromkeys(report.outcome for report in reports)),
        "messages": sum(report.messages for report in reports),
        "facts_added": sum(report.facts_added for report in reports),
        "facts_revised": sum(report.facts_revised for report in reports),
        "reflections": sum(sum(report.reflections.values()) for report in reports),
        "left": reports[-1].left,
    }


def _find_forgotten(store: Store, agent_id: str, messages: Sequence[Message]) -> set[str]:
    """Return the messages sent before their sender or session was erased."""
    until: dict[str, datetime] = {}
    for forgetting in store.erasure.forgettings():
        end = forgetting.closed_at or _OPEN
        for key in forgetting.blocks:
            until[key] = max(until.get(key, end), end)

    def is_forgotten(message: Message) -> bool:
        keys = [block("session", message.session_id)]
        if message.sender is not None:
            keys.append(block("scope", Scope.user(agent_id, message.sender).key))
        return any(key in until and message.created_at <= until[key] for key in keys)

    return {message.id for message in messages if until and is_forgotten(message)}


def _may_be_its_fault(error: EdenmemError) -> bool:
    """Return whether the messages may be the cause, so that the attempt counts.

    They are not if the provider was unavailable (5xx), if a setting or a file it names is wrong, or
    for the errors in `_NOT_ITS_FAULT`.
    """
    if not isinstance(error, ProviderError) or isinstance(error, _NOT_ITS_FAULT):
        return False
    return isinstance(error, ProviderAnswerInvalid) or not error.retryable
