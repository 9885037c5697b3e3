"""Batches of items into a store, and what became of each.

A dry run goes the same way, and asks the rules of memory what the store would do instead of the
store to do it: so a plan says what the run does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from edenmem.engine.migration.conflicts import (
    Decision,
    OnConflict,
    Standing,
    decide,
    find_standing,
)
from edenmem.engine.migration.items import (
    Done,
    Forgotten,
    Outcome,
    Rounds,
    Treatment,
    change_id,
    changes_of,
    classify_moved,
    classify_unmoved,
    read_sources,
    text_changes,
)
from edenmem.engine.migration.plan import V1Plan
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import InputError
from edenmem.memory import State, preview
from edenmem.models.changes import (
    AuditEntry,
    Change,
    ChangeResult,
    ChangeSet,
    ChangeStatus,
    WriteConsolidation,
)
from edenmem.models.host import Agent
from edenmem.models.memory import Consolidation, Fact, Reflection
from edenmem.models.scope import Scope
from edenmem.models.v1 import (
    V1Fact,
    V1Item,
    V1Policy,
    V1Reflection,
    V1Text,
    V1Toggles,
)

_ALREADY = (ChangeStatus.ALREADY, ChangeStatus.DUPLICATE)


class _Text(msgspec.Struct, frozen=True):
    """A text of a batch, and what was decided on it; no decision: it was moved before, by the
    change of this ``entry``."""

    item: V1Item
    decision: Decision
    changes: Sequence[WriteConsolidation] = ()
    entry: AuditEntry | None = None


class Applier:
    """Applies batches for one run, or for the plan of one.

    Args:
        runtime: The store, and who does it.
        plan: What is moved; asked for what v1 has put into a text meanwhile.
        rounds: Which items were taken back.
        on_conflict: What to do with a text that is v2's own.
        resumed: Whether an earlier process may have applied something that it did not note.
    """

    def __init__(
        self,
        runtime: Runtime,
        plan: V1Plan,
        *,
        rounds: Rounds,
        on_conflict: OnConflict,
        resumed: bool = False,
    ) -> None:
        self._store = runtime.store
        self._actor = runtime.actor
        self._plan = plan
        self._rounds = rounds
        self._forgotten = Forgotten(runtime.store.erasure.forgettings())
        self._on_conflict = on_conflict
        self._clock = runtime.clock
        self._maybe_mine = resumed

    def apply(self, items: Sequence[V1Item]) -> list[Done]:
        """Move a batch; the outcomes in order.

        Raises:
            StoreError: the database cannot be used.
        """
        now = self._clock()
        self._rounds.look(self._store, items)
        texts = self._decide(items)
        changes = {
            item.key: changes_of(item, self._rounds.of(item), at=now)
            for item in items
            if not self._forgotten.has(item)
        }
        # A text of several versions is written step by step: none may be taken for another's.
        at_once = [text for text in texts.values() if len(text.changes) == 1]
        results = self._submit(
            [
                *(change for text in at_once for change in text.changes),
                *(one for each in changes.values() for one in each),
            ]
        )
        for text in texts.values():
            if len(text.changes) > 1:
                results |= self._submit_steps(text.changes)
        mine = self._find_own(results, texts)
        return [self._judge(item, changes.get(item.key), texts, results, mine) for item in items]

    # -- writing -----------------------------------------------------------------------------

    def _submit(self, changes: Sequence[Change]) -> dict[str, ChangeResult]:
        """All at once; one by one if there is one among them that the store cannot hold."""
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
            refused = ChangeStatus.CONFLICT
            return [
                ChangeResult(
                    change_id=change.id, status=refused, target_id="", detail=error.message
                )
            ]

    def _submit_steps(self, changes: Sequence[WriteConsolidation]) -> dict[str, ChangeResult]:
        """One after another, until one is refused; the last one has the answer of all."""
        for change in changes:
            (result,) = self._submit_one(change)
            if not result.ok:
                break
        own = changes[-1].id
        return {own: msgspec.structs.replace(result, change_id=own)}

    def _answer(self, changes: Sequence[Change]) -> Sequence[ChangeResult]:
        return self._store.changes.apply(self._set(changes))

    def _set(self, changes: Sequence[Change]) -> ChangeSet:
        return ChangeSet(actor=self._actor, at=self._clock(), changes=tuple(changes))

    def _find_own(
        self, results: Mapping[str, ChangeResult], texts: Mapping[str, _Text]
    ) -> set[str]:
        """Of the changes that were made before, those that this run made before it was cut off."""
        if not self._maybe_mine:
            return set()
        already = [r.change_id for r in results.values() if r.status is ChangeStatus.ALREADY]
        moved = [text.entry for text in texts.values() if text.entry is not None]
        self._maybe_mine = len(already) == len(results)
        entries = [*self._store.log.audit_entries(already).values(), *moved]
        return {entry.id for entry in entries if entry.actor.run_id == self._actor.run_id}

    # -- texts -------------------------------------------------------------------------------

    def _decide(self, items: Sequence[V1Item]) -> dict[str, _Text]:
        """By key: what becomes of the texts of a batch."""
        asked = {
            change_id(item, self._rounds.of(item)): (item, item.target)
            for item in items
            if isinstance(item.target, V1Text) and not self._forgotten.has(item)
        }
        if not asked:
            return {}
        entries = self._store.log.audit_entries(list(asked))
        new = [(item, text) for id, (item, text) in asked.items() if id not in entries]
        current = self._store.memory.consolidations([text.scope for _, text in new]) if new else {}
        decided = {item.key: self._decide_one(item, text, current) for item, text in new}
        for id, entry in entries.items():
            item, _ = asked[id]
            decided[item.key] = _Text(item, Decision(), entry=entry)
        return decided

    def _decide_one(
        self, item: V1Item, text: V1Text, current: Mapping[Scope, Consolidation]
    ) -> _Text:
        found = current.get(text.scope)
        standing = Standing()
        if found is not None and found.version:
            standing = find_standing(self._store, found, self._rounds.run_ids)
        decision = decide(text, standing, self._on_conflict)
        if decision.content is None:
            return _Text(item, decision)
        changes = text_changes(
            item,
            text,
            self._rounds.of(item),
            version=decision.version,
            content=decision.content,
            earlier=decision.earlier,
            absorbed_ids=self._find_absorbed(item, text.scope) if found is not None else (),
        )
        return _Text(item, decision, changes)

    def _find_absorbed(self, item: V1Item, scope: Scope) -> list[str]:
        """What an earlier run moved, waits here unchanged, and is in v1's text now."""
        sources: dict[str, str] = {}
        for waiting in self._store.memory.pending(scope):
            if waiting.version > 1:
                continue
            entries = self._store.log.audit(target_id=waiting.id, actions=["add_reflection"])
            for entry in entries:
                named = read_sources(entry.reason)
                if entry.actor.run_id in self._rounds.run_ids and named:
                    sources[waiting.id] = named[0][1]
        absorbed = self._plan.find_absorbed(item, list(sources.values())) if sources else set()
        return [own for own, source in sources.items() if source in absorbed]

    # -- judging -----------------------------------------------------------------------------

    def _judge(
        self,
        item: V1Item,
        changes: Sequence[Change] | None,
        texts: Mapping[str, _Text],
        results: Mapping[str, ChangeResult],
        mine: set[str],
    ) -> Done:
        if item.target is None:
            return Done(item, classify_unmoved(item))
        if changes is None:
            return Done(item, Outcome.LEFT_BEHIND, Forgotten.reason)
        if item.key in texts:
            return _judge_text(texts[item.key], results, mine)
        (change,) = changes
        result = results[change.id]
        if result.status is ChangeStatus.APPLIED or change.id in mine:
            return Done(item, classify_moved(item))
        if result.status in _ALREADY:
            return Done(item, Outcome.ALREADY)
        match item.target:
            case V1Policy():
                return _kept(item, "v2 has settings of its own, which were kept")
            case V1Toggles():
                return Done(item, Outcome.KEPT, "the host does not know the agent")
            case V1Fact(fact=memory) | V1Reflection(reflection=memory):
                return self._judge_memory(item, memory, result)
        return Done(item, Outcome.FAILED, result.detail)

    def _judge_memory(self, item: V1Item, new: Fact | Reflection, result: ChangeResult) -> Done:
        """Something else has its id: the same memory as somebody changed it, or a stranger."""
        read = self._store.memory.fact if isinstance(new, Fact) else self._store.memory.reflection
        found = read(new.id)
        if found is None or found.agent_id != new.agent_id:
            return Done(item, Outcome.FAILED, result.detail)
        if found.home != new.home:
            return _kept(item, f"it was migrated before, to {found.home.key}, and stays there")
        if found.content == new.content:
            return Done(item, Outcome.ALREADY)
        return _kept(item, "it was migrated before and edited since")


