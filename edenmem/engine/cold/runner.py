"""The cold run: memories of sessions that went quiet, of all of them, sooner or later.

Any number of runs may go on at once, on any number of hosts: each range of messages is claimed in
the database before a model is asked. Sessions come longest quiet first. Those whose last try was
given back come after all others, so that what fails again and again holds nobody up. A session
in which there is nothing to do is noted as settled, and costs nothing until something happens.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

import msgspec

from edenmem.engine.cold.assessment import TO_DO, Looker, Prospect, is_taken, rules_of
from edenmem.engine.cold.report import (
    ColdFailure,
    ColdPlan,
    ColdReport,
    Rule,
    StopKind,
    Tally,
    failures_of,
)
from edenmem.engine.reports import ConsolidationReport, FormationReport
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.runtime.usage import Meter, MeteredEmbedder, MeteredLLM
from edenmem.errors import (
    BudgetExceeded,
    ConfigError,
    EdenmemError,
    EmbeddingModelMismatch,
    FactKeyConflict,
    InputError,
    ProviderAnswerInvalid,
    ProviderAuthError,
    ProviderError,
    ProviderMisconfigured,
    SearchIndexUnusable,
    StoreError,
)
from edenmem.models.formation import FormationStatus, Reach, Trigger
from edenmem.models.host import Session
from edenmem.store.protocol.formations import QuietSession


class Ending:
    """Decides when a run ends, and tells ``tally`` why.

    A refused key, a wrong setting, vectors that the platform could not search, an index that facts
    need or a spent budget ends it at once; an outage after ``outage_after`` sessions in a row that
    met it. ``cut`` is set if those in work are not to be waited for.
    """

    def __init__(self, tally: Tally, *, outage_after: int) -> None:
        self.ended = False
        self.cut = asyncio.Event()
        self._tally = tally
        self._outage_after = outage_after
        self._in_a_row: set[str] = set()
        self._outage: tuple[StopKind, EdenmemError] | None = None
        self._formed = False

    def trouble(self, error: Exception, session: Session, agent_id: str | None) -> None:
        """Tell of an error that a session met; end the run if the others would meet it too."""
        match error:
            case BudgetExceeded():
                # Those in work meet it by themselves; what was paid for before is kept.
                self._tally.stop("budget", error.message, error.hint)
                self.ended = True
            case ProviderAuthError():
                self.end("provider", error.message, error.hint)
            case FactKeyConflict():
                self.end("conflict", error.message, error.hint)
            case SearchIndexUnusable() | EmbeddingModelMismatch(everywhere=True):
                self.end("database", error.message, error.hint)
            case ConfigError() | InputError():
                self.end("configuration", error.message, error.hint)
            case EdenmemError():
                self.fail(session, agent_id, error.message)
                if kind := _outage(error):
                    self._count(kind, error, session)
            case _:
                self.fail(session, agent_id, f"{type(error).__name__}: {error}")

    def fail(self, session: Session, agent_id: str | None, reason: str) -> None:
        """Tell of a failure that counted as no try."""
        self._tally.failed.append(
            ColdFailure(
                session_id=session.id, session=session.label, agent_id=agent_id, reason=reason
            )
        )

    def all_is_well(self) -> None:
        """A session was formed, so there is no outage."""
        self._in_a_row.clear()
        self._formed = True

    def conclude(self) -> None:
        """Take what sessions met for an outage, however few they were, if none was formed."""
        if self._outage is not None and not self._formed:
            kind, error = self._outage
            self._tally.stop(kind, error.message, error.hint)

    def end(self, kind: StopKind, reason: str, hint: str | None = None) -> None:
        """Begin no more sessions, and wait for those in work no longer than the grace."""
        self._tally.stop(kind, reason, hint)
        self.ended = True
        self.cut.set()

    def _count(self, kind: StopKind, error: EdenmemError, session: Session) -> None:
        if kind != "configuration":  # which may be that of one session's scopes
            self._outage = kind, error
        self._in_a_row.add(session.id)  # agents of one session are one
        if len(self._in_a_row) >= self._outage_after:
            self.end(kind, error.message, error.hint)


def _outage(error: EdenmemError) -> StopKind | None:
    """What may be down, or wrong, for every session."""
    match error:
        case StoreError():
            return "database"
        case EmbeddingModelMismatch() | ProviderMisconfigured():
            return "configuration"
        case ProviderError(retryable=True) if not isinstance(error, ProviderAnswerInvalid):
            return "provider"
    return None


T = TypeVar("T")


class ColdOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to take up: sessions of one agent, at most ``limit``, quiet for at most ``max_age``.

    ``all_status``: not only sessions that are active, or that edenmem stored itself.
    ``include_formed``: also messages that the platform formed. What each rule leaves out is
    counted. A dry run asks no model and writes nothing.
    """

    agent_id: str | None = None
    limit: int | None = None
    max_age: timedelta | None = None
    all_status: bool = False
    include_formed: bool = False
    dry_run: bool = False

    @property
    def reach(self) -> Reach:
        """Which messages are taken."""
        return Reach.INCLUDE_FORMED if self.include_formed else Reach.WAITING


