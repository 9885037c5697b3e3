"""From messages to memory: claim, extract, deduplicate, reflect, record, apply.

Consolidation and the session's cached context come after, and are the service's business. A range
of messages is done when its outcome has been applied, and not before. What was recorded is applied
by whoever comes next, without asking a model again.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from edenmem.engine.formation.claims import Claim, Claims, LeaseLost, choose_range
from edenmem.engine.formation.pipeline import Outcome, Pipeline
from edenmem.engine.formation.thresholds import is_due, measure
from edenmem.engine.reports import FormationReport
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.llm_session import Asker
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.runtime.usage import keep_usage
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
    ProviderRateLimited,
    ProviderTimeout,
    ReplayMiss,
    StoreError,
    UnavailableError,
)
from edenmem.models.changes import (
    AddFact,
    AddReflection,
    Change,
    ChangeResult,
    ChangeStatus,
    RemoveFact,
    ReviseFact,
)
from edenmem.models.forgetting import block
from edenmem.models.formation import CallUsage, Decision, Formation, FormationStatus, Reach, Trigger
from edenmem.models.host import Agent, Message, Session
from edenmem.models.scope import Scope
from edenmem.settings.schema import FormationSettings
from edenmem.store.protocol.formations import Backlog
from edenmem.store.protocol.store import Store

if TYPE_CHECKING:
    from edenmem.llm.protocol import LLM


def summary_of(changes: Iterable[Change], decisions: Iterable[Decision]) -> dict[str, Any]:
    """The numbers that a formation's record keeps for lists."""
    ops = Counter(type(change) for change in changes)
    actions = Counter(decision.action for decision in decisions)
    return {
        "facts": ops[AddFact],
        "revised": ops[ReviseFact],
        "removed": ops[RemoveFact],
        "reflections": ops[AddReflection],
        "known": actions["NONE"],
        "rejected": actions["REJECTED"],
    }


def report_of_changes(
    report: FormationReport, changes: Sequence[Change], results: Iterable[ChangeResult]
) -> FormationReport:
    """``report`` with the numbers of what ``changes`` really did.

    Skipped are facts that were known already, whether deduplication or the store found it. A
    fact that was revised in vain, because its target had changed, counts as added.
    """
    by_id = {change.id: change for change in changes}
    facts: Counter[str] = Counter()
    reflections: Counter[str] = Counter()
    for result in results:
        match by_id.get(result.change_id), result.status:
            case (_, ChangeStatus.CONFLICT | ChangeStatus.MISSING) | (None, _):
                continue
            case AddFact(), ChangeStatus.DUPLICATE:
                facts["skipped"] += 1
            case (AddFact(), _) | (ReviseFact(), ChangeStatus.ADDED_INSTEAD):
                facts["added"] += 1
            case ReviseFact(), _:
                facts["revised"] += 1
            case RemoveFact(), _:
                facts["removed"] += 1
            case AddReflection() as change, _:
                reflections[change.reflection.scope] += 1
    known = sum(1 for decision in report.decisions if decision.action == "NONE")
    return msgspec.structs.replace(
        report,
        facts_added=facts["added"],
        facts_revised=facts["revised"],
        facts_removed=facts["removed"],
        facts_skipped=facts["skipped"] + known,
        reflections={str(kind): number for kind, number in reflections.items()},
    )


#: What no range of messages is to blame for: it stops the run and counts as nobody's failed try.
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


