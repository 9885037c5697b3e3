"""One worker's attempt at a formation, with the results of its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from edenmem.engine.formation.formation_input import FormationInput
from edenmem.engine.formation.pipeline import Outcome
from edenmem.engine.reports import FormationReport
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.llm_session import Asker
from edenmem.models.changes import (
    AddFact,
    AddReflection,
    Change,
    ChangeResult,
    ChangeSet,
    ChangeStatus,
    HoldItem,
    RemoveFact,
    ReviseFact,
)
from edenmem.models.formation import HELD, CallUsage, Decision, Formation, Reach, Trigger
from edenmem.models.host import Agent, Message, Session
from edenmem.models.memory import content_hash
from edenmem.store.protocol.store import Store


class Attempt(msgspec.Struct, kw_only=True):
    """A formation in its current state, with what this worker did; grows with each step.

    ``messages`` are None until read, ``asker`` until a model may be asked. ``read_twice`` counts
    the messages that the platform read too, ``left_to_platform`` those that it may read.
    ``split_off`` counts messages that were given back because all together exceeded a model's
    context. ``decisions``, ``changes`` and ``results`` cover this worker's steps, and a recorded
    step that it applied. ``is_time_up``: see `Former.form`; None if this range did not have all of
    the time.
    """

    session: Session
    agent: Agent
    trigger: Trigger
    dry_run: bool
    reach: Reach
    formation: Formation
    messages: Sequence[Message] | None = None
    asker: Asker | None = None
    split_off: int = 0
    read_twice: int = 0
    left_to_platform: int = 0
    decisions: tuple[Decision, ...] = ()
    changes: ChangeSet | None = None
    results: tuple[ChangeResult, ...] = ()
    recorded_calls: int = 0
    is_time_up: Callable[[], bool] | None = None

    @property
    def usage(self) -> tuple[CallUsage, ...]:
        """Return the calls that this worker paid for."""
        return tuple(self.asker.spent) if self.asker else ()

    @property
    def new_usage(self) -> tuple[CallUsage, ...]:
        """Return the calls that the formation's record lacks."""
        return self.usage[self.recorded_calls :]

    def count(self, outcome: Outcome) -> dict[str, Any]:
        """Return the counts that the formation's record keeps for lists, including ``outcome``."""
        ops = Counter(type(change) for change in outcome.changes.changes)
        actions = Counter(decision.action for decision in outcome.decisions)
        counts = {
            "facts": ops[AddFact],
            "revised": ops[ReviseFact],
            "removed": ops[RemoveFact],
            "reflections": ops[AddReflection],
            "known": actions["NONE"],
            "rejected": actions["REJECTED"],
            "held": actions[HELD],
        }
        earlier = self.formation.counts
        return {name: number + earlier.get(name, 0) for name, number in counts.items()}

    def note(self, outcome: Outcome, *, next_step: str = "") -> None:
        """Note that the outcome of a step was recorded, or would be without a dry run."""
        self.recorded_calls = len(self.usage)
        self.formation = msgspec.structs.replace(
            self.formation,
            attempts=0,
            counts=self.count(outcome),
            decisions=(*self.formation.decisions, *outcome.decisions),
            next_step=next_step,
        )
        self.add(outcome.changes, outcome.decisions)

    def add(self, changes: ChangeSet | None, decisions: Iterable[Decision]) -> None:
        """Add the decisions of a step to the report."""
        self.decisions = (*self.decisions, *decisions)
        if self.changes is not None and changes is not None:
            both = (*self.changes.changes, *changes.changes)
            changes = msgspec.structs.replace(changes, changes=both)
        self.changes = changes or self.changes

    def name_step(self, error: str) -> str:
        """Return an error with the failed step, if an earlier step is in memory."""
        step = self.formation.next_step
        return f"{step}: {error}" if step else error

    async def list_new_facts(self, store: Store, given: FormationInput) -> list[str]:
        """Return the texts of this formation's new facts, without facts deleted since."""
        found = self.formation.decisions
        refused = {each.content for each in found if each.action in ("REJECTED", HELD)}
        texts = [each.content for each in found if each.content not in refused]
        added = {content_hash(each.content) for each in found if each.action == "ADD"}
        if self.changes is not None or not added:  # this worker applied them just now
            return texts

        def find() -> set[str]:
            scopes = (scope for quota in given.quotas.items for scope in quota.changeable)
            return set().union(
                *(store.memory.facts_by_hashes(scope, tuple(added)) for scope in scopes)
            )

        gone = added - await in_thread(find)
        return [text for text in texts if content_hash(text) not in gone]

    def report(self, outcome: str, **fields: Any) -> FormationReport:
        """Return a report on the range so far."""
        report = FormationReport(
            session_id=self.formation.session_id,
            agent_id=self.formation.agent_id,
            outcome=outcome,
            formation_id=self.formation.id,
            messages=len(self.formation.message_ids),
            split_off=self.split_off,
            read_twice=self.read_twice,
            left_to_platform=self.left_to_platform,
            decisions=self.decisions,
            usage=self.usage,
            changes=self.changes if outcome == "dry_run" else None,
            **fields,
        )
        changes = self.changes.changes if self.changes is not None else ()
        return report_of_changes(report, changes, self.results)


def report_of_changes(
    report: FormationReport, changes: Sequence[Change], results: Iterable[ChangeResult]
) -> FormationReport:
    """Return ``report`` with the counts of what ``changes`` did, or would do in a dry run.

    Known facts count as skipped, whether found by deduplication or by the store. A revised fact
    whose target had changed counts as added.
    """
    by_id = {change.id: change for change in changes}
    if report.outcome == "dry_run":
        results = [
            ChangeResult(change_id=each, status=ChangeStatus.APPLIED, target_id="")
            for each in by_id
        ]
    counts, reflections = Counter[str](), Counter[str]()
    for result in results:
        match by_id.get(result.change_id), result.status:
            case (_, ChangeStatus.CONFLICT | ChangeStatus.MISSING) | (None, _):
                continue
            case AddFact(), ChangeStatus.DUPLICATE:
                counts["facts_skipped"] += 1
            case (AddFact(), _) | (ReviseFact(), ChangeStatus.ADDED_INSTEAD):
                counts["facts_added"] += 1
            case ReviseFact(), _:
                counts["facts_revised"] += 1
            case RemoveFact(), _:
                counts["facts_removed"] += 1
            case HoldItem(), _:
                counts["held"] += 1
            case AddReflection() as change, _:
                reflections[str(change.reflection.scope)] += 1
    counts["facts_skipped"] += sum(each.action == "NONE" for each in report.decisions)
    rejected = Counter(each.rule for each in report.decisions if each.action == "REJECTED")
    return msgspec.structs.replace(
        report, **counts, reflections=dict(reflections), rejected=dict(sorted(rejected.items()))
    )
