"""Find near-duplicate facts, and merge them by hand.

The oldest fact keeps its ID and history, and gets the merged text. The other facts are removed
after that, with their content in history. An interruption leaves duplicates, but loses no fact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from edenmem.acceptance.texts import fold
from edenmem.engine.edits import checks
from edenmem.engine.edits.user_merging import join_facts
from edenmem.engine.edits.vectors import TextVectors, with_vectors
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import ConflictError
from edenmem.models.changes import Change, ChangeResult, ChangeSet, RemoveFact, merge_reason
from edenmem.models.embeddings import scale_of
from edenmem.models.memory import Fact, content_hash
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import batched

#: Minimum similarity of the vectors of near-duplicates, in [0, 1]; see `Scale.fit`.
SIMILAR = 0.95
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


class MergeReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a merge into the fact ``kept_id``, with the text ``content``.

    ``removed`` are IDs; ``stayed`` are (ID, reason) of changed facts.
    """

    kept_id: str
    content: str
    removed: tuple[str, ...] = ()
    stayed: tuple[tuple[str, str], ...] = ()


class FactMerger:
    """Find near-duplicates, and merge them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._store = runtime.store

    def groups(
        self,
        agent_id: str,
        *,
        kinds: Sequence[ScopeKind] = (),
        user_ids: Sequence[str] | None = None,
    ) -> Iterator[FactGroup]:
        """Yield groups of near-duplicates by scope, ordered by their oldest fact. Blocks.

        Only words are compared without an embedder, or if a scope has no vectors of its model.
        """
        embedder = self._runtime.embedder
        summaries = self._store.memory.scopes(agent_id=agent_id, kinds=kinds, user_ids=user_ids)
        for summary in summaries:
            if summary.facts > 1:
                model = embedder.model if embedder is not None else None
                if model not in self._store.vectors.vector_model_names((summary.scope,)):
                    model = None
                yield from self._groups_of(summary.scope, model)

    def _groups_of(self, scope: Scope, model: str | None) -> Iterator[FactGroup]:
        """Yield the groups of one scope; facts are read in batches, and only IDs are kept."""
        memory = self._store.memory
        formed: dict[str, datetime] = {}
        words = defaultdict[str, list[str]](list)
        near = defaultdict[str, dict[str, float]](dict)
        facts = memory.facts(FactFilter(scopes=(scope,)), with_vectors=model is not None)
        for batch in batched(facts, BATCH):
            for fact in batch:
                formed[fact.id] = fact.formed_at
                words[fold(fact.content)].append(fact.id)
            for fact_id, other, score in self._neighbors(scope, batch, model):
                near[fact_id][other] = max(score, near[fact_id].get(other, 0.0))
                near[other][fact_id] = max(score, near[other].get(fact_id, 0.0))
        by_age = sorted(formed, key=lambda fact_id: (formed[fact_id], fact_id))
        order = {fact_id: number for number, fact_id in enumerate(by_age)}
        for same in words.values():
            first, *others = sorted(same, key=order.__getitem__)
            for other in others:
                near[first][other] = near[other][first] = 1.0
        taken = set[str]()
        for seed in by_age:
            members = [other for other in near[seed] if other not in taken and other in order]
            if seed in taken or not members:
                continue
            ids = [seed, *sorted(members, key=order.__getitem__)]
            taken.update(ids)
            found = memory.facts_by_ids((scope,), ids)
            # A fact with a key is the item of another system.
            current = [found[id] for id in ids if id in found and found[id].key is None]
            scores = near[seed] | {seed: 1.0}
            if len(current) > 1:
                yield FactGroup(
                    scope=scope,
                    facts=tuple(current),
                    scores=tuple(scores[fact.id] for fact in current),
                )

    def _neighbors(
        self, scope: Scope, facts: Sequence[Fact], model: str | None
    ) -> Iterator[tuple[str, str, float]]:
        """Yield the facts near each of these, with the scores."""
        vectors = {
            fact.id: fact.embedding
            for fact in facts
            if fact.embedding and fact.embedding_model == model
        }
        if model is None or not vectors:
            return
        lists = self._store.search.semantic_candidates(
            FactFilter(scopes=(scope,)),
            list(vectors.values()),
            model=model,
            limit=NEIGHBORS + 1,  # each fact finds itself, too
            exact=True,
            floor=scale_of(model).fit(SIMILAR),
        )
        for fact_id, found in zip(vectors, lists, strict=True):
            yield from (
                (fact_id, one.fact_id, one.score) for one in found if one.fact_id != fact_id
            )

    async def merge(self, facts: Sequence[Fact], content: str) -> MergeReport:
        """Merge facts of one scope into ``content``.

        The fact with exactly this text is kept, otherwise the oldest.

        Raises:
            ValueError: there are fewer than two facts, or several scopes.
            ConflictError: another writer changed the kept fact first; nothing is removed.
            ProviderError: embedding failed; nothing is changed.
        """
        if len(facts) < 2 or len({fact.home for fact in facts}) != 1:
            raise ValueError("a merge needs two or more facts of one scope")
        same = (fact for fact in facts if fact.content == content)
        kept = next(same, None) or min(facts, key=lambda fact: (fact.formed_at, fact.id))
        others = [fact for fact in facts if fact.id != kept.id]

        def work(vectors: TextVectors) -> MergeReport:
            return self._merge(kept, others, content, vectors)

        return await with_vectors(self._runtime, work)

    def _merge(
        self, kept: Fact, others: Sequence[Fact], content: str, vectors: TextVectors
    ) -> MergeReport:
        limit, at = self._runtime.settings.formation.fact_words, self._runtime.clock()
        text = checks.text_of(content, what="fact", limit=limit, allow_long=False)
        stored = self._store.memory.fact(kept.id)
        if stored is None or stored.version != kept.version:
            raise ConflictError(
                f"another writer changed fact {kept.id} first", hint="search for duplicates again"
            )
        vector = None if content_hash(text, kept.key) == kept.hash else vectors.of(text)
        joined = join_facts(
            kept, others, at=at, reason="merged by hand", content=text, vector=vector
        )
        for result in self._apply(joined) if joined else ():
            checks.check_result(result, "fact")
        reason = merge_reason(kept.id)
        results = self._apply([RemoveFact.of(fact, at, reason) for fact in others])
        return MergeReport(
            kept_id=kept.id,
            content=content,
            removed=tuple(result.target_id for result in results if result.ok),
            stayed=tuple(
                (result.target_id, result.detail or str(result.status))
                for result in results
                if not result.ok
            ),
        )

    def _apply(self, changes: Sequence[Change]) -> Sequence[ChangeResult]:
        actor, at = self._runtime.actor, self._runtime.clock()
        return self._store.changes.apply(ChangeSet(actor=actor, at=at, changes=tuple(changes)))
