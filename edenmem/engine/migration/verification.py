"""Source against target: is each document of v1 where a run should have brought it?

The source is read anew and each item's target is looked up and hashed. What is not there as it was
migrated is accounted for if it is there in other words, or if the log says that it was removed:
then somebody edited, consolidated or removed it since. That it came once is no proof of that.
Memory is a few bytes for each document.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

from edenmem.engine.migration.items import Forgotten, Rounds, change_id, format_sources
from edenmem.engine.migration.plan import V1Plan
from edenmem.engine.migration.reports import Unaccounted, Verification
from edenmem.errors import ConflictError
from edenmem.models.changes import AuditEntry
from edenmem.models.memory import Fact, Reflection, content_hash
from edenmem.models.migration import MigrationRun, RunState
from edenmem.models.scope import Scope
from edenmem.models.v1 import (
    Disposition,
    V1Fact,
    V1Item,
    V1Policy,
    V1Ref,
    V1Reflection,
    V1Text,
    V1Toggles,
)
from edenmem.store.protocol.store import Store, batched

_BATCH = 500
_NAMED = 100

#: What may be found of an item, from least to most; a document counts by the greatest of its
#: items. Three bits.
_BAD, _LEFT, _MERGED, _MIGRATED, _MISSING = 1, 2, 4, 5, 7
_BITS = 3
_NAMES = {
    _MIGRATED: "migrated",
    _MERGED: "merged",
    _LEFT: "left_behind",
    _BAD: "bad",
    _MISSING: "unaccounted",
}


class _Found:
    """What is in the store of one batch of items."""

    def __init__(self, store: Store, items: Sequence[V1Item]) -> None:
        facts: dict[Scope, list[str]] = {}
        reflections, texts, policies = [], [], []
        for item in items:
            match item.target:
                case V1Fact(fact=fact):
                    facts.setdefault(fact.home, []).append(fact.hash)
                case V1Reflection(reflection=reflection):
                    reflections.append(reflection.id)
                case V1Text(scope=scope):
                    texts.append(scope)
                case V1Policy(policy=policy):
                    policies.append(policy.home)
        self.store = store
        self.facts = {
            scope: store.memory.facts_by_hashes(scope, all) for scope, all in facts.items()
        }
        self.reflections = store.memory.reflections_by_ids(reflections) if reflections else {}
        self.texts = store.memory.consolidations(texts) if texts else {}
        self.policies = store.memory.policies(policies) if policies else {}

    def has(self, item: V1Item) -> bool:
        """Whether the item's target is in the store as it was migrated."""
        match item.target:
            case V1Fact(fact=fact):
                return _same(self.facts[fact.home].get(fact.hash), fact)
            case V1Reflection(reflection=reflection):
                return _same(self.reflections.get(reflection.id), reflection)
            case V1Text(scope=scope, content=content):
                text = self.texts.get(scope)
                return text is not None and text.consolidated_content.endswith(content.strip())
            case V1Policy(policy=policy):
                return policy.home in self.policies
            case V1Toggles(agent_id=agent_id, agent_memory_enabled=enabled):
                agent = self.store.host.agent(agent_id)
                return agent is not None and agent.agent_memory_enabled is enabled
        return True

    def was_changed(self, item: V1Item, entry: AuditEntry) -> bool:
        """Whether what an entry of the log brought is there in other words, or was removed by
        somebody whom the log knows."""
        match item.target:
            case V1Fact(fact=fact):
                there = entry.target_id in self.store.memory.facts_by_ids(
                    [fact.home], [entry.target_id]
                )
            case V1Reflection(reflection=reflection):
                found = self.reflections.get(entry.target_id)
                there = found is not None and found.home == reflection.home
            case V1Toggles():
                there = True  # the host switches them too
            case _:
                there = self.stands_for_itself(item)
        if there:
            return True
        since = self.store.log.audit(target_id=entry.target_id, since=entry.at)
        return any(each.actor.run_id != entry.actor.run_id for each in since)

    def stands_for_itself(self, item: V1Item) -> bool:
        """Whether v2 has something of its own in that place, which is kept."""
        match item.target:
            case V1Text(scope=scope):
                text = self.texts.get(scope)
                return text is not None and bool(text.consolidated_content.strip())
            case V1Toggles(agent_id=agent_id):
                return self.store.host.agent(agent_id) is None
        return False


