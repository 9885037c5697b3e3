"""A batch of items on its way into the store, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal

from edenmem.engine.migration.items import (
    Done,
    Forgotten,
    Outcome,
    Rounds,
    changes_of,
    moved,
    text_changes,
    unmoved,
)
from edenmem.errors import InputError
from edenmem.models.changes import Actor, Change, ChangeResult, ChangeSet, ChangeStatus
from edenmem.models.memory import Fact, Reflection
from edenmem.models.scope import Scope
from edenmem.models.v1 import V1Fact, V1Item, V1Policy, V1Reflection, V1Text, V1Toggles
from edenmem.store.protocol.store import Store

OnConflict = Literal["keep", "append", "replace"]

#: What stands between a text of v2 and the one of v1 that was appended to it.
APPENDED = "## From the memory of the first version"

_ALREADY = (ChangeStatus.ALREADY, ChangeStatus.DUPLICATE)
_KEPT_TEXT = "v2 has a text of its own, which was kept"


class Applier:
    """Applies batches for one run."""

    def __init__(
        self,
        store: Store,
        *,
        actor: Actor,
        rounds: Rounds,
        on_conflict: OnConflict,
        clock: Callable[[], datetime],
        resumed: bool,
    ) -> None:
        self._store = store
        self._actor = actor
        self._rounds = rounds
        self._forgotten = Forgotten(store.forgettings())
        self._on_conflict = on_conflict
        self._clock = clock
        # A run that goes on may have applied some items without having noted it.
        self._maybe_mine = resumed

    def apply(self, items: Sequence[V1Item]) -> list[Done]:
        """Move a batch; the outcomes in order.

        Raises:
            StoreError: the database cannot be used.
        """
        now = self._clock()
        self._rounds.look(self._store, items)
        changes = [
            [] if self._forgotten.has(item) else changes_of(item, self._rounds.of(item), at=now)
            for item in items
        ]
        results = self._apply_all([one for each in changes for one in each])
        mine = self._made_by_this_run(results)
        done = []
        for item, own in zip(items, changes, strict=True):
            if own:
                last = results[own[-1].id]
                done.append(self._judged(item, last, own_before=last.change_id in mine))
            elif item.target is not None:
                done.append(Done(item, Outcome.LEFT_BEHIND, Forgotten.reason))
            else:
                done.append(Done(item, unmoved(item)))
        return done

    def _apply_all(self, changes: list[Change]) -> dict[str, ChangeResult]:
        """All at once; one by one if there is one among them that the store cannot hold."""
        try:
            results = self._store.apply(self._set(changes))
        except InputError:
            results = [found for change in changes for found in self._apply_one(change)]
        return {each.change_id: each for each in results}

    def _apply_one(self, change: Change) -> list[ChangeResult]:
        try:
            return self._store.apply(self._set([change]))
        except InputError as error:
            refused = ChangeStatus.CONFLICT
            return [
                ChangeResult(
                    change_id=change.id, status=refused, target_id="", detail=error.message
                )
            ]

    def _set(self, changes: Sequence[Change]) -> ChangeSet:
        return ChangeSet(actor=self._actor, at=self._clock(), changes=tuple(changes))

    def _made_by_this_run(self, results: dict[str, ChangeResult]) -> set[str]:
        """Of the changes that were made before, those that this run made before it was cut off."""
        if not self._maybe_mine:
            return set()
        already = [r.change_id for r in results.values() if r.status is ChangeStatus.ALREADY]
        self._maybe_mine = len(already) == len(results)
        entries = self._store.audit_entries(already)
        return {id for id, entry in entries.items() if entry.actor.run_id == self._actor.run_id}

    # -- judging -----------------------------------------------------------------------------

    def _judged(self, item: V1Item, result: ChangeResult, *, own_before: bool) -> Done:
        if result.status is ChangeStatus.APPLIED or own_before:
            return Done(item, moved(item))
        if result.status in _ALREADY:
            return Done(item, Outcome.ALREADY)
        match item.target:
            case V1Text() as text:
                return self._text(item, text)
            case V1Policy():
                return Done(item, Outcome.KEPT, "v2 has settings of its own, which were kept")
            case V1Toggles():
                return Done(item, Outcome.KEPT, "the host does not know the agent")
            case V1Fact(fact=memory) | V1Reflection(reflection=memory):
                return self._memory(item, memory, result)
        return Done(item, Outcome.FAILED, result.detail)

    def _memory(self, item: V1Item, new: Fact | Reflection, result: ChangeResult) -> Done:
        """Something else has its id: the same memory as somebody changed it, or a stranger."""
        read = self._store.fact if isinstance(new, Fact) else self._store.reflection
        found = read(new.id)
        if found is None or found.home != new.home:
            return Done(item, Outcome.FAILED, result.detail)
        if found.content == new.content:
            return Done(item, Outcome.ALREADY)
        return Done(item, Outcome.KEPT, "it was migrated before and edited since")

    def _text(self, item: V1Item, text: V1Text) -> Done:
        """The scope has a text, or had one. What live traffic begins, a buffer, is none."""
        current = self._store.consolidations([text.scope]).get(text.scope)
        standing = current.consolidated_content if current else ""
        if standing.strip() == text.content.strip() and standing.strip():
            return Done(item, Outcome.ALREADY)
        if standing.strip() and self._on_conflict == "keep":
            return Done(item, Outcome.KEPT, _KEPT_TEXT)
        content = text.content
        if standing.strip() and self._on_conflict == "append":
            if content.strip() in standing:  # appended before, and worked on since
                return Done(item, Outcome.ALREADY)
            content = f"{standing.rstrip()}\n\n{APPENDED}\n\n{content}"
        version = current.version if current else 0
        changes = text_changes(item, text, self._rounds.of(item), version=version, content=content)
        results = self._apply_all(changes)
        own = results[changes[-1].id]
        if own.ok:
            how = f"v2 had a text of its own ({self._on_conflict})" if standing.strip() else ""
            return Done(item, moved(item), how)
        return Done(item, Outcome.KEPT, f"v2's text changed meanwhile: {own.detail}")


def stands_in_the_way(store: Store, items: Sequence[V1Item]) -> set[Scope]:
    """The scopes of these texts that have a text of their own in v2."""
    scopes = [item.target.scope for item in items if isinstance(item.target, V1Text)]
    if not scopes:
        return set()
    found = store.consolidations(scopes)
    return {scope for scope, text in found.items() if text.consolidated_content.strip()}
