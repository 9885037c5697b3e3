"""Plan a migration without writing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from edenmem.embed.protocol import Embedder
from edenmem.engine.migration.applier import DryApplier
from edenmem.engine.migration.items import (
    Done,
    Forgotten,
    Outcome,
    Rounds,
    Treatment,
    V1Plan,
    classify_moved,
    classify_unmoved,
    format_sources,
    target_scope,
)
from edenmem.engine.migration.reports import (
    MigrationPlan,
    PlanConflict,
    PlanRow,
    RunOptions,
    Sample,
)
from edenmem.engine.migration.run import facts_by_scope, resumable, room_notices
from edenmem.engine.migration.source import (
    agents_to_add,
    find_taken_names,
    has_own_accounts,
    is_addable,
    strangers_notice,
)
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.references import Labels, load_labels
from edenmem.models.memory import Fact, Reflection
from edenmem.models.scope import Scope
from edenmem.models.v1 import (
    Disposition,
    V1Fact,
    V1Item,
    V1Policy,
    V1Problem,
    V1Reflection,
    V1Text,
    V1Toggles,
)
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store, batched

_Labeled = TypeVar("_Labeled", Sample, PlanConflict)

#: Maximum number of problems and conflicts in a plan; all are counted.
_PROBLEMS = 1000
#: Samples per kind of item.
_SAMPLES = 2


class _Sums:
    """Running totals over the items."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str | None], PlanRow] = {}
        self.left_behind: Counter[str] = Counter()
        self.problems: Counter[str] = Counter()
        self.named: list[V1Problem] = []
        self.samples: list[Sample] = []
        self.sampled: Counter[str] = Counter()
        self.facts = 0
        self.characters = 0
        self.facts_of: Counter[Scope] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.treatments: Counter[str] = Counter()
        self.conflicts: list[PlanConflict] = []
        #: Key → scope, of samples and conflicts.
        self.scopes: dict[str, Scope] = {}

    def row(self, item: V1Item) -> PlanRow:
        """Return the row of an item's agent and shard."""
        key = item.agent_id, item.shard
        if key not in self.rows:
            self.rows[key] = PlanRow(agent_id=item.agent_id, shard=item.shard)
        return self.rows[key]