class SessionWork(Protocol):
    """What is done with a session; `edenmem.engine.service.MemoryService` does it."""

    async def form_memories(
        self,
        session_id: str,
        *,
        agent_id: str,
        trigger: Trigger,
        reach: Reach,
        is_time_up: Callable[[], bool] | None,
    ) -> list[FormationReport]:
        """Form what is due, and consolidate what is due then."""

    async def consolidate_session(
        self, session_id: str, *, agent_id: str
    ) -> list[ConsolidationReport]:
        """Consolidate what is due in the scopes of a session."""


class ColdRunner:
    """Runs of one worker. The store and the providers stay open.

    Args:
        runtime: Its settings say how many at once, for how long, and when to give up. Without an
            ``llm`` what was recorded earlier is completed, and nothing else can be done.
        serve: Makes what works on sessions with a runtime.
        progress: Called whenever a session is done with.
    """

    def __init__(
        self,
        runtime: Runtime,
        serve: Callable[[Runtime], SessionWork],
        *,
        progress: Callable[[Tally], None] = lambda tally: None,
    ) -> None:
        self._runtime = runtime
        self._serve = serve
        self._progress = progress

    async def run(
        self, options: ColdOptions | None = None, *, stop: asyncio.Event | None = None
    ) -> ColdReport:
        """Work through all sessions that are due.

        Never raises for what goes wrong with a session or a provider: that is in the report.

        Args:
            options: What to take up.
            stop: When it is set no more sessions are begun; those in work have
                ``cold.grace_seconds``, and are then given back.
        """
        meter = Meter()
        llm, embedder = self._runtime.llm, self._runtime.embedder
        runtime = msgspec.structs.replace(
            self._runtime,
            llm=MeteredLLM(llm, meter) if llm else None,
            embedder=MeteredEmbedder(embedder, meter) if embedder else None,
        )
        started_at, began = runtime.clock(), time.monotonic()
        options = options or ColdOptions()
        run = _Run(runtime, self._serve(runtime), options, self._progress)
        await run.work(stop or asyncio.Event())
        return run.tally.report(
            started_at=started_at,
            duration=time.monotonic() - began,
            dry_run=options.dry_run,
            usage=meter.totals,
        )