class Former:
    """Forms memories of sessions, as one worker."""

    def __init__(self, runtime: Runtime, *, worker: str | None = None) -> None:
        self._store = runtime.store
        self._settings = runtime.settings
        self._llm = runtime.llm
        self._clock = runtime.clock
        self._claims = Claims(runtime, worker=worker)
        self._pipeline = Pipeline(runtime)

    async def due(
        self, session: Session, agent: Agent, *, trigger: Trigger = Trigger.THRESHOLD
    ) -> bool:
        """Whether `form` would have something to do now."""
        if session.incognito:
            return False
        unfinished, backlog, _ = await in_thread(self._look, session, agent, Reach.WAITING)
        if unfinished is not None:
            return is_free(unfinished, self._clock(), forced=trigger is Trigger.FORCED)
        return self._is_due(backlog, agent, trigger)

    async def form(
        self,
        session: Session,
        agent: Agent,
        *,
        trigger: Trigger,
        dry_run: bool = False,
        reach: Reach = Reach.WAITING,
    ) -> list[FormationReport]:
        """Form what is due of a session for one of its agents, range by range.

        What an earlier run left unfinished comes first. There is always at least one report, and
        ``left`` of the last says how many messages are still to come. A dry run asks the models,
        claims and writes nothing, and goes no further than the first range.

        To form again what edenmem formed (``reach``), its formations are superseded first: their
        messages wait like new ones, so that a run that is cut off loses none of them.

        Raises:
            ConfigError: a model is needed and none is configured.
            UnavailableError: a provider or the store cannot be used now. The claim was given back
                and no failed try was counted.
            FactKeyConflict: an index of the database refuses facts; the same.
        """
        if session.incognito:
            return [self._report(session, agent, "incognito")]
        reports: list[FormationReport] = []
        waiting: int | None = None  # messages that were there when the first range was chosen
        while waiting is None or waiting > 0:
            formed = None if dry_run else {report.formation_id for report in reports}
            unfinished, backlog, reach = await in_thread(
                self._look, session, agent, reach, supersede_but=formed
            )
            if unfinished is not None:
                report = await self._resume(unfinished, session, agent, trigger, dry_run)
                left = await in_thread(self._count_backlog, session, agent, reach)
                report = msgspec.structs.replace(report, left=left)
            else:
                begun = waiting is not None and trigger is not Trigger.THRESHOLD
                if not backlog.total or not (begun or self._is_due(backlog, agent, trigger)):
                    by_platform = 0 if reach.platform else backlog.by_platform
                    idle = self._report(
                        session, agent, "not_due", left=backlog.total, by_platform=by_platform
                    )
                    return reports or [idle]
                report = await self._begin(backlog, session, agent, trigger, dry_run, reach)
                waiting = (backlog.total if waiting is None else waiting) - report.messages
            reports.append(report)
            if report.outcome not in ("applied", "resumed"):
                break
        return reports

    def _report(
        self,
        session: Session,
        agent: Agent,
        outcome: str,
        formation: Formation | None = None,
        **fields: Any,
    ) -> FormationReport:
        return FormationReport(
            session_id=session.id,
            agent_id=agent.id,
            outcome=outcome,
            formation_id=formation.id if formation else None,
            messages=len(formation.message_ids) if formation else 0,
            **fields,
        )

    def _demand_llm(self) -> LLM:
        if self._llm is None:
            raise ConfigError(
                "forming memories needs a language model, and none is configured",
                hint="set llm.base_url or an API key; see 'edenmem config show'",
            )
        return self._llm

    def _is_due(self, backlog: Backlog, agent: Agent, trigger: Trigger) -> bool:
        return is_backlog_due(backlog, agent, trigger, self._settings.formation)

    def _look(
        self,
        session: Session,
        agent: Agent,
        reach: Reach,
        *,
        supersede_but: Set[str | None] | None = None,
    ) -> tuple[Formation | None, Backlog, Reach]:
        """Return what was left unfinished, or else what waits, and what to reach for from now on.

        Formations that are to be formed again are superseded, but for those of this run; None: for
        none. Blocks.
        """
        unfinished = self._claims.find_unfinished(session.id, agent.id)
        if unfinished is not None:
            return unfinished, Backlog(messages=(), total=0), reach
        if reach.own and supersede_but is not None:
            self._demand_llm()
            self._supersede(session, agent, supersede_but)
            reach = Reach.INCLUDE_FORMED if reach.platform else Reach.WAITING
        return None, self._backlog(session, agent, reach), reach

    def _backlog(self, session: Session, agent: Agent, reach: Reach) -> Backlog:
        limit = self._settings.formation.max_messages
        backlog = self._store.formations.backlog(
            session.id,
            agent.id,
            limit=sys.maxsize if reach.own else limit,
            reach=reach,
        )
        if not reach.own:
            return backlog
        # Whole, since what was forgotten may be more than one range holds.
        forgotten = _find_forgotten(self._store, agent.id, backlog.messages)
        messages = tuple(each for each in backlog.messages if each.id not in forgotten)
        return msgspec.structs.replace(backlog, messages=messages[:limit], total=len(messages))

    def _count_backlog(self, session: Session, agent: Agent, reach: Reach) -> int:
        return self._store.formations.backlog(session.id, agent.id, limit=1, reach=reach).total

    def _supersede(self, session: Session, agent: Agent, but: Set[str | None]) -> None:
        """Free the messages of all finished formations but those of this run."""
        finished = self._store.formations.list_formations(
            session_id=session.id,
            agent_id=agent.id,
            statuses=(FormationStatus.APPLIED, FormationStatus.FAILED),
        )
        for formation in list(finished):
            if formation.id not in but:
                said = tuple(self._store.host.messages(session.id, ids=formation.message_ids))
                keep = _find_forgotten(self._store, agent.id, said)
                self._store.formations.supersede(formation.id, keep=tuple(keep), now=self._clock())

    # -- one range ---------------------------------------------------------------------------

    async def _resume(
        self,
        unfinished: Formation,
        session: Session,
        agent: Agent,
        trigger: Trigger,
        dry_run: bool,
    ) -> FormationReport:
        if unfinished.status is FormationStatus.RECORDED:
            return await in_thread(self._complete, unfinished, session, agent, dry_run)
        forced = trigger is Trigger.FORCED
        if not is_free(unfinished, self._clock(), forced=forced):
            released = unfinished.status is FormationStatus.RELEASED
            return self._report(
                session,
                agent,
                "waiting" if released else "taken",
                unfinished,
                not_before=unfinished.not_before if released else None,
                error=unfinished.error,
            )
        self._demand_llm()

        def take_over() -> Claim | None:
            key = self._answer_key(unfinished, session, agent, Reach.WAITING)
            taken = unfinished if dry_run else self._claims.take_over(unfinished, forced=forced)
            return None if taken is None else Claim(taken, key)

        claim = await self._claims.take(take_over)
        if claim is None:
            return self._report(session, agent, "taken", unfinished)
        if claim.formation.status is FormationStatus.RECORDED:
            return await in_thread(self._complete, claim.formation, session, agent, dry_run)
        return await self._perform(claim, session, agent, None, dry_run)

    def _complete(
        self, recorded: Formation, session: Session, agent: Agent, dry_run: bool
    ) -> FormationReport:
        """Apply what was recorded. Safe beside the worker that recorded it. Blocks."""
        whole = self._store.formations.formation(recorded.id) or recorded
        if dry_run:
            return self._report(
                session, agent, "dry_run", whole, decisions=whole.decisions, changes=whole.changes
            )
        results = self._store.formations.apply_formation(recorded.id, now=self._clock())
        changes = whole.changes.changes if whole.changes else ()
        report = self._report(
            session, agent, "resumed", whole, decisions=whole.decisions, usage=whole.usage
        )
        return report_of_changes(report, changes, results)

    async def _begin(
        self,
        backlog: Backlog,
        session: Session,
        agent: Agent,
        trigger: Trigger,
        dry_run: bool,
        reach: Reach,
    ) -> FormationReport:
        self._demand_llm()
        messages = choose_range(backlog.messages, self._settings.formation)
        left = backlog.total - len(messages)

        def open_new() -> Claim | None:
            draft = self._claims.draft(session.id, agent.id, trigger, messages)
            claim = Claim(draft, self._answer_key(draft, session, agent, reach))
            return claim if dry_run or self._store.formations.claim(draft) else None

        claim = await self._claims.take(open_new)
        if claim is None:
            return self._report(session, agent, "taken", left=left)
        report = await self._perform(claim, session, agent, messages, dry_run)
        return msgspec.structs.replace(report, left=left)

    async def _perform(
        self,
        claim: Claim,
        session: Session,
        agent: Agent,
        messages: Sequence[Message] | None,
        dry_run: bool,
    ) -> FormationReport:
        """Make the outcome of a formation that is this worker's, record it and apply it."""
        # Nothing is awaited before the try: a claim that is cancelled there would stay taken.
        formation = claim.formation
        asker = Asker(self._demand_llm(), claim.key)
        work = self._pipeline.run(formation, session, agent, messages, asker)
        if dry_run:
            outcome = await work
            report = self._report(session, agent, "dry_run", formation, usage=tuple(asker.spent))
            return msgspec.structs.replace(
                report, decisions=outcome.decisions, changes=outcome.changes
            )
        try:
            outcome = await self._claims.keep(formation, work)
            results = await in_thread(self._settle, formation, outcome, tuple(asker.spent))
        except LeaseLost:
            results = None
        except asyncio.CancelledError:
            await self._claims.give_back(formation, usage=tuple(asker.spent))
            raise
        except (UnavailableError, ConfigError, InputError, FactKeyConflict) as error:
            if _may_be_its_fault(error):
                return await self._report_failure(formation, session, agent, error.message, asker)
            with suppress(StoreError):  # if the store is gone, the lease runs out instead
                await self._claims.give_back(
                    formation, error=error.message, usage=tuple(asker.spent)
                )
            raise
        except Exception as error:
            await self._report_failure(
                formation, session, agent, f"{type(error).__name__}: {error}", asker
            )
            raise
        if results is None:
            # The record is another worker's by now, and what was paid here is not its cost.
            await keep_usage(self._store, agent.id, "formation", asker.spent, at=self._clock())
            return self._report(session, agent, "taken", formation, usage=tuple(asker.spent))
        report = self._report(
            session,
            agent,
            "applied",
            formation,
            decisions=outcome.decisions,
            usage=tuple(asker.spent),
        )
        return report_of_changes(report, outcome.changes.changes, results)

    def _settle(
        self, formation: Formation, outcome: Outcome, usage: tuple[CallUsage, ...]
    ) -> Sequence[ChangeResult] | None:
        """Record an outcome and apply it; None if the claim is another worker's by now. Blocks."""
        recorded = self._store.formations.record(
            formation.id,
            worker=self._claims.worker,
            changes=outcome.changes,
            decisions=outcome.decisions,
            usage=usage,
            counts=summary_of(outcome.changes.changes, outcome.decisions),
            now=self._clock(),
        )
        if not recorded:
            return None
        return self._store.formations.apply_formation(formation.id, now=self._clock())

    def _answer_key(
        self, formation: Formation, session: Session, agent: Agent, reach: Reach
    ) -> str:
        """Return the key of recorded answers: a range that is formed again has the number that it
        had, so the formations that are superseded, or would be but for a dry run, do not count.
        Blocks."""
        would_be = (FormationStatus.APPLIED, FormationStatus.FAILED) if reach.own else ()
        found = self._store.formations.list_formations(
            session_id=formation.session_id,
            agent_id=formation.agent_id,
            statuses=(FormationStatus.SUPERSEDED, *would_be),
        )
        number = formation.seq - sum(each.seq < formation.seq for each in found)
        return f"{session.label}/{agent.username}/{number}"

    async def _report_failure(
        self, formation: Formation, session: Session, agent: Agent, error: str, asker: Asker
    ) -> FormationReport:
        again = await self._claims.count_failure(formation, error, tuple(asker.spent))
        return self._report(
            session,
            agent,
            "failed" if again is None else "waiting",
            formation,
            not_before=again,
            error=error,
            usage=tuple(asker.spent),
        )