def make_plan(
    runtime: Runtime,
    plan: V1Plan,
    options: RunOptions,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> MigrationPlan:
    """Compare all items with the store, and plan their migration. Blocks.

    Raises:
        StoreError: the database cannot be used.
    """
    embedder = runtime.embedder if options.embed else None
    info = runtime.store.database.info()
    store = runtime.store if info.initialized else None
    sums = _Sums()
    applier = _applier(runtime, plan, options) if store else None
    _count_problems(sums, find_taken_names(store, plan) if store else ())
    total, planned = plan.item_total(), 0
    for items in batched(plan.items(), options.batch_size):
        for done in applier.apply(items) if applier else map(_of_empty_store, items):
            _count(sums, plan, done)
        planned += len(items)
        progress(planned, total)
    names = {person.id: person.username or "" for person in plan.agents()}
    for row in sums.rows.values():
        row.agent = names.get(row.agent_id, "")
    labels = _label_scopes(store, plan, sums.scopes)
    earlier = resumable(store, plan.location, options) if store else None
    tokens = math.ceil(sums.characters / runtime.settings.formation.characters_per_token)
    return MigrationPlan(
        source=plan.location,
        target=info.location,
        items=total,
        documents=dict(plan.totals),
        fates=dict(plan.fates()),
        not_asked={name: count for name, count in plan.not_asked.items() if count},
        rows=tuple(sums.rows.values()),
        left_behind=dict(sums.left_behind.most_common()),
        problems_by_kind=dict(sums.problems.most_common()),
        problems=tuple(sums.named),
        unknown_fields=dict(plan.unknown_fields),
        samples=_with_labels(sums.samples, labels),
        outcomes=dict(sorted(sums.outcomes.items())),
        conflicts_by_treatment=dict(sums.treatments.most_common()),
        conflicts=_with_labels(sums.conflicts, labels),
        facts=sums.facts,
        model=embedder.model if embedder else "",
        tokens=tokens,
        cost=_cost(runtime.settings, embedder, tokens),
        notices=tuple(_notices(store, runtime.settings, plan, sums)),
        resumes=earlier.id if earlier else None,
        incomplete=tuple(plan.incomplete),
    )


def _label_scopes(store: Store | None, plan: V1Plan, scopes: Mapping[str, Scope]) -> dict[str, str]:
    """Return the labels of scopes by key, with names of the store or else of the source."""
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


def _applier(runtime: Runtime, plan: V1Plan, options: RunOptions) -> DryApplier:
    rounds = Rounds(runtime.store.migrations.migration_runs())
    agents = agents_to_add(runtime.store, plan)
    return DryApplier(runtime, plan, rounds=rounds, on_conflict=options.on_conflict, agents=agents)


def _of_empty_store(item: V1Item) -> Done:
    """Return the outcome of an item in an empty store."""
    return Done(item, classify_unmoved(item) if item.target is None else classify_moved(item))


def _count(sums: _Sums, plan: V1Plan, done: Done) -> None:
    item = done.item
    row = sums.row(item)
    sums.outcomes[done.outcome.value] += 1
    if done.detail == Forgotten.reason:
        row.left_behind += 1
        sums.left_behind[done.detail] += 1
        return
    _count_problems(sums, item.problems)
    if done.treatment is not None:
        _note_conflict(sums, done, done.treatment)
    if item.disposition is Disposition.BAD:
        row.bad += 1
    elif item.target is None:
        row.left_behind += 1
        sums.left_behind[item.reason] += 1
    if done.outcome is Outcome.ALREADY:
        row.already += 1
        return
    if done.outcome is Outcome.KEPT:
        row.conflicts += isinstance(item.target, V1Text)
        return
    match item.target:
        case V1Fact(fact=fact):
            row.facts += 1
            sums.facts += 1
            sums.characters += len(fact.content)
            sums.facts_of[fact.home] += 1
        case V1Reflection():
            row.reflections += 1
        case V1Text(words=words, word_limit=limit):
            row.texts += 1
            row.conflicts += done.treatment not in (None, Treatment.FOLLOWED)
            row.over_limit += words > limit
        case V1Policy():
            row.policies += 1
        case V1Toggles():
            row.switches += 1
    _sample(sums, plan, item)


def _count_problems(sums: _Sums, problems: Iterable[V1Problem]) -> None:
    for problem in problems:
        sums.problems[problem.kind] += 1
        if len(sums.named) < _PROBLEMS:
            sums.named.append(problem)


def _note_conflict(sums: _Sums, done: Done, treatment: Treatment) -> None:
    sums.treatments[treatment.value] += 1
    if len(sums.conflicts) < _PROBLEMS:
        scope = target_scope(done.item)
        if scope is None and done.item.agent_id:
            scope = Scope.agent(done.item.agent_id)
        if scope is not None:
            sums.scopes[scope.key] = scope
        sums.conflicts.append(
            PlanConflict(
                kind=done.item.kind,
                source=format_sources(done.item.sources),
                scope=scope.key if scope is not None else "",
                treatment=treatment.value,
                reason=done.detail,
            )
        )


def _sample(sums: _Sums, plan: V1Plan, item: V1Item) -> None:
    scope = target_scope(item)
    if scope is None or sums.sampled[item.kind] >= _SAMPLES:
        return
    match item.target:
        case V1Text(content=after):
            pass
        case V1Fact(fact=Fact(content=after)) | V1Reflection(reflection=Reflection(content=after)):
            pass
        case _:
            return
    source = item.sources[0]
    sums.scopes[scope.key] = scope
    sums.sampled[item.kind] += 1
    sums.samples.append(
        Sample(
            kind=item.kind,
            source=f"{source.collection}/{source.id}",
            scope=scope.key,
            before=plan.source_text(source) or "",
            after=after,
        )
    )


def _cost(settings: Settings, embedder: Embedder | None, tokens: int) -> float | None:
    if embedder is None:
        return None
    if embedder.model.partition("@")[0] != settings.embedding.model:
        return 0.0  # a local model
    price = settings.embedding.prices.get(settings.embedding.model)
    return None if price is None else tokens * price / 1_000_000


def _notices(store: Store | None, settings: Settings, plan: V1Plan, sums: _Sums) -> list[str]:
    notices = []
    if store is None:
        notices.append("the store does not exist yet: create it with 'edenmem init'")
    else:
        own = has_own_accounts(store)
        strangers = [
            person.id
            for person in plan.agents()
            if store.host.agent(person.id) is None and not (own and is_addable(person))
        ]
        if strangers:
            notices.append(strangers_notice(strangers))
        agents = {scope.agent_id for scope in sums.facts_of}
        existing = Counter(facts_by_scope(store, sorted(agents)))
        notices += room_notices(store, settings, existing + sums.facts_of)
    return notices
