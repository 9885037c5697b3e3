"""Merge near-duplicate facts, by hand.

The oldest fact keeps its ID and history, and gets the merged text. The other facts are removed
after that, with their content in history. An interruption leaves duplicates, but loses no fact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from edenmem.acceptance.texts import fold
from edenmem.engine.edits import checks
from edenmem.engine.edits.user_merging import join_facts
from edenmem.engine.edits.vectors import TextVectors, with_vectors
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import ConflictError
from edenmem.models.changes import (
    Change,
    ChangeResult,
    ChangeSet,
    RemoveFact,
    merge_reason,
)
from edenmem.models.embeddings import scale_of
from edenmem.models.memory import Fact, content_hash
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store, batched

#: Facts per query for neighbors.
BATCH = 200
#: Maximum number of neighbors per fact; further copies are found by the next run.
NEIGHBORS = 10


class FactGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Near-duplicate facts, oldest first.

    ``scores`` are similarities to the oldest fact, (1 + cosine) / 2; 1 for the same words.
    """

    scope: Scope
    facts: tuple[Fact, ...]
    scores: tuple[float, ...]


def find_groups(
    store: Store,
    scope: Scope,
    *,
    model: str | None,
    floor: float,
) -> Iterator[FactGroup]:
    """Yield the groups of one scope, ordered by their oldest fact.

    Facts are read in batches; only IDs, times and neighbors are kept.

    Args:
        store: The store.
        scope: The scope of all compared facts.
        model: Model of the vectors (None: compare words only).
        floor: Minimum score of near vectors, in [0, 1], see `Scale.fit`.

    Raises:
        EmbeddingModelMismatch: the scope has vectors, but none of ``model``.
    """
    formed: dict[str, datetime] = {}
    scores: dict[str, dict[str, float]] = {}
    words: dict[str, list[str]] = {}
    facts = store.memory.facts(FactFilter(scopes=(scope,)), with_vectors=model is not None)
    for batch in batched(facts, BATCH):
        near = _near(store, scope, batch, model, floor)
        for fact in batch:
            formed[fact.id] = fact.formed_at
            words.setdefault(fold(fact.content), []).append(fact.id)
            for other, score in near.get(fact.id, ()):
                _join(scores, fact.id, other, score)
    order = sorted(formed, key=lambda fact_id: (formed[fact_id], fact_id))
    rank = {fact_id: number for number, fact_id in enumerate(order)}
    for same in words.values():
        first, *others = sorted(same, key=rank.__getitem__)
        for other in others:
            _join(scores, first, other, 1.0)
    for ids in _group_facts(order, rank, scores):
        found = store.memory.facts_by_ids((scope,), list(ids))
        # A fact with a key is the item of another system.
        current = [found[id] for id in ids if id in found and found[id].key is None]
        if len(current) > 1:
            yield FactGroup(
                scope=scope, facts=tuple(current), scores=tuple(ids[fact.id] for fact in current)
            )


def _near(
    store: Store, scope: Scope, facts: Sequence[Fact], model: str | None, floor: float
) -> dict[str, tuple[tuple[str, float], ...]]:
    embedded = [fact for fact in facts if fact.embedding and fact.embedding_model == model]
    if model is None or not embedded:
        return {}
    lists = store.search.semantic_candidates(
        FactFilter(scopes=(scope,)),
        [fact.embedding for fact in embedded if fact.embedding],
        model=model,
        limit=NEIGHBORS + 1,  # each fact finds itself, too
        exact=True,
        floor=scale_of(model).fit(floor),
    )
    return {
        fact.id: tuple((one.fact_id, one.score) for one in found if one.fact_id != fact.id)
        for fact, found in zip(embedded, lists, strict=True)
    }


def _join(scores: dict[str, dict[str, float]], one: str, other: str, score: float) -> None:
    for a, b in ((one, other), (other, one)):  # neighbor lists are not symmetric
        row = scores.setdefault(a, {})
        row[b] = max(score, row.get(b, 0.0))