def _same(found: Fact | Reflection | None, wanted: Fact | Reflection) -> bool:
    return (
        found is not None
        and found.home == wanted.home
        and content_hash(found.content) == content_hash(wanted.content)
    )


def verify(
    store: Store,
    plan: V1Plan,
    run: MigrationRun,
    *,
    tell: Callable[[int], None] = lambda items: None,
) -> Verification:
    """Account for each document of the plan. Blocks; ``tell`` is called with the items looked at.

    Raises:
        ConflictError: the run was rolled back.
        StoreError: the database cannot be used.
    """
    if run.state is RunState.ROLLED_BACK:
        raise ConflictError(f"the run {run.id} was rolled back: there is nothing to verify")
    rounds = Rounds(store.migrations.migration_runs())
    forgotten = Forgotten(store.erasure.forgettings())
    seen = array("Q")
    missing: list[Unaccounted] = []
    changed = kept = looked = 0
    for items in batched(plan.items(), _BATCH):
        found = _Found(store, items)
        absent = [item for item in items if item.target is not None and not found.has(item)]
        logged = _find_logged(store, absent, rounds)
        gone = {item.key for item in absent}
        for item in items:
            rank = _rank(item)
            if item.key in gone:
                entry = logged.get(item.key)
                if entry is not None and found.was_changed(item, entry):
                    changed += 1
                elif found.stands_for_itself(item) or forgotten.has(item):
                    kept += 1
                    rank = _LEFT
                else:
                    rank = _MISSING
                    if len(missing) < _NAMED:
                        reason = f"no {item.kind} of it"
                        if entry is not None:
                            reason += " any more, and the log does not say why"
                        missing.append(
                            Unaccounted(source=format_sources(item.sources), reason=reason)
                        )
            _count(seen, item.sources, rank)
        looked += len(items)
        tell(looked)
    by_rank = _furthest(seen)
    return Verification(
        run_id=run.id,
        documents=sum(plan.totals.values()),
        seen=sum(by_rank.values()),
        by_disposition={_NAMES[rank]: n for rank, n in sorted(by_rank.items(), reverse=True)},
        changed=changed,
        kept=kept,
        unaccounted=by_rank.get(_MISSING, 0),
        missing=tuple(missing),
        incomplete=() if run.incomplete_accepted else tuple(plan.incomplete),
    )


def _rank(item: V1Item) -> int:
    return {
        Disposition.MIGRATED: _MIGRATED,
        Disposition.MERGED: _MERGED,
        Disposition.LEFT_BEHIND: _LEFT,
        Disposition.BAD: _BAD,
    }[item.disposition]


def _find_logged(store: Store, items: Iterable[V1Item], rounds: Rounds) -> dict[str, AuditEntry]:
    """Key → the log's last entry on the item, of those that were moved at some time."""
    ids = {
        change_id(item, round): item.key for item in items for round in range(rounds.most(item) + 1)
    }
    entries = store.log.audit_entries(list(ids)) if ids else {}
    return {key: entries[id] for id, key in ids.items() if id in entries}


def _count(seen: array[int], sources: Iterable[V1Ref], rank: int) -> None:
    for ref in sources:
        name = f"{ref.collection}/{ref.id}/{ref.content_hash}".encode("utf-8", "surrogatepass")
        digest = int.from_bytes(blake2b(name, digest_size=8).digest(), "big")
        seen.append((digest >> _BITS << _BITS) | rank)


def _furthest(seen: array[int]) -> dict[int, int]:
    """Rank → number of documents, each document by its greatest rank."""
    import numpy as np

    if not seen:
        return {}
    marks = np.frombuffer(seen, dtype=np.uint64).copy()
    marks.sort()
    documents = marks >> np.uint64(_BITS)
    last = np.append(documents[1:] != documents[:-1], True)
    ranks, counts = np.unique(marks[last] & np.uint64(2**_BITS - 1), return_counts=True)
    return {int(rank): int(count) for rank, count in zip(ranks, counts, strict=True)}
