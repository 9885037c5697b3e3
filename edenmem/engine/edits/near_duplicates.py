"""Facts of one scope that say nearly the same, in groups.

Two facts belong together if their words are the same but for case and punctuation, or if their
vectors score at least a floor. A group gathers around its oldest fact: each member is like that
one, so that a chain of small differences never joins what has nothing in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import msgspec

from edenmem.engine.formation.screening import normal
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store, batched

#: Facts whose neighbours are asked for in one round trip.
BATCH = 200
#: Neighbours of one fact that are looked at; of more copies the rest comes in the next run.
NEIGHBOURS = 10


class FactGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that say nearly the same, oldest first.

    ``scores``: how near each is to the oldest, (1 + cosine) / 2, and 1 for the same words.
    """

    scope: Scope
    facts: tuple[Fact, ...]
    scores: tuple[float, ...]


class _Seen(msgspec.Struct, frozen=True):
    """What is kept of a fact while the scope is gone through."""

    formed_at: datetime
    near: tuple[tuple[str, float], ...]


def find_groups(
    store: Store,
    scope: Scope,
    *,
    model: str | None,
    floor: float,
    tell: Callable[[int], None] = lambda seen: None,
) -> Iterator[FactGroup]:
    """The groups of one scope, that of the oldest fact first.

    The texts are read in batches; what is kept of each fact is its id, its time and its
    neighbours.

    Args:
        store: Where the facts are.
        scope: Only facts of exactly this scope are compared.
        model: Of the vectors to compare; None: only words are compared.
        floor: The score from which two vectors are near, in [0, 1].
        tell: Called with the number of facts that were looked at.

    Raises:
        EmbeddingModelMismatch: the scope has vectors, but none of ``model``.
    """
    seen: dict[str, _Seen] = {}
    words: dict[str, list[str]] = {}
    facts = store.facts(FactFilter(scopes=(scope,)), with_vectors=model is not None)
    for batch in batched(facts, BATCH):
        near = _near(store, scope, batch, model, floor)
        for fact in batch:
            seen[fact.id] = _Seen(fact.formed_at, near.get(fact.id, ()))
            words.setdefault(normal(fact.content), []).append(fact.id)
        tell(len(seen))
    for ids in _gathered(seen, [ids for ids in words.values() if len(ids) > 1]):
        found = store.facts_by_ids((scope,), list(ids))
        there = [found[fact_id] for fact_id in ids if fact_id in found]  # the rest is gone by now
        if len(there) > 1:
            yield FactGroup(
                scope=scope, facts=tuple(there), scores=tuple(ids[fact.id] for fact in there)
            )


def _near(
    store: Store, scope: Scope, facts: Sequence[Fact], model: str | None, floor: float
) -> dict[str, tuple[tuple[str, float], ...]]:
    having = [fact for fact in facts if fact.embedding and fact.embedding_model == model]
    if model is None or not having:
        return {}
    lists = store.semantic_candidates(
        FactFilter(scopes=(scope,)),
        [fact.embedding for fact in having if fact.embedding],
        model=model,
        limit=NEIGHBOURS + 1,  # it finds itself too
        exact=True,
        floor=floor,
    )
    return {
        fact.id: tuple((one.fact_id, one.score) for one in found if one.fact_id != fact.id)
        for fact, found in zip(having, lists, strict=True)
    }


def _gathered(
    seen: dict[str, _Seen], same_words: Sequence[Sequence[str]]
) -> Iterator[dict[str, float]]:
    """Groups as id → score, the seed first; each fact is in one group at most."""
    scores: dict[str, dict[str, float]] = {}

    def join(one: str, other: str, score: float) -> None:
        for a, b in ((one, other), (other, one)):  # neither may have the other among its nearest
            row = scores.setdefault(a, {})
            row[b] = max(score, row.get(b, 0.0))

    for fact_id, each in seen.items():
        for other, score in each.near:
            if other in seen:
                join(fact_id, other, score)
    for ids in same_words:
        first = min(ids, key=lambda fact_id: (seen[fact_id].formed_at, fact_id))
        for other in ids:
            if other != first:
                join(first, other, 1.0)
    taken: set[str] = set()
    order = sorted(scores, key=lambda fact_id: (seen[fact_id].formed_at, fact_id))
    place = {fact_id: number for number, fact_id in enumerate(order)}
    for seed in order:
        if seed in taken:
            continue
        members = [other for other in scores[seed] if other not in taken]
        if members:
            taken.update((seed, *members))
            members.sort(key=place.__getitem__)
            yield {seed: 1.0} | {other: scores[seed][other] for other in members}