def _group_facts(
    order: Sequence[str], rank: Mapping[str, int], scores: Mapping[str, Mapping[str, float]]
) -> Iterator[dict[str, float]]:
    """Yield disjoint groups as a map of IDs to scores, the oldest fact first."""
    taken: set[str] = set()
    for seed in order:
        near = scores.get(seed, {})
        members = [other for other in near if other not in taken and other in rank]
        if seed not in taken and members:
            taken.update((seed, *members))
            members.sort(key=rank.__getitem__)
            yield {seed: 1.0} | {other: near[other] for other in members}


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """A planned merge: ``kept`` gets the text ``content``, ``removed`` are removed."""

    scope: Scope
    kept: Fact
    removed: tuple[Fact, ...]
    content: str
    reason: str = ""


class MergeReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a merge. ``removed`` are IDs; ``stayed`` are (ID, reason) of changed facts."""

    merge: Merge
    removed: tuple[str, ...] = ()
    stayed: tuple[tuple[str, str], ...] = ()


def merge_by_hand(facts: Sequence[Fact], content: str, *, reason: str = "") -> Merge:
    """Plan a merge of facts of one scope into ``content``.

    The fact with exactly this text is kept, otherwise the oldest.

    Raises:
        ValueError: there are fewer than two facts, or several scopes.
    """
    if len(facts) < 2 or len({fact.home for fact in facts}) != 1:
        raise ValueError("a merge needs two or more facts of one scope")
    kept = next((fact for fact in facts if fact.content == content), None) or min(
        facts, key=lambda fact: (fact.formed_at, fact.id)
    )
    return Merge(
        scope=kept.home,
        kept=kept,
        removed=tuple(fact for fact in facts if fact.id != kept.id),
        content=content,
        reason=reason,
    )


class FactMerger:
    """Find near-duplicates, and merge them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._settings = runtime.settings
        self._clock = runtime.clock

    def groups(
        self,
        agent_id: str,
        *,
        kinds: Sequence[ScopeKind] = (),
        user_ids: Sequence[str] | None = None,
        floor: float,
    ) -> Iterator[FactGroup]:
        """Yield groups of near-duplicates by scope; see `find_groups`. Blocks.

        Only words are compared without an embedder, or if a scope has no vectors of its model.
        """
        embedder = self._runtime.embedder
        model = embedder.model if embedder is not None else None
        summaries = self._store.memory.scopes(agent_id=agent_id, kinds=kinds, user_ids=user_ids)
        for summary in summaries:
            if summary.facts < 2:
                continue
            scope = summary.scope
            has_vectors = model in self._store.vectors.vector_model_names((scope,))
            yield from find_groups(
                self._store,
                scope,
                model=model if has_vectors else None,
                floor=floor,
            )

    async def merge(self, merge: Merge) -> MergeReport:
        """Apply a merge, after computing the vector of the merged text.

        Raises:
            ConflictError: another writer changed the kept fact first; nothing is removed.
            ProviderError: embedding failed; nothing is changed.
        """
        return await with_vectors(self._runtime, lambda vectors: self._merge(merge, vectors))

    def _merge(self, merge: Merge, vectors: TextVectors) -> MergeReport:
        limit = self._settings.formation.fact_words
        text = checks.text_of(merge.content, what="fact", limit=limit, allow_long=False)
        first = self._first(merge, text, vectors)
        if first:
            for result in self._apply_all(first):
                checks.check_result(result, "fact")
        results = self._apply_all(
            [
                RemoveFact.of(fact, self._clock(), merge_reason(merge.kept.id, merge.reason))
                for fact in merge.removed
            ]
        )
        return MergeReport(
            merge=merge,
            removed=tuple(result.target_id for result in results if result.ok),
            stayed=tuple(
                (result.target_id, result.detail or str(result.status))
                for result in results
                if not result.ok
            ),
        )

    def _first(self, merge: Merge, text: str, vectors: TextVectors) -> list[Change]:
        """Return the changes of the kept fact."""
        kept = merge.kept
        stored = self._store.memory.fact(kept.id)
        if stored is None or stored.version != kept.version:
            raise ConflictError(
                f"another writer changed fact {kept.id} first", hint="search for duplicates again"
            )
        is_new = content_hash(text, kept.key) != kept.hash
        return join_facts(
            kept,
            merge.removed,
            at=self._clock(),
            reason=merge.reason or "merged",
            content=text,
            vector=vectors.of(text) if is_new else None,
        )

    def _apply_all(self, changes: Sequence[Change]) -> Sequence[ChangeResult]:
        changed = ChangeSet(actor=self._runtime.actor, at=self._clock(), changes=tuple(changes))
        return self._store.changes.apply(changed)
