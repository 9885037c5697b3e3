"""Apply batches of items to a store, and return the outcome of each item.

A dry run takes the same path with a preview instead of a write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from edenmem.engine.migration.conflicts import (
    OnConflict,
    Standing,
    decide,
    find_standing,
)
from edenmem.engine.migration.items import (
    ABSORBED_LATER,
    Done,
    Forgotten,
    Outcome,
    Rounds,
    Treatment,
    V1Plan,
    change_id,
    changes_of,
    classify_moved,
    classify_unmoved,
    format_sources,
    read_sources,
    reason_of,
    settings_of,
    text_changes,
)
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import InputError
from edenmem.memory import State, preview
from edenmem.models.changes import (
    AuditEntry,
    Change,
    ChangeResult,
    ChangeSet,
    ChangeStatus,
    ReviseFact,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.host import Agent
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.models.v1 import (
    V1Fact,
    V1Item,
    V1Policy,
    V1Reflection,
    V1Text,
    V1Toggles,
)

_MEANWHILE = "v2 was changed concurrently"
_ALREADY = (ChangeStatus.ALREADY, ChangeStatus.DUPLICATE)


class _Decided(msgspec.Struct, frozen=True, kw_only=True):
    """The decision on a text or settings before writing.

    ``entry`` is the audit entry of the change that moved the item earlier.
    """

    item: V1Item
    changes: Sequence[Change] = ()
    treatment: Treatment | None = None
    detail: str = ""
    entry: AuditEntry | None = None


class Applier:
    """Apply the batches of one run.

    Args:
        runtime: The store and the actor.
        plan: The items of the run.
        rounds: The rounds of items after rollbacks.
        on_conflict: How to handle existing v2 texts.
        resumed: Whether an interrupted process may have applied items without recording them.
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
        """Move a batch, and return the outcomes in order.

        Raises:
            StoreError: the database cannot be used.
        """
        now = self._clock()
        items = [self._forgotten.without_users(item) for item in items]
        self._rounds.load(self._store, items)
        known = [item for item in items if item.target and not self._forgotten.has(item)]
        decided = self._decide(known, at=now)
        changes: dict[str, Sequence[Change]] = {
            item.key: changes_of(item, self._rounds.of(item), at=now)
            for item in known
            if item.key not in decided
        }
        changes |= {key: each.changes for key, each in decided.items()}
        # Write the versions of a text one by one: each builds on the one before.
        results = self._submit([one for each in changes.values() if len(each) == 1 for one in each])
        for each in changes.values():
            if len(each) > 1:
                results |= self._submit_steps(each)
        own_ids = self._find_own(results, decided)
        return [self._judge(item, changes, decided, results, own_ids) for item in items]

    # -- writing -----------------------------------------------------------------------------

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
            refused = ChangeStatus.CONFLICT
            return [
                ChangeResult(
                    change_id=change.id, status=refused, target_id="", detail=error.message
                )
            ]

    def _submit_steps(self, changes: Sequence[Change]) -> dict[str, ChangeResult]:
        """Apply changes one by one until one fails; the last ID gets the result."""
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
        self, results: Mapping[str, ChangeResult], decided: Mapping[str, _Decided]
    ) -> set[str]:
        """Return the IDs of earlier changes that this run made before an interruption."""
        if not self._maybe_mine:
            return set()
        already = [r.change_id for r in results.values() if r.status is ChangeStatus.ALREADY]
        moved = [each.entry for each in decided.values() if each.entry is not None]
        self._maybe_mine = len(already) == len(results)
        entries = [*self._store.log.audit_entries(already).values(), *moved]
        return {entry.id for entry in entries if entry.actor.run_id == self._actor.run_id}

    # -- deciding ----------------------------------------------------------------------------

    def _decide(self, items: Sequence[V1Item], *, at: datetime) -> dict[str, _Decided]:
        """Return the decisions on texts, and on settings that v2 already has, by item key."""
        asked = {
            change_id(item, self._rounds.of(item)): item
            for item in items
            if isinstance(item.target, V1Text | V1Policy)
        }
        if not asked:
            return {}
        entries = self._store.log.audit_entries(list(asked))
        decided = {
            asked[id].key: _Decided(item=asked[id], entry=entry) for id, entry in entries.items()
        }
        new = [(item, item.target) for id, item in asked.items() if id not in entries]
        texts = [(i, i.target) for i in asked.values() if isinstance(i.target, V1Text)]
        if texts:
            current = self._store.memory.consolidations([text.scope for _, text in texts])
            for item, text in texts:
                found = current.get(text.scope)
                if item.key not in decided:
                    decided[item.key] = self._decide_text(item, text, found)
                if found is not None and _is_settled(decided[item.key]):
                    absorption = self._decide_absorption(item, text, found)
                    decided[item.key] = absorption or decided[item.key]
        settings = [(item, each.policy) for item, each in new if isinstance(each, V1Policy)]
        if settings:
            stored = self._store.memory.policies([policy.home for _, policy in settings])
            for item, policy in settings:
                if (own := stored.get(policy.home)) is not None:
                    decided[item.key] = self._decide_settings(item, policy, own, at=at)
        return decided

    def _decide_text(self, item: V1Item, text: V1Text, found: Consolidation | None) -> _Decided:
        standing = Standing()
        if found is not None and found.version:
            standing = find_standing(self._store, found, self._rounds.run_ids)
        decision = decide(text, standing, self._on_conflict)
        changes: Sequence[Change] = ()
        if decision.content is not None:
            changes = text_changes(
                item,
                text,
                self._rounds.of(item),
                version=decision.version,
                content=decision.content,
                earlier=decision.earlier,
                absorbed_ids=self._find_absorbed(item, text.scope) if found is not None else (),
            )
        return _Decided(
            item=item, changes=changes, treatment=decision.treatment, detail=decision.detail
        )

    def _decide_absorption(
        self, item: V1Item, text: V1Text, found: Consolidation
    ) -> _Decided | None:
        """Mark reflections as absorbed if v1 no longer lists them, though its text is unchanged."""
        ids = self._find_absorbed(item, text.scope) if found.unabsorbed_ids else []
        if not ids or not found.version:
            return None
        standing = find_standing(self._store, found, self._rounds.run_ids)
        own = standing.content.strip()
        if own != text.content.strip() and not (
            standing.moved and own == standing.moved[-1].content
        ):
            return None  # edited here, so the text does not contain the pending reflections
        pending = self._store.memory.reflections_by_ids(ids)
        change = WriteConsolidation(
            id=change_id(item, self._rounds.of(item), f"absorbed after {found.version}"),
            reason=f"from {format_sources(item.sources)}; {ABSORBED_LATER}",
            scope=text.scope,
            expected_version=found.version,
            content=found.consolidated_content,
            word_limit=text.word_limit,
            # Later v1 texts are newer than all memories that this version absorbs.
            at=max([text.last_updated_at, *(each.formed_at for each in pending.values())]),
            absorbed_ids=tuple(ids),
        )
        return _Decided(
            item=item, changes=[change], treatment=Treatment.FOLLOWED, detail=ABSORBED_LATER
        )

    def _decide_settings(
        self, item: V1Item, policy: Policy, own: Policy, *, at: datetime
    ) -> _Decided:
        """Follow v1 if the settings are unchanged since a migration; otherwise keep them."""
        if settings_of(own) == settings_of(policy):
            return _Decided(item=item)
        last = next(self._store.log.audit(target_id=own.id, limit=1), None)
        by_run = last is not None and last.actor.run_id in self._rounds.run_ids
        left = msgspec.convert(last.after, Policy) if last is not None and last.after else None
        if not by_run or left is None or settings_of(left) != settings_of(own):
            detail = "v2 has other settings, which were kept"
            return _Decided(item=item, treatment=Treatment.KEPT, detail=detail)
        change = WritePolicy(
            id=change_id(item, self._rounds.of(item)),
            reason=reason_of(item),
            policy=msgspec.structs.replace(own, **settings_of(policy)),
            expected_version=own.version,
            at=at,
        )
        detail = "v1 has newer settings"
        return _Decided(item=item, changes=[change], treatment=Treatment.FOLLOWED, detail=detail)

    def _find_absorbed(self, item: V1Item, scope: Scope) -> list[str]:
        """Return the migrated reflections that are pending here, unedited, and not in v1."""
        sources: dict[str, str] = {}
        for reflection in self._store.memory.pending(scope):
            if reflection.version > 1:
                continue
            entries = self._store.log.audit(target_id=reflection.id, actions=["add_reflection"])
            for entry in entries:
                named = read_sources(entry.reason)
                if entry.actor.run_id in self._rounds.run_ids and named:
                    sources[reflection.id] = named[0][1]
        absorbed = self._plan.find_absorbed(item, list(sources.values())) if sources else set()
        return [own for own, source in sources.items() if source in absorbed]

    # -- judging -----------------------------------------------------------------------------

    def _judge(
        self,
        item: V1Item,
        changes: Mapping[str, Sequence[Change]],
        decided: Mapping[str, _Decided],
        results: Mapping[str, ChangeResult],
        own_ids: set[str],
    ) -> Done:
        if item.target is None:
            return Done(item, classify_unmoved(item))
        if item.key not in changes:
            return Done(item, Outcome.LEFT_BEHIND, Forgotten.reason)
        if item.key in decided:
            return _judge_decided(decided[item.key], results, own_ids)
        (change,) = changes[item.key]
        result = results[change.id]
        if result.status is ChangeStatus.APPLIED or change.id in own_ids:
            return Done(item, classify_moved(item))
        if result.status in _ALREADY:
            self._relate(item, result)
            return Done(item, Outcome.ALREADY)
        match item.target:
            case V1Policy():
                return _kept(item, f"{_MEANWHILE}: {result.detail}")
            case V1Toggles():
                return Done(item, Outcome.KEPT, "the host does not know the agent")
            case V1Fact(fact=memory) | V1Reflection(reflection=memory):
                return self._judge_memory(item, memory, result)
        return Done(item, Outcome.FAILED, result.detail)

    def _relate(self, item: V1Item, result: ChangeResult) -> None:
        """Add the related users of v1 to an identical fact of the scope: 'forget' needs them."""
        if result.status is not ChangeStatus.DUPLICATE or not isinstance(item.target, V1Fact):
            return
        users = item.target.fact.related_users
        twin = self._store.memory.fact(result.target_id) if users else None
        if twin is None or set(users) <= set(twin.related_users):
            return
        change = ReviseFact(
            id=change_id(item, self._rounds.of(item), f"related {twin.id} {twin.version}"),
            reason=reason_of(item),
            scope=twin.home,
            fact_id=twin.id,
            expected_version=twin.version,
            content=twin.content,
            at=self._clock(),
            related_users=users,
            times=twin.times,
        )
        self._submit([change])

    def _judge_memory(self, item: V1Item, new: Fact | Reflection, result: ChangeResult) -> Done:
        """Return the outcome of a memory whose ID is in use: for an edited copy, or another one."""
        read = self._store.memory.fact if isinstance(new, Fact) else self._store.memory.reflection
        found = read(new.id)
        if found is None or found.agent_id != new.agent_id:
            return Done(item, Outcome.FAILED, result.detail)
        if found.home != new.home:
            return _kept(item, f"already migrated to {found.home.key}")
        if found.content == new.content:
            return Done(item, Outcome.ALREADY)
        if found.version == 1:
            return _kept(item, "edited in v1 since its migration; the text here was kept")
        return _kept(item, "edited here since its migration")


