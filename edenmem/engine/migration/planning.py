"""Plan a migration without writing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import TypeVar

import msgspec

from edenmem.embed.protocol import Embedder
from edenmem.engine.migration.applying import MAX_PROBLEMS, Applier
from edenmem.engine.migration.comparison import load_found
from edenmem.engine.migration.items import scope_of, text_of
from edenmem.engine.migration.ledger import refuse_other_options, resumable
from edenmem.engine.migration.people import People, describe_agent, strangers_notice, survey
from edenmem.engine.migration.reports import (
    MigrationPlan,
    PlanConflict,
    PlanRow,
    RunOptions,
    Sample,
)
from edenmem.engine.migration.source import StagedPlan, join_names
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.overview import defaults_of
from edenmem.engine.scopes.references import Labels, load_labels
from edenmem.models.host import Agent
from edenmem.models.scope import Scope
from edenmem.models.v1 import Outcome, V1Item
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store, batched

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
        self.characters = 0
        self.facts_of: Counter[Scope] = Counter()
        self.treatments: Mapping[str, int] = {}
        self.conflicts: Sequence[PlanConflict] = ()
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
    embedder = runtime.embedder if options.embed else None
    info = runtime.store.database.info()
    store = runtime.store if info.initialized else None
    sums = _Sums()
    people, earlier = People([], [], []), None
    if store is None:
        plan.stage.set_found(())
        for _, item in (each for page in plan.stage.unlike(options.batch_size) for each in page):
            _count(sums, plan, item)
    else:
        refuse_other_options(store, options)
        earlier = resumable(store, plan.about.location, options)
        people = survey(store, plan)
        agents = [describe_agent(person) for person in people.agents]
        _preview(runtime, plan, options, sums, agents, progress)
    rows = _count_rows(sums, plan)
    about = plan.about
    labels = _label_scopes(store, plan, [*sums.samples, *sums.conflicts])
    problems = Counter(plan.stage.count_problems()) + Counter(each.kind for each in people.taken)
    tokens = math.ceil(sums.characters / runtime.settings.formation.characters_per_token)
    return MigrationPlan(
        source=about.location,
        target=info.location,
        items=about.item_total,
        documents=about.totals,
        results=about.results,
        not_asked={name: count for name, count in about.not_asked.items() if count},
        rows=rows,
        left_behind=dict(sums.left_behind.most_common()),
        problems_by_kind=dict(problems.most_common()),
        problems=tuple(islice(chain(people.taken, plan.problems()), MAX_PROBLEMS)),
        unknown_fields=about.unknown_fields,
        samples=_with_labels(sums.samples, labels),
        outcomes=dict(sorted(plan.stage.outcomes().items())),
        conflicts_by_treatment=dict(sums.treatments),
        conflicts=_with_labels(sums.conflicts, labels),
        facts=sum(sums.facts_of.values()),
        model=embedder.model if embedder else "",
        tokens=tokens,
        cost=_cost(runtime.settings, embedder, tokens),
        notices=tuple(_notices(store, runtime.settings, people, sums)),
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
) -> None:
    """Decide on all targets, as a run would."""
    store, stage = runtime.store, plan.stage
    load_found(store, stage, plan.about.agents, lambda done: progress(done, 0))
    stage.set_written(())
    stage.settle_equal("")
    applier = Applier(
        runtime,
        plan,
        run_ids={run.id for run in store.migrations.migration_runs()},
        on_conflict=options.on_conflict,
        batch_size=options.batch_size,
        dry_run=True,
        agents=agents,
    )
    done = stage.count_settled()
    for batch in applier.run():
        for each in batch:
            decision, item = each.decision, each.item
            if decision.detail and decision.outcome is Outcome.LEFT_BEHIND:
                sums.left_behind[decision.detail] += 1
                sums.left_behind[item.reason] -= 1  # the reason of an item that is moved
            if decision.outcome in _MOVED:
                _count(sums, plan, item)
        done += len(batch)
        progress(min(done, plan.about.item_total), plan.about.item_total)
    applier.remove_moved()
    sums.treatments = dict(applier.treatments.most_common())
    sums.conflicts = applier.conflicts


def _count(sums: _Sums, plan: StagedPlan, item: V1Item) -> None:
    """Count an item that is written, and take a sample."""
    content, scope = text_of(item.memory), item.scope
    if item.fact is not None:
        sums.characters += len(content)
        sums.facts_of[item.fact.home] += 1
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
    """Count all items by agent and shard."""
    rows: dict[tuple[str, str | None], PlanRow] = {}
    names = {person.id: person.username for person in plan.agents()}
    for agent_id, shard, kind, outcome, reason, count in plan.stage.count_outcomes():
        new = PlanRow(agent_id=agent_id, agent=names.get(agent_id, ""), shard=shard)
        row = rows.setdefault((agent_id, shard), new)
        name = _COUNTED.get(kind, "") if outcome in _MOVED else outcome
        if outcome == Outcome.LEFT_BEHIND:
            sums.left_behind[reason] += count
        if hasattr(row, name):
            setattr(row, name, getattr(row, name) + count)
    sums.left_behind = +sums.left_behind
    return tuple(rows.values())


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


def _cost(settings: Settings, embedder: Embedder | None, tokens: int) -> float | None:
    if embedder is None:
        return None
    if embedder.model.partition("@")[0] != settings.embedding.model:
        return 0.0  # a local model
    price = settings.embedding.prices.get(settings.embedding.model)
    return None if price is None else tokens * price / 1_000_000


def _notices(store: Store | None, settings: Settings, people: People, sums: _Sums) -> list[str]:
    if store is None:
        return ["the store does not exist yet: create it with 'edenmem init'"]
    agents = {scope.agent_id for scope in sums.facts_of}
    existing = Counter(facts_by_scope(store, sorted(agents)))
    full = room_notices(store, settings, existing + sums.facts_of)
    return strangers_notice(people.strangers) + full