class DryApplier(Applier):
    """Says what an `Applier` would do, and writes nothing.

    Args:
        agents: The agents that the run would add first.
    """

    def __init__(
        self,
        runtime: Runtime,
        plan: V1Plan,
        *,
        rounds: Rounds,
        on_conflict: OnConflict,
        agents: Sequence[Agent],
    ) -> None:
        super().__init__(runtime, plan, rounds=rounds, on_conflict=on_conflict)
        self._agents = agents

    def _submit_steps(self, changes: Sequence[WriteConsolidation]) -> dict[str, ChangeResult]:
        return self._submit(changes)  # each sees the one before it only in one set

    def _answer(self, changes: Sequence[Change]) -> Sequence[ChangeResult]:
        state = State(agents={agent.id: agent for agent in self._agents})
        effects = preview(self._set(changes), self._store.changes.load_state, state)
        return [effect.result for effect in effects]


def _kept(item: V1Item, why: str) -> Done:
    return Done(item, Outcome.KEPT, why, Treatment.KEPT)


def _judge_text(text: _Text, results: Mapping[str, ChangeResult], mine: set[str]) -> Done:
    item, decision = text.item, text.decision
    if text.entry is not None:
        own = text.entry.id in mine
        return Done(item, classify_moved(item) if own else Outcome.ALREADY)
    if not text.changes:
        if decision.treatment is None:
            return Done(item, Outcome.ALREADY)
        return _kept(item, decision.detail)
    result = results[text.changes[-1].id]
    if result.ok:
        return Done(item, classify_moved(item), decision.detail, decision.treatment)
    return _kept(item, f"v2's text changed meanwhile: {result.detail}")
