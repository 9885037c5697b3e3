"""The cold run: form memories of all quiet sessions.

Any number of runs may work concurrently, on any number of hosts: each range of messages is claimed
in the database before a model is called. The longest quiet sessions come first; released ranges
come last, so that repeated failures do not block others. A session without work is marked as
settled, and costs nothing until it changes.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from edenmem.engine.cold.assessment import TO_DO, Assessor, Prospect, rules_of
from edenmem.engine.cold.report import (
    ColdFailure,
    ColdPlan,
    ColdReport,
    Rule,
    StopKind,
    is_failure,
)
from edenmem.engine.edits.checks import expire
from edenmem.engine.edits.reviewer import settle_overdue
from edenmem.engine.erasure.sweep import RECENT, Sweep
from edenmem.engine.formation.sharing import COLD_QUERY
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
from edenmem.models.formation import PROOF_WAIT, FormationStatus, Reach, Trigger
from edenmem.models.host import Session
from edenmem.store.protocol.formations import QuietSession


def _outage(error: EdenmemError) -> StopKind | None:
    """Return the kind of an error that may affect all sessions."""
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
    """The selection of sessions: of one agent, at most ``limit``, quiet for at most ``max_age``.

    ``all_status``: include sessions that are neither active nor imported. ``include_formed``:
    include messages formed by the platform. A dry run calls no model and writes nothing.
    """

    agent_id: str | None = None
    limit: int | None = None
    max_age: timedelta | None = None
    all_status: bool = False
    include_formed: bool = False
    dry_run: bool = False

    @property
    def reach(self) -> Reach:
        """Return the messages to include."""
        return Reach.INCLUDE_FORMED if self.include_formed else Reach.WAITING


class SessionWork(Protocol):
    """The work on a session, implemented by `edenmem.engine.service.MemoryService`."""

    async def form_memories(
        self,
        session_id: str,
        *,
        agent_id: str,
        trigger: Trigger,
        reach: Reach,
        is_time_up: Callable[[], bool] | None,
    ) -> list[FormationReport]:
        """Form the due messages, then consolidate the due scopes."""

    async def consolidate_session(
        self, session_id: str, *, agent_id: str
    ) -> list[ConsolidationReport]:
        """Consolidate the due scopes of a session."""


async def run_cold(
    runtime: Runtime,
    serve: Callable[[Runtime], SessionWork],
    options: ColdOptions | None = None,
    *,
    stop: asyncio.Event | None = None,
    progress: Callable[[ColdReport], None] = lambda report: None,
) -> ColdReport:
    """Process all due sessions. The store and the providers stay open.

    Errors of sessions and providers are reported, not raised.

    Args:
        runtime: The store, settings and providers. Without an ``llm`` only recorded formations
            are completed.
        serve: Returns the implementation of the work for a runtime.
        options: The selection of sessions.
        stop: When set, no more sessions are started, and running ones are released after
            ``cold.grace_seconds``.
        progress: Called after each session, with the report so far.
    """
    meter, began = Meter(), time.monotonic()
    llm, embedder = runtime.llm, runtime.embedder
    metered = msgspec.structs.replace(
        runtime,
        llm=MeteredLLM(llm, meter) if llm else None,
        embedder=MeteredEmbedder(embedder, meter) if embedder else None,
    )
    run = _Run(metered, serve(metered), options or ColdOptions(), progress)
    await run.work(stop or asyncio.Event())
    run.report.duration, run.report.usage = time.monotonic() - began, meter.totals
    return run.report


class _Run:
    """One run with its sessions and workers.

    A rejected API key, a wrong setting, unsearchable vectors, an unusable index or a spent budget
    ends the run immediately; an outage ends it after ``cold.outage_after`` sessions in a row.
    """

    def __init__(
        self,
        runtime: Runtime,
        work: SessionWork,
        options: ColdOptions,
        progress: Callable[[ColdReport], None],
    ) -> None:
        self.report = ColdReport(started_at=runtime.clock(), dry_run=options.dry_run)
        self._runtime = runtime
        self._store = runtime.store
        self._settings = runtime.settings.cold
        self._work = work
        self._options = options
        self._progress = progress
        self._assessor = Assessor(runtime, estimates=options.dry_run, reach=options.reach)
        self._rules = rules_of(
            runtime.settings.formation, all_status=options.all_status, reach=options.reach
        )
        self._seen: set[str] = set()
        self._before = runtime.clock() - timedelta(minutes=self._settings.quiet_minutes)
        self._sessions = runtime.store.cold.quiet_sessions(
            before=self._before, rules=None if options.dry_run else self._rules
        )
        self._exhausted = False
        self._tried_before: deque[QuietSession] = deque()
        self._turn = asyncio.Lock()
        self._taken_up = 0
        self._ended = False
        self._cut = asyncio.Event()  # running sessions have to stop too
        self._down: set[str] = set()  # sessions that met an outage in a row
        self._outage: tuple[StopKind, EdenmemError] | None = None
        self._formed = False

    # -- workers -----------------------------------------------------------------------------

    async def work(self, stop: asyncio.Event) -> None:
        """Process all sessions with the workers, until the end of the run, then sweep."""
        with self._ending_without_store():
            await in_thread(self._share)
        workers = [asyncio.create_task(self._worker()) for _ in range(self._settings.concurrency)]
        watching = asyncio.create_task(self._watch(stop))
        cutting = asyncio.create_task(self._cut_off(workers))
        try:
            await asyncio.wait(workers)
        finally:
            for task in (*workers, watching, cutting):
                task.cancel()
            await asyncio.gather(*workers, watching, cutting, return_exceptions=True)
        if self._outage is not None and not self._formed:  # even after few sessions
            kind, error = self._outage
            self.report.stop(kind, error.message, error.hint)
        for worker in workers:
            if not worker.cancelled() and (bug := worker.exception()) is not None:
                raise bug  # not an error of a session
        with self._ending_without_store():
            if not self._options.dry_run:
                await self._clean_up()
            elif not self._ended:
                await in_thread(self._count_others)

    @contextmanager
    def _ending_without_store(self) -> Iterator[None]:
        """End the run if the database cannot be used."""
        try:
            yield
        except StoreError as error:
            self._end("database", error)

    def _end(self, kind: StopKind, error: EdenmemError) -> None:
        """Start no more sessions, and cancel running ones after the grace period."""
        self.report.stop(kind, error.message, error.hint)
        self._ended = True
        self._cut.set()

    def _handle_error(self, error: Exception, session: Session, agent_id: str | None) -> None:
        """Report the error of a session; end the run if it affects all sessions."""
        match error:
            case BudgetExceeded():
                # Running sessions raise the same error; paid results are kept.
                self.report.stop("budget", error.message, error.hint)
                self._ended = True
            case ProviderAuthError():
                self._end("provider", error)
            case FactKeyConflict():
                self._end("conflict", error)
            case SearchIndexUnusable() | EmbeddingModelMismatch(everywhere=True):
                self._end("database", error)
            case ConfigError() | InputError():
                self._end("configuration", error)
            case EdenmemError():
                self._fail(session, agent_id, error.message)
                if (kind := _outage(error)) is None:
                    return
                if kind != "configuration":  # that may affect only one session's scopes
                    self._outage = kind, error
                self._down.add(session.id)  # the agents of a session count once
                if len(self._down) >= self._settings.outage_after:
                    self._end(kind, error)
            case _:
                self._fail(session, agent_id, f"{type(error).__name__}: {error}")

    def _fail(self, session: Session, agent_id: str | None, reason: str, **attempt: Any) -> None:
        """Report a failure; without an ``attempt`` it does not count as one."""
        failure = ColdFailure(
            session_id=session.id,
            session=session.label,
            agent_id=agent_id,
            reason=reason,
            **attempt,
        )
        self.report.failed = (*self.report.failed, failure)

    def _share(self) -> None:
        """Note the former in force, and move cursors forward that were put back. Blocks."""
        in_force = self._assessor.backlogs.in_force
        if not in_force.shared:
            return
        self.report.former = in_force
        if not self._options.dry_run:
            since = self._runtime.clock() - COLD_QUERY - PROOF_WAIT
            for finding in self._store.host.find_lost_progress(since=since):
                moved = self._store.formations.advance_cursor(finding.target_id)
                self.report.count("advanced", moved)

    async def _clean_up(self) -> None:
        """Remove what expired or came back, and settle items that were not reviewed in time."""
        only = self._options.agent_id
        agents = None if only is None else (only,)
        gone = await in_thread(partial(expire, self._runtime, agent_ids=agents))
        self.report.expired += gone
        sweep = Sweep(self._runtime, agent_id=only, recent=RECENT)
        self.report.forgotten, self.report.forgotten_left = await in_thread(sweep.run)
        # Without notes, those of this moment go too.
        age = timedelta(days=self._runtime.settings.told.days or -1)
        self.report.notes_removed = await in_thread(
            self._store.told.prune, self._runtime.clock() - age
        )
        try:
            counts = await settle_overdue(self._runtime, only)
        except ProviderError as error:
            self.report.stop("provider", error.message, error.hint)
        else:
            self.report.review_accepted = counts["accept"]
            self.report.review_dropped = counts["reject"]

    def _count_others(self) -> None:
        """Count the sessions not assessed, and failed formations, for a dry run. Blocks."""
        only = self._options.agent_id
        for session, messages in self._assessor.find_others(self._seen, only=only):
            if session.incognito or messages:
                self.report.leave_out("incognito" if session.incognito else "not_quiet", messages)
        failed = Counter[str]()
        for formation in self._store.formations.list_formations(
            agent_id=only, statuses=(FormationStatus.FAILED,)
        ):
            failed[formation.session_id] += len(formation.message_ids)
        for count in failed.values():
            self.report.leave_out("failed", count)

    async def _watch(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._end("interrupted", EdenmemError("the run was stopped"))

    async def _cut_off(self, workers: Sequence[asyncio.Task[None]]) -> None:
        await self._cut.wait()
        await asyncio.sleep(self._settings.grace_seconds)
        for worker in workers:
            worker.cancel()

    async def _worker(self) -> None:
        while not self._ended:
            quiet, again = await self._next()
            if quiet is None:
                return
            try:
                await self._take(quiet, again)
            except Exception as error:  # noqa: BLE001 - reported; other sessions continue
                self._handle_error(error, quiet.session, None)
            self._progress(self.report)

    async def _next(self) -> tuple[QuietSession | None, bool]:
        """Return the next session, and whether it was postponed before."""
        async with self._turn:
            if not self._exhausted:
                quiet = None
                with self._ending_without_store():
                    quiet = await in_thread(next, self._sessions, None)
                if quiet is not None or self._ended:
                    return quiet, False
                self._exhausted = True
            return (self._tried_before.popleft(), True) if self._tried_before else (None, True)

    # -- one session -------------------------------------------------------------------------

    async def _take(self, quiet: QuietSession, again: bool) -> None:
        """Assess a session, and do its work."""
        only = self._options.agent_id
        found = await in_thread(
            self._assessor.assess, quiet.session.id, only=only, before=self._before
        )
        if found is None or (only is not None and not found.agents):
            return
        session, prospects = found.session, found.prospects
        if not again:
            self.report.count("considered")
        if session.incognito:
            self.report.count("incognito", found.agents)
            return
        if found.active:
            self.report.count("active")
            return
        if self._options.dry_run:
            self._seen.add(session.id)
        # Unfinished formations are completed regardless of the session's status.
        is_eligible = session.status == "active" or session.imported
        wrong_status = not (self._options.all_status or is_eligible)
        due = [
            each
            for each in prospects
            if each.work in TO_DO and not (wrong_status and each.work == "form")
        ]
        if not again and any(each.work == "resume" for each in due):
            self._tried_before.append(quiet)
            return
        self._count_left_out(prospects, wrong_status)
        if due:
            if not self._is_left_out(found.spoken, due):
                await self._do(session, due)
        elif (
            # The run covers all agents, and may write.
            (self._options.agent_id is None and not self._options.dry_run)
            and not any(each.left_to_platform for each in prospects)
            and all(each.work in ("nothing", "form") for each in prospects)
            and await self._finish(session, [each.agent.id for each in prospects if each.formed])
        ):
            await in_thread(self._store.cold.settle, session.id, seen=quiet.seen, rules=self._rules)

    def _count_left_out(self, prospects: Sequence[Prospect], wrong_status: bool) -> None:
        left_out = Counter[Rule]()  # a session counts once, also without messages
        for each in prospects:
            match each.work:
                case "waiting" | "taken":
                    self.report.count(each.work)
                    left_out[each.work] += each.messages
                case "nothing":
                    self.report.count("not_due")
                    if each.messages:
                        left_out["below_threshold"] += each.messages
                case "form" if wrong_status:
                    left_out["status"] += each.messages
            if each.by_platform:
                left_out["formed_by_platform"] += each.by_platform
            if each.left_to_platform:
                self.report.count("left_to_platform", each.left_to_platform)
                left_out["left_to_platform"] += each.left_to_platform
        for rule, messages in left_out.items():
            self.report.leave_out(rule, messages)

    def _is_left_out(self, spoken: datetime | None, due: Sequence[Prospect]) -> bool:
        options = self._options
        rule: Rule | None = None
        if options.max_age is not None and spoken is not None:
            rule = "max_age" if spoken < self._runtime.clock() - options.max_age else None
        if rule is None and options.limit is not None and self._taken_up >= options.limit:
            rule = "limit"
        if rule is None:
            self._taken_up += 1
            return False
        self.report.leave_out(rule, sum(each.messages for each in due))
        return True

    async def _do(self, session: Session, due: Sequence[Prospect]) -> None:
        if self._options.dry_run:
            planned = (
                ColdPlan(
                    session_id=session.id,
                    session=session.label,
                    agent_id=each.agent.id,
                    work=each.work,
                    messages=each.messages,
                    tokens=each.tokens,
                )
                for each in due
            )
            self.report.planned = (*self.report.planned, *planned)
            return
        if self.report.former is not None:
            self.report.count("unread", sum(each.unread for each in due))
        await self._in_time(
            session,
            lambda is_time_up: [self._form(session, each.agent.id, is_time_up) for each in due],
        )

    async def _in_time(
        self,
        session: Session,
        begin: Callable[[Callable[[], bool]], Sequence[Coroutine[Any, Any, T]]],
    ) -> list[T]:
        """Return the results of the work on a session's agents; nothing after a timeout.

        ``begin`` starts the work, and gets a function that returns whether the time is up.
        """
        try:
            async with asyncio.timeout(self._settings.session_timeout_seconds) as limit:
                work = begin(limit.expired)
                # Concurrently, so that a slow agent takes no time from others. They report their
                # own errors: only a cancellation can be raised here.
                found = await asyncio.gather(*work, return_exceptions=True)
                return [each for each in found if not isinstance(each, BaseException)]
        except TimeoutError:
            self.report.timed_out = (*self.report.timed_out, session.label)
        except asyncio.CancelledError:
            self.report.given_back = (*self.report.given_back, session.label)
            raise
        return []

    async def _finish(self, session: Session, agents: Sequence[str]) -> bool:
        """Consolidate scopes left due by a killed run; return whether none is left.

        Each session is assessed once more after its formation, before it is settled.
        """
        if not agents:
            return True
        done = await self._in_time(
            session, lambda _: [self._consolidate(session, agent_id) for agent_id in agents]
        )
        return done == [True] * len(agents)

    async def _consolidate(self, session: Session, agent_id: str) -> bool:
        try:
            texts = await self._work.consolidate_session(session.id, agent_id=agent_id)
        except Exception as error:  # noqa: BLE001 - reported; other sessions continue
            self._handle_error(error, session, agent_id)
            return False
        self.report.count_texts(texts)
        self._report_failed(session, agent_id, texts)
        # The next run retries failures without an answer. A rejected answer has a cost, and is
        # retried only with the next formation.
        return not any(
            text.outcome in ("not_tried", "waiting")
            or (text.outcome == "failed" and not text.usage)
            for text in texts
        )

    async def _form(self, session: Session, agent_id: str, is_time_up: Callable[[], bool]) -> None:
        try:
            reports = await self._work.form_memories(
                session.id,
                agent_id=agent_id,
                trigger=Trigger.COLD,
                reach=self._options.reach,
                is_time_up=is_time_up,
            )
            for report in filter(is_failure, reports):
                formation = await in_thread(
                    self._store.formations.formation, report.formation_id or ""
                )
                self._fail(
                    session,
                    agent_id,
                    report.error or "unknown error",
                    formation_id=report.formation_id,
                    attempts=formation.attempts if formation else 0,
                    final=report.outcome == "failed",
                    not_before=report.not_before,
                )
        except Exception as error:  # noqa: BLE001 - reported; other sessions continue
            self._handle_error(error, session, agent_id)
            return
        self.report.add_formations(reports)
        if any(report.outcome == "applied" for report in reports):  # there is no outage
            self._down.clear()
            self._formed = True
        for report in reports:
            self._report_failed(session, agent_id, report.consolidations)

    def _report_failed(
        self, session: Session, agent_id: str, texts: Sequence[ConsolidationReport]
    ) -> None:
        for text in texts:
            if text.outcome == "failed":
                self._fail(session, agent_id, f"consolidation: {text.error}")