class _Run:
    """One run: its sessions, its workers, and what ends it."""

    def __init__(
        self,
        runtime: Runtime,
        work: SessionWork,
        options: ColdOptions,
        progress: Callable[[Tally], None],
    ) -> None:
        self.tally = Tally()
        self._store = runtime.store
        self._settings = runtime.settings.cold
        self._work = work
        self._clock = runtime.clock
        self._options = options
        self._progress = progress
        self._looker = Looker(runtime, estimates=options.dry_run, reach=options.reach)
        self._rules = rules_of(
            runtime.settings.formation, all_status=options.all_status, reach=options.reach
        )
        self._seen: set[str] = set()
        self._before = runtime.clock() - timedelta(minutes=runtime.settings.cold.quiet_minutes)
        self._sessions = runtime.store.cold.quiet_sessions(
            before=self._before, rules=None if options.dry_run else self._rules
        )
        self._exhausted = False
        self._tried_before: deque[QuietSession] = deque()
        self._turn = asyncio.Lock()
        self._ending = Ending(self.tally, outage_after=runtime.settings.cold.outage_after)
        self._taken_up = 0

    # -- workers -----------------------------------------------------------------------------

    async def work(self, stop: asyncio.Event) -> None:
        """Have the workers go through all sessions, or until something ends the run."""
        workers = [asyncio.create_task(self._worker()) for _ in range(self._settings.concurrency)]
        watching = asyncio.create_task(self._watch(stop))
        cutting = asyncio.create_task(self._cut_off(workers))
        try:
            await asyncio.wait(workers)
        finally:
            for task in (*workers, watching, cutting):
                task.cancel()
            await asyncio.gather(*workers, watching, cutting, return_exceptions=True)
        self._ending.conclude()
        for worker in workers:
            if not worker.cancelled() and (error := worker.exception()) is not None:
                raise error  # a mistake of ours, not a session's
        if self._options.dry_run and not self._ending.ended:
            try:
                await in_thread(self._count_others)
            except StoreError as error:
                self._ending.end("database", error.message, error.hint)

    def _count_others(self) -> None:
        """Count, for a dry run, what was not even looked at, and what failed. Blocks."""
        only = self._options.agent_id
        for session, messages in self._looker.not_looked_at(self._seen, only=only):
            if session.incognito or messages:
                self.tally.leave_out("incognito" if session.incognito else "not_quiet", messages)
        failed: dict[str, int] = {}
        for formation in self._store.formations.list_formations(
            agent_id=only, statuses=(FormationStatus.FAILED,)
        ):
            failed.setdefault(formation.session_id, 0)
            failed[formation.session_id] += len(formation.message_ids)
        for count in failed.values():
            self.tally.leave_out("failed", count)

    async def _watch(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._ending.end("interrupted", "the run was told to stop")

    async def _cut_off(self, workers: Sequence[asyncio.Task[None]]) -> None:
        await self._ending.cut.wait()
        await asyncio.sleep(self._settings.grace_seconds)
        for worker in workers:
            worker.cancel()

    async def _worker(self) -> None:
        while not self._ending.ended:
            quiet, again = await self._next()
            if quiet is None:
                return
            try:
                await self._take(quiet, again)
            except Exception as error:  # noqa: BLE001 - one session's trouble is told, and no other's
                self._ending.trouble(error, quiet.session, None)
            self._progress(self.tally)

    async def _next(self) -> tuple[QuietSession | None, bool]:
        """The next session, and whether this is the second time that it comes."""
        async with self._turn:
            if not self._exhausted:
                try:
                    quiet = await in_thread(next, self._sessions, None)
                except StoreError as error:
                    self._ending.end("database", error.message, error.hint)
                    return None, False
                if quiet is not None:
                    return quiet, False
                self._exhausted = True
            return (self._tried_before.popleft(), True) if self._tried_before else (None, True)

    # -- one session -------------------------------------------------------------------------

    async def _take(self, quiet: QuietSession, again: bool) -> None:
        """Look at a session as it is by now, and do what there is to do."""
        only = self._options.agent_id
        sight = await in_thread(self._looker.see, quiet.session.id, only=only, before=self._before)
        if sight is None or (only is not None and not sight.agents):
            return
        session, looks = sight.session, sight.prospects
        if not again:
            self.tally.count("considered")
        if session.incognito:
            self.tally.count("incognito", sight.agents)
            return
        if sight.active:
            self.tally.count("active")
            return
        if self._options.dry_run:
            self._seen.add(session.id)
        # What was begun is brought to its end, whatever the session's status.
        wrong_status = not (self._options.all_status or is_taken(session))
        due = [
            look
            for look in looks
            if look.work in TO_DO and not (wrong_status and look.work == "form")
        ]
        if not again and any(look.work == "resume" for look in due):
            self._tried_before.append(quiet)
            return
        self._count_left_out(looks, wrong_status)
        if due:
            if not self._is_left_out(sight.spoken, due):
                await self._do(session, due)
        elif (
            self._may_settle
            and all(look.work in ("nothing", "form") for look in looks)
            and await self._finish(session, [look.agent.id for look in looks if look.formed])
        ):
            await in_thread(self._store.cold.settle, session.id, seen=quiet.seen, rules=self._rules)

    @property
    def _may_settle(self) -> bool:
        """Whether all agents of a session were looked at, and a note may be written."""
        return self._options.agent_id is None and not self._options.dry_run

    def _count_left_out(self, looks: Sequence[Prospect], wrong_status: bool) -> None:
        left_out: dict[Rule, int] = {}

        def leave_out(rule: Rule, messages: int) -> None:
            left_out[rule] = left_out.get(rule, 0) + messages

        for look in looks:
            match look.work:
                case "waiting" | "taken":
                    self.tally.count(look.work)
                    leave_out(look.work, look.messages)
                case "nothing":
                    self.tally.count("not_due")
                    if look.messages:
                        leave_out("below_threshold", look.messages)
                case "form" if wrong_status:
                    leave_out("status", look.messages)
            if look.by_platform:
                leave_out("formed_by_platform", look.by_platform)
        self.tally.count("left_out_by_status", "status" in left_out)
        for rule, messages in left_out.items():
            self.tally.leave_out(rule, messages)

    def _is_left_out(self, spoken: datetime | None, due: Sequence[Prospect]) -> bool:
        options = self._options
        messages = sum(look.messages for look in due)
        oldest = self._clock() - options.max_age if options.max_age is not None else None
        if oldest is not None and spoken is not None and spoken < oldest:
            self.tally.count("left_out_by_age")
            self.tally.leave_out("max_age", messages)
            return True
        if options.limit is not None and self._taken_up >= options.limit:
            self.tally.count("left_out_by_limit")
            self.tally.leave_out("limit", messages)
            return True
        self._taken_up += 1
        return False

    async def _do(self, session: Session, due: Sequence[Prospect]) -> None:
        if self._options.dry_run:
            self.tally.planned.extend(
                ColdPlan(
                    session_id=session.id,
                    session=session.label,
                    agent_id=look.agent.id,
                    work=look.work,
                    messages=look.messages,
                    tokens=look.tokens,
                )
                for look in due
            )
            return
        await self._in_time(
            session, lambda is_time_up: [self._form(session, look, is_time_up) for look in due]
        )

    async def _in_time(
        self,
        session: Session,
        begin: Callable[[Callable[[], bool]], Sequence[Coroutine[Any, Any, T]]],
    ) -> list[T]:
        """What the work on a session's agents comes to; nothing if time ran out. ``begin`` gets
        what says whether it did."""
        try:
            async with asyncio.timeout(self._settings.session_timeout_seconds) as limit:
                work = begin(limit.expired)
                # All agents at once: one that hangs takes no time from another. Each brings its
                # own trouble home, so that here nothing but a cancellation can be raised.
                found = await asyncio.gather(*work, return_exceptions=True)
                return [each for each in found if not isinstance(each, BaseException)]
        except TimeoutError:
            self.tally.timed_out.append(session.label)
        except asyncio.CancelledError:
            self.tally.given_back.append(session.label)
            raise
        return []

    async def _finish(self, session: Session, agents: Sequence[str]) -> bool:
        """Consolidate what a run that died after it had formed a session left due, and whether
        nothing is left of that. The session is looked at once more after it was formed, and then
        settled, so it is never far to look for."""
        if not agents:
            return True
        done = await self._in_time(
            session, lambda _: [self._consolidate(session, agent_id) for agent_id in agents]
        )
        return done == [True] * len(agents)

    async def _consolidate(self, session: Session, agent_id: str) -> bool:
        try:
            texts = await self._work.consolidate_session(session.id, agent_id=agent_id)
        except Exception as error:  # noqa: BLE001 - told in the report; nobody else's session ends
            self._ending.trouble(error, session, agent_id)
            return False
        self.tally.count("consolidations", sum(text.outcome == "written" for text in texts))
        self._report_failed(session, agent_id, texts)
        # What failed without an answer is tried again by the next run. What a model was paid for
        # and did wrong is not: it would be every ten minutes. The next formation tries it again.
        return all(
            text.outcome != "not_tried" and (text.outcome != "failed" or text.usage)
            for text in texts
        )

    async def _form(self, session: Session, look: Prospect, is_time_up: Callable[[], bool]) -> None:
        agent_id = look.agent.id
        try:
            reports = await self._work.form_memories(
                session.id,
                agent_id=agent_id,
                trigger=Trigger.COLD,
                reach=self._options.reach,
                is_time_up=is_time_up,
            )
            for report in failures_of(reports):
                self.tally.failed.append(await self._failure(report, session))
        except Exception as error:  # noqa: BLE001 - told in the report; nobody else's session ends
            self._ending.trouble(error, session, agent_id)
            return
        self.tally.add_formations(reports)
        if any(report.outcome == "applied" for report in reports):
            self._ending.all_is_well()
        for report in reports:
            self._report_failed(session, agent_id, report.consolidations)

    def _report_failed(
        self, session: Session, agent_id: str, texts: Sequence[ConsolidationReport]
    ) -> None:
        for text in texts:
            if text.outcome == "failed":
                self._ending.fail(session, agent_id, f"consolidation: {text.error}")

    async def _failure(self, report: FormationReport, session: Session) -> ColdFailure:
        formation = await in_thread(self._store.formations.formation, report.formation_id or "")
        return ColdFailure(
            session_id=session.id,
            session=session.label,
            agent_id=report.agent_id,
            reason=report.error or "no reason is known",
            formation_id=report.formation_id,
            attempts=formation.attempts if formation else 0,
            final=report.outcome == "failed",
            not_before=report.not_before,
        )