def _find_forgotten(store: Store, agent_id: str, messages: Sequence[Message]) -> set[str]:
    """Those of the messages that were said before their sender or session was forgotten."""
    until: dict[str, datetime | None] = {}
    for forgetting in store.erasure.forgettings():
        for key in forgetting.blocks:
            known = until.get(key, forgetting.closed_at)
            ends = (known, forgetting.closed_at)
            until[key] = None if None in ends else max(end for end in ends if end is not None)
    forgotten = set()
    for message in messages if until else ():
        keys = [block("session", message.session_id)]
        if message.sender is not None:
            keys.append(block("scope", Scope.user(agent_id, message.sender).key))
        for key in keys:
            if key in until and ((end := until[key]) is None or message.created_at <= end):
                forgotten.add(message.id)
    return forgotten


def _may_be_its_fault(error: EdenmemError) -> bool:
    """Whether these messages may be the reason, so that the try counts: not if the provider said
    that it could not answer anybody now (5xx), not if a setting or a file that it names is wrong,
    nor for what `_NOT_ITS_FAULT` names."""
    if not isinstance(error, ProviderError) or isinstance(error, _NOT_ITS_FAULT):
        return False
    return isinstance(error, ProviderAnswerInvalid) or not error.retryable


def is_backlog_due(
    backlog: Backlog, agent: Agent, trigger: Trigger, settings: FormationSettings
) -> bool:
    """Whether a backlog is to be formed.

    One that is longer than one range is due whatever is in it, so that messages that memory does
    not read can never hide others behind them. A person's order is obeyed even if there is nothing
    to read: then the messages are done with, and no model is asked.
    """
    if backlog.total > len(backlog.messages) or (trigger is Trigger.FORCED and backlog.total):
        return True
    return is_due(measure(backlog.messages, agent.id, settings), trigger, settings)


def is_free(unfinished: Formation, now: datetime, *, forced: bool = False) -> bool:
    """Whether an unfinished formation may be gone on with; ``forced`` waits for no pause after a
    failed try, but for another worker's lease all the same."""
    match unfinished.status:
        case FormationStatus.RELEASED:
            return forced or unfinished.not_before is None or unfinished.not_before <= now
        case FormationStatus.CLAIMED:
            return unfinished.lease_until is None or unfinished.lease_until <= now
        case _:
            return True