class DryApplier(Applier):
    """Preview what an `Applier` would do, without writing.

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

    def _submit_steps(self, changes: Sequence[Change]) -> dict[str, ChangeResult]:
        return self._submit(changes)  # a preview sees earlier changes only within one set

    def _answer(self, changes: Sequence[Change]) -> Sequence[ChangeResult]:
        state = State(agents={agent.id: agent for agent in self._agents})
        effects = preview(self._set(changes), self._store.changes.load_state, state)
        return [effect.result for effect in effects]


def _is_settled(decided: _Decided) -> bool:
    """Return whether nothing is written and nothing conflicts."""
    return not decided.changes and decided.treatment is None


def _kept(item: V1Item, why: str) -> Done:
    return Done(item, Outcome.KEPT, why, Treatment.KEPT)


def _judge_decided(
    decided: _Decided, results: Mapping[str, ChangeResult], own_ids: set[str]
) -> Done:
    item = decided.item
    if decided.entry is not None and not decided.changes:
        own = decided.entry.id in own_ids
        return Done(item, classify_moved(item) if own else Outcome.ALREADY)
    if not decided.changes:
        if decided.treatment is None:
            return Done(item, Outcome.ALREADY)
        return _kept(item, decided.detail)
    result = results[decided.changes[-1].id]
    if result.ok:
        return Done(item, classify_moved(item), decided.detail, decided.treatment)
    return _kept(item, f"{_MEANWHILE}: {result.detail}")
