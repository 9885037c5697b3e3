"""Go through the targets that a store lacks or has otherwise: decide, and apply or preview."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

import msgspec

from edenmem.engine.history.trails import read_after
from edenmem.engine.migration.comparison import KINDS, milliseconds
from edenmem.engine.migration.deciding import (
    Bases,
    Decider,
    Decision,
    OnConflict,
    Stored,
    in_force,
)
from edenmem.engine.migration.items import (
    Forgotten,
    Key,
    Memory,
    Outcome,
    Treatment,
    classify_moved,
    digest_of,
    key_of_item,
    read_sources,
)
from edenmem.engine.migration.source import StagedPlan
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import InputError
from edenmem.models.backup import RecordKind
from edenmem.models.changes import (
    Change,
    ChangeResult,
    ChangeSet,
    ChangeStatus,
    RemoveFact,
    RemovePolicy,
    RemoveReflection,
    RevertConsolidation,
)
from edenmem.models.host import Agent
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import ScopeKind
from edenmem.models.v1 import MEMORIES, V1Item, V1Text
from edenmem.store.protocol.store import Store

_MEANWHILE = "v2 was changed concurrently"
_MOVED = "v1 has it elsewhere or in other words now"
#: Maximum number of characters of the texts that are written together.
_CHARACTERS = 2_000_000


class Done(msgspec.Struct, frozen=True):
    """An item and what becomes of it."""

    number: int
    item: V1Item
    decision: Decision


class Applier:
    """Decide on all targets of a plan, and apply the changes unless it is a dry run.

    Args:
        runtime: The store and the actor.
        plan: The plan; its stage has the present state of the store.
        run_ids: IDs of all runs in the ledger.
        on_conflict: How to handle existing v2 texts.
        batch_size: Maximum number of items written together.
        dry_run: Decide only.
        agents: Agents that a dry run treats as existing.
    """

    def __init__(
        self,
        runtime: Runtime,
        plan: StagedPlan,
        *,
        run_ids: Collection[str],
        on_conflict: OnConflict,
        batch_size: int,
        dry_run: bool = False,
        agents: Sequence[Agent] = (),
    ) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._plan = plan
        self._stage = plan.stage
        self._bases = Bases(runtime.store, run_ids)
        self._has_earlier = bool(run_ids)
        self._run_id = runtime.actor.run_id
        self._on_conflict = on_conflict
        self._batch_size = batch_size
        self._dry_run = dry_run
        self._forgotten = Forgotten(runtime.store.erasure.forgettings())
        host = runtime.store.host
        known = {each.id: host.agent(each.id) for each in plan.agents()}
        self._agents = {each.id: each for each in agents}
        self._agents |= {id: agent for id, agent in known.items() if agent is not None}

    def run(self) -> Iterator[list[Done]]:
        """Decide on the unlike targets, batch by batch, apply, and note the outcomes.

        Raises:
            StoreError: the database cannot be used.
        """
        for page in self._stage.unlike(self._batch_size):
            for batch in _cut(page):
                done = self._apply(batch)
                self._stage.set_outcomes((each.number, each.decision.outcome) for each in done)
                yield done

    def _apply(self, batch: Sequence[tuple[int, V1Item]]) -> list[Done]:
        items = [self._forgotten.without_users(item) for _, item in batch]
        stored = Stored(self._store, items, self._agents)
        if self._has_earlier:
            self._bases.load(items)
        decider = Decider(
            self._on_conflict, self._runtime.clock(), self._next_place, self._find_absorbed
        )
        done = []
        for (number, _), item in zip(batch, items, strict=True):
            if self._forgotten.has(item):
                decision = Decision(outcome=Outcome.LEFT_BEHIND, detail=Forgotten.reason)
            else:
                base = self._bases.of(key_of_item(item))
                switched = self._bases.is_switched(item)
                decision = decider.decide(item, stored.find(item), base, switched)
                is_own = base is not None and base.entry.actor.run_id == self._run_id
                if is_own and decision.outcome is Outcome.ALREADY:
                    decision = Decision(outcome=classify_moved(item))
            done.append(Done(number, item, decision))
        return done if self._dry_run else self._judge(done)

    def _next_place(self, scope: str, at: datetime) -> int:
        return self._stage.next_place(scope, milliseconds(at))

    def _find_absorbed(self, item: V1Item) -> list[Reflection]:
        """Return the migrated reflections that are pending here, unedited, and not in v1."""
        assert isinstance(item.target, V1Text)
        strays = self._stage.strays(item.target.scope.key) if self._has_earlier else []
        if not strays:
            return []
        bases = Bases(self._store, self._bases.run_ids)
        bases.load_ids([Key("reflection", id) for id in strays])
        found = self._store.memory.reflections_by_ids(strays)
        sources: dict[str, str] = {}
        for id in strays:
            base, now = bases.of(Key("reflection", id)), found.get(id)
            if base is not None and now is not None and digest_of(now) == digest_of(base.document):
                sources |= {each: id for name, each in base.sources if name == MEMORIES}
        absorbed = {sources[each] for each in self._plan.find_absorbed(item, list(sources))}
        return [found[id] for id in strays if id in absorbed]

    # -- writing -----------------------------------------------------------------------------

    def _judge(self, done: Sequence[Done]) -> list[Done]:
        """Apply the changes of all decisions, and return what became of them."""
        changes = [each.decision.changes for each in done]
        results = self._submit([one for each in changes if len(each) == 1 for one in each])
        for each in changes:
            if len(each) > 1:  # each version of a text builds on the one before
                results |= self._submit_steps(each)
        return [
            msgspec.structs.replace(each, decision=_judge_one(each.decision, results))
            if each.decision.changes
            else each
            for each in done
        ]

    def _submit(self, changes: Sequence[Change]) -> dict[str, ChangeResult]:
        """Apply all changes in one set, or one by one if the store rejects one of them."""
        if not changes:
            return {}
        try:
            results = self._answer(changes)
        except InputError:
            results = [found for change in changes for found in self._submit_one(change)]
        return {each.change_id: each for each in results}

    def _submit_one(self, change: Change) -> Sequence[ChangeResult]:
        try:
            return self._answer([change])
        except InputError as error:
            refused, detail = ChangeStatus.CONFLICT, error.message
            return [ChangeResult(change_id=change.id, status=refused, target_id="", detail=detail)]

    def _submit_steps(self, changes: Sequence[Change]) -> dict[str, ChangeResult]:
        """Apply changes one by one until one fails; the last ID gets the result."""
        for change in changes:
            (result,) = self._submit_one(change)
            if not result.ok:
                break
        return {changes[-1].id: result}

    def _answer(self, changes: Sequence[Change]) -> Sequence[ChangeResult]:
        at = self._runtime.clock()
        context = ChangeSet(actor=self._runtime.actor, at=at, changes=tuple(changes))
        return self._store.changes.apply(context)

    # -- what v1 has moved -------------------------------------------------------------------

    def remove_moved(self) -> Iterator[tuple[Memory, str]]:
        """Remove what runs wrote and v1 now has elsewhere, or in other words; yield each.

        Memory that v1 no longer has anywhere stays, as does all that was changed here.
        """
        for kind in KINDS if self._has_earlier else ():
            for ids in self._stage.surplus(kind):
                moved = list(self._find_moved(kind, ids))
                changes = [take_away(each, self._runtime.clock(), _MOVED) for each in moved]
                if not self._dry_run:
                    self._submit(changes)
                yield from ((each, _MOVED) for each in moved)

    def _find_moved(self, kind: RecordKind, ids: Sequence[str]) -> Iterator[Memory]:
        bases = Bases(self._store, self._bases.run_ids)
        bases.load_ids([Key(kind, id) for id in ids])
        for id in ids:
            entries = bases.entries(Key(kind, id))
            written = in_force(entries, self._bases.run_ids)
            is_author = bool(written) and not written[0].before
            last = read_after(written[-1]) if is_author else None
            if not isinstance(last, Memory) or not self._is_elsewhere(last, written[0].reason):
                continue
            now = find_stored(self._store, last)
            if now is not None and digest_of(now) == digest_of(last):
                yield now

    def _is_elsewhere(self, memory: Memory, reason: str) -> bool:
        stage, scope = self._stage, memory.home
        sources = read_sources(reason)
        if isinstance(memory, Consolidation | Policy):
            kind = "policy" if isinstance(memory, Policy) else "consolidation"
            return any(stage.has_origin(kind, *source) for source in sources)
        used = {each for source in sources for each in stage.scopes_of(*source)}
        if isinstance(memory, Fact):
            return bool(used)
        # A reflection that only left its list was absorbed, unless its scope is gone as well.
        own = {ScopeKind.USER: f"user/{scope.owner}", ScopeKind.AGENT: "agent"}.get(scope.kind)
        is_alive = (
            stage.has_scope(scope.agent_id, own)
            if own is not None
            else stage.has_target("policy", scope.key)
        )
        return bool(used) and not is_alive


def find_stored(store: Store, memory: Memory) -> Memory | None:
    """Return the stored document in the place of another one."""
    scope = memory.home
    match memory:
        case Fact():
            return store.memory.facts_by_ids([scope], [memory.id]).get(memory.id)
        case Reflection():
            found = store.memory.reflection(memory.id)
            return found if found is not None and found.home == scope else None
        case Consolidation():
            return store.memory.consolidations([scope]).get(scope)
    return store.memory.policies([scope]).get(scope)


def take_away(now: Memory, at: datetime, reason: str) -> Change:
    """Return the change that removes a stored document."""
    match now:
        case Fact():
            return RemoveFact.of(now, at, reason)
        case Reflection():
            return RemoveReflection.of(now, at, reason)
        case Consolidation():
            return RevertConsolidation(
                scope=now.home,
                expected_version=now.version,
                content="",
                word_limit=now.word_limit,
                at=at,
                reason=reason,
            )
    return RemovePolicy(scope=now.home, expected_version=now.version, at=at, reason=reason)


def _judge_one(decision: Decision, results: dict[str, ChangeResult]) -> Decision:
    """Return what became of a decision: its last change depends on the others."""
    result = results[decision.changes[-1].id]
    if result.status is ChangeStatus.DUPLICATE:
        return Decision(outcome=Outcome.ALREADY)
    if result.ok:
        return decision
    if "has this id" in result.detail:
        return Decision(outcome=Outcome.FAILED, detail=result.detail)
    detail = f"{_MEANWHILE}: {result.detail}"
    return Decision(outcome=Outcome.KEPT, treatment=Treatment.KEPT, detail=detail)


def _cut(page: Sequence[tuple[int, V1Item]]) -> Iterator[list[tuple[int, V1Item]]]:
    """Cut a page into smaller batches where texts are long."""
    batch: list[tuple[int, V1Item]] = []
    characters = 0
    for number, item in page:
        batch.append((number, item))
        if isinstance(item.target, V1Text):
            characters += len(item.target.content)
            characters += sum(len(each.content) for each in item.target.earlier)
        if characters >= _CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
