"""Plan a migration without writing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import msgspec

from edenmem.engine.migration.applying import MAX_PROBLEMS, Applier
from edenmem.engine.migration.items import scope_of, text_of
from edenmem.engine.migration.ledger import refuse_other_options, resumable
from edenmem.engine.migration.people import describe_agent, find_new_agents
from edenmem.engine.migration.reports import (
    MigrationPlan,
    PlanConflict,
    PlanRow,
    RunOptions,
    Sample,
)
from edenmem.engine.migration.source import StagedPlan
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.references import Labels, load_labels
from edenmem.models.host import Agent
from edenmem.models.v1 import Outcome, V1Item
from edenmem.store.protocol.store import Store

_Labeled = TypeVar("_Labeled", Sample, PlanConflict)

#: Samples per kind of item.
_SAMPLES = 2
#: The count of a plan's row for each kind of item.
_COUNTED = {
    "text": "texts",
    "fact": "facts",
    "reflection": "reflections",
    "episode": "reflections",
    "policy": "policies",
    "toggles": "switches",
}
_MOVED = (Outcome.MIGRATED, Outcome.MERGED)


class _Sums:
    """Running totals over the items to write."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.sampled: Counter[str] = Counter()
        self.left_behind: Counter[str] = Counter()


def make_plan(
    runtime: Runtime,
    plan: StagedPlan,
    options: RunOptions,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> MigrationPlan:
    """Compare all targets with the store, and plan their migration. Blocks.

    Raises:
        ConflictError: an earlier run had other options.
        StoreError: the database cannot be used.
    """
    info = runtime.store.database.info()
    store = runtime.store if info.initialized else None
    sums, treatments, conflicts = _Sums(), Counter[str](), list[PlanConflict]()
    notices, earlier = ["the store does not exist yet: create it with 'edenmem init'"], None
    if store is None:
        plan.stage.set_found(())
        for _, item in (each for page in plan.stage.unlike(options.batch_size) for each in page):
            _take_sample(sums, plan, item)
    else:
        refuse_other_options(store, options)
        earlier = resumable(store, plan.about.location, options)
        new, notices = find_new_agents(store, plan)
        applier = _preview(runtime, plan, options, sums, list(map(describe_agent, new)), progress)
        treatments, conflicts = applier.treatments, applier.conflicts
    rows = _count_rows(sums, plan)
    about = plan.about
    labels = _label_scopes(store, plan, [*sums.samples, *conflicts])
    return MigrationPlan(
        source=about.location,
        target=info.location,
        items=about.item_total,
        documents=about.totals,
        results=about.results,
        not_asked={name: count for name, count in about.not_asked.items() if count},
        rows=rows,
        left_behind=dict(sums.left_behind.most_common()),
        problems_by_kind=plan.stage.count_problems(),
        problems=tuple(islice(plan.problems(), MAX_PROBLEMS)),
        unknown_fields=about.unknown_fields,
        samples=_with_labels(sums.samples, labels),
        outcomes=dict(sorted(plan.stage.outcomes().items())),
        conflicts_by_treatment=dict(treatments.most_common()),
        conflicts=_with_labels(conflicts, labels),
        notices=tuple(notices),
        resumes=earlier.id if earlier else None,
        incomplete=about.incomplete,
    )


def _preview(
    runtime: Runtime,
    plan: StagedPlan,
    options: RunOptions,
    sums: _Sums,
    agents: Sequence[Agent],
    progress: Callable[[int, int], None],
) -> Applier:
    """Decide on all targets, as a run would."""
    stage = plan.stage
    applier = Applier(
        runtime, plan, options, lambda done: progress(done, 0), dry_run=True, agents=agents
    )
    done = stage.count_settled()
    for batch in applier.run():
        for each in batch:
            decision, item = each.decision, each.item
            if decision.detail and decision.outcome is Outcome.LEFT_BEHIND:
                sums.left_behind[decision.detail] += 1
                sums.left_behind[item.reason] -= 1  # the reason of an item that is moved
            if decision.outcome in _MOVED:
                _take_sample(sums, plan, item)
        done += len(batch)
        progress(min(done, plan.about.item_total), plan.about.item_total)
    applier.remove_moved()
    return applier


def _take_sample(sums: _Sums, plan: StagedPlan, item: V1Item) -> None:
    """Take a sample of an item that is written, if more of its kind are wanted."""
    content, scope = text_of(item.memory), item.scope
    if not content or scope is None or sums.sampled[item.kind] >= _SAMPLES:
        return
    source = item.sources[0]
    sums.sampled[item.kind] += 1
    sums.samples.append(
        Sample(
            kind=item.kind,
            source=f"{source.collection}/{source.id}",
            scope=scope.key,
            before=plan.source_text(source),
            after=content,
        )
    )


def _count_rows(sums: _Sums, plan: StagedPlan) -> tuple[PlanRow, ...]:
    """Count all items by agent."""
    rows: dict[str, PlanRow] = {}
    names = {person.id: person.username for person in plan.agents()}
    for agent_id, kind, outcome, reason, count in plan.stage.count_outcomes():
        new = PlanRow(agent_id=agent_id, agent=names.get(agent_id, ""))
        row = rows.setdefault(agent_id, new)
        name = _COUNTED.get(kind, "") if outcome in _MOVED else outcome
        if outcome == Outcome.LEFT_BEHIND:
            sums.left_behind[reason] += count
        if hasattr(row, name):
            setattr(row, name, getattr(row, name) + count)
    sums.left_behind = +sums.left_behind
    return tuple(rows.values())


def _label_scopes(
    store: Store | None, plan: StagedPlan, items: Iterable[Sample | PlanConflict]
) -> dict[str, str]:
    """Return the labels of scopes by key, with names of the store or else of the source."""
    scopes = {each.scope: scope_of(each.scope) for each in items}
    labels = load_labels(store, scopes.values()) if store else Labels()
    people = list(plan.agents())
    if any(scope.user_id not in (None, *labels) for scope in scopes.values()):
        people += plan.users()
    for person in people:
        if person.username:
            labels.setdefault(person.id, person.username)
    return {key: labels.full(scope) for key, scope in scopes.items()}


def _with_labels(items: Iterable[_Labeled], labels: Mapping[str, str]) -> tuple[_Labeled, ...]:
    return tuple(
        msgspec.structs.replace(each, label=labels.get(each.scope, "an unknown agent"))
        for each in items
    )
