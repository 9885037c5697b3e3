"""Go through the targets that a store lacks or has otherwise: decide, and apply or preview."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from edenmem.engine.migration.comparison import (
    KINDS,
    State,
    States,
    Steps,
    find_stored,
    in_force,
    load_found,
    load_written,
    milliseconds,
    read_after,
)
from edenmem.engine.migration.deciding import Decision, decide, removal_of
from edenmem.engine.migration.items import (
    Key,
    Treatment,
    digest_of,
    format_sources,
    key_of,
    read_sources,
)
from edenmem.engine.migration.reports import PlanConflict, RunOptions
from edenmem.engine.migration.source import StagedPlan, stage_key
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import InputError
from edenmem.models.changes import AuditEntry, Change, ChangeResult, ChangeSet, ChangeStatus
from edenmem.models.host import Agent
from edenmem.models.memory import Consolidation, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.models.v1 import MEMORIES, Memory, Outcome, V1Item

#: Maximum number of problems and conflicts in a report; all are counted.
MAX_PROBLEMS = 1000
_MEANWHILE = "v2 was changed concurrently"
_MOVED = "v1 has it elsewhere or in other words now"


class Done(NamedTuple):
    """An item and what becomes of it."""

    number: int
    item: V1Item
    decision: Decision


class Applier:
    """Decide on all targets of a plan, and apply the changes unless it is a dry run.

    Begins by loading the state of the store onto the stage. What the store has already is settled
    by that.

    Args:
        runtime: The store and the actor.
        plan: The plan.
        options: How to handle existing v2 texts, and the number of items written together.
        step: Called with the number of stored documents read.
        resumed: ID of the run to resume; of what the others wrote, nothing is new.
        dry_run: Decide only.
        agents: Agents that a dry run treats as existing.
    """

    def __init__(
        self,
        runtime: Runtime,
        plan: StagedPlan,
        options: RunOptions,
        step: Steps,
        *,
        resumed: str | None = None,
        dry_run: bool = False,
        agents: Sequence[Agent] = (),
    ) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._plan = plan
        self._stage = plan.stage
        self._options = options
        self._dry_run = dry_run
        run_ids = {run.id for run in runtime.store.migrations.migration_runs()}
        if resumed is None:  # a new run has written nothing yet
            run_ids.discard(runtime.actor.run_id or "")
        load_found(runtime.store, plan.stage, plan.about.agents, step)
        load_written(runtime.store, plan.stage, [resumed] if resumed else [], set())
        plan.stage.settle_equal(resumed or "")
        self._states = States(runtime.store, run_ids, plan.about.agents, agents)
        #: Numbers of conflicts with v2 memory by treatment, and the first conflicts.
        self.treatments = Counter[str]()
        self.conflicts: list[PlanConflict] = []

    def run(self) -> Iterator[list[Done]]:
        """Decide on the unlike targets, batch by batch, apply, and note the outcomes.

        Raises:
            StoreError: the database cannot be used.
        """
        for batch in self._stage.unlike(self._options.batch_size):
            done = self._apply(batch)
            self._stage.set_outcomes((each.number, each.decision.outcome) for each in done)
            for _, item, decision in done:
                if decision.treatment is not None:
                    scope = item.scope or Scope.agent(item.agent_id)
                    source = format_sources(item.sources)
                    self._note(item.kind, source, scope, decision.treatment, decision.detail)
            yield done

    def _note(
        self, kind: str, source: str, scope: Scope, treatment: Treatment, reason: str
    ) -> None:
        """Count a conflict, and keep it if it is one of the first."""
        self.treatments[treatment] += 1
        if len(self.conflicts) < MAX_PROBLEMS:
            self.conflicts.append(
                PlanConflict(
                    kind=kind, source=source, scope=scope.key, treatment=treatment, reason=reason
                )
            )

    def _apply(self, batch: Sequence[tuple[int, V1Item]]) -> list[Done]:
        items = [item for _, item in batch]
        at, done = self._runtime.clock(), []
        for (number, _), state in zip(batch, self._states.load(items), strict=True):
            decision = decide(self._complete(state), self._options.on_conflict, at)
            writers = [each.actor.run_id for each in state.written[-1:]]
            if decision.outcome is Outcome.ALREADY and writers == [self._runtime.actor.run_id]:
                decision = Decision(outcome=state.item.outcome)
            done.append(Done(number, state.item, decision))
        return done if self._dry_run else self._write(done)

    def _complete(self, state: State) -> State:
        """Return a state with what the writing of its target depends on."""
        new = state.item.memory
        if isinstance(new, Reflection):
            return msgspec.structs.replace(
                state,
                word_limit=self._plan.options.word_limit(new.home),
                next_place=self._stage.next_place(new.home.key, milliseconds(new.formed_at)),
            )
        if isinstance(new, Consolidation):
            return msgspec.structs.replace(state, absorbed=self._find_absorbed(state.item))
        return state

    def _find_absorbed(self, item: V1Item) -> list[Reflection]:
        """Return the migrated reflections that are pending here, unedited, and not in v1."""
        assert item.scope is not None
        strays = self._stage.column("strays", item.scope.key) if self._states.run_ids else []
        if not strays:
            return []
        found = self._store.memory.reflections_by_ids(strays)
        entries = self._states.entries([Key("reflection", id) for id in strays])
        sources: dict[str, str] = {}
        for (_, id), own in entries.items():
            written, now = in_force(own, self._states.run_ids), found.get(id)
            base = read_after(written[-1]) if written else None
            if base is not None and now is not None and digest_of(now) == digest_of(base):
                named = read_sources(written[-1].reason)
                sources |= {each: id for name, each in named if name == MEMORIES}
        absorbed = {sources[each] for each in self._plan.find_absorbed(item, list(sources))}
        return [found[id] for id in strays if id in absorbed]

    # -- writing -----------------------------------------------------------------------------

    def _write(self, done: Sequence[Done]) -> list[Done]:
        """Apply the changes of all decisions, and return what became of them."""
        changes = [each.decision.changes for each in done]
        results = self._submit([one for each in changes if len(each) == 1 for one in each])
        for each in changes:
            if len(each) > 1:  # versions of a text, each on the one before
                results |= self._submit(each, whole=True)
        return [
            each._replace(decision=_judge(each.decision, results))
            if each.decision.changes
            else each
            for each in done
        ]

    def _submit(self, changes: Sequence[Change], *, whole: bool = False) -> dict[str, ChangeResult]:
        """Apply all changes in one set; one by one if the store rejects one, unless ``whole``."""
        actor, at = self._runtime.actor, self._runtime.clock()
        given = ChangeSet(actor=actor, at=at, changes=tuple(changes), whole=whole)
        try:
            results = self._store.changes.apply(given) if changes else ()
        except InputError as error:
            if len(changes) > 1 and not whole:
                return {id: each for one in changes for id, each in self._submit([one]).items()}
            refused, why = ChangeStatus.CONFLICT, error.message
            results = [
                ChangeResult(change_id=each.id, status=refused, target_id="", detail=why)
                for each in changes
            ]
        return {each.change_id: each for each in results}

    # -- what v1 has moved -------------------------------------------------------------------

    def remove_moved(self) -> None:
        """Remove what runs wrote and v1 now has elsewhere, or in other words.

        Memory that v1 no longer has anywhere stays, as does all that was changed here.
        """
        for kind in KINDS if self._states.run_ids else ():
            for _, entries in self._states.surplus(self._stage, kind):
                moved = list(self._find_moved(entries.values()))
                if not self._dry_run:
                    at = self._runtime.clock()
                    self._submit([removal_of(each, reason=_MOVED, at=at) for each in moved])
                for each in moved:
                    self._note(
                        type(each).__name__.lower(), "", each.home, Treatment.REMOVED, _MOVED
                    )

    def _find_moved(self, surplus: Iterable[Sequence[AuditEntry]]) -> Iterator[Memory]:
        moved: dict[Key, Memory] = {}
        for entries in surplus:
            written = in_force(entries, self._states.run_ids)
            last = read_after(written[-1]) if written and not written[0].before else None
            if isinstance(last, Memory) and self._is_elsewhere(last, written[0].reason):
                moved[key_of(last)] = last
        for key, now in find_stored(self._store, moved.values()).items():
            if digest_of(now) == digest_of(moved[key]):
                yield now

    def _is_elsewhere(self, memory: Memory, reason: str) -> bool:
        stage, scope = self._stage, memory.home
        sources = read_sources(reason)
        if isinstance(memory, Consolidation | Policy):
            kind = "policy" if isinstance(memory, Policy) else "consolidation"
            return any(stage.has("origin", *source, kind) for source in sources)
        if not any(stage.has("used", *source) for source in sources):
            return False
        if not isinstance(memory, Reflection):
            return True
        # A reflection that only left its list was absorbed, unless its scope is gone as well.
        if (own := stage_key(scope)) is not None:
            return not stage.has("scope", scope.agent_id, own)
        return not stage.has("target", "policy", scope.key)


def _judge(decision: Decision, results: dict[str, ChangeResult]) -> Decision:
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
