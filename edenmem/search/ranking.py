"""The ranked pool that the stages of a search pass on, with the facts that were cut.

Every stage takes a `Pool` and returns a `Pool`, with an entry under its own name in the ``explain``
of each hit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

#: The figures of each stage: ``rank`` (from 1), ``score``, ``threshold`` (None: no threshold) and
#: others.
Explanation = dict[str, dict[str, Any]]


class ScoredFact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A fact with the score of the last stage that it passed, in [0, 1].

    ``fused`` returns the figures of the lists and of fusion for an ID, on demand: most facts are
    cut, and their figures are rarely asked for. ``later`` are the figures of the stages after
    fusion.
    """

    fact_id: str
    score: float
    fused: Callable[[str], Explanation] = lambda fact_id: {}
    later: Mapping[str, dict[str, Any]] = MappingProxyType({})

    @property
    def explain(self) -> Explanation:
        """Return the figures of all stages."""
        return {**self.fused(self.fact_id), **self.later}


class Cut(msgspec.Struct, frozen=True, gc=False):
    """A fact that was dropped by ``stage``, and why: a text, or a function of rank and hit."""

    hit: ScoredFact
    stage: str
    reason: str | Callable[[int, ScoredFact], str]
    rank: int = 0

    @property
    def fact_id(self) -> str:
        """Return the ID of the fact."""
        return self.hit.fact_id

    @property
    def why(self) -> str:
        """Return why the fact was dropped."""
        return self.reason if isinstance(self.reason, str) else self.reason(self.rank, self.hit)


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Hits, best first; and all cuts so far."""

    hits: tuple[ScoredFact, ...] = ()
    cuts: tuple[Cut, ...] = ()


def rank_hits(stage: str, hits: Iterable[ScoredFact], cuts: Sequence[Cut] = ()) -> Pool:
    """Order the hits by their new scores, equal scores as before, and note their ranks."""
    ordered = sorted(hits, key=lambda hit: -hit.score)
    placed = tuple(
        msgspec.structs.replace(
            hit, later={**hit.later, stage: {"rank": rank, **hit.later.get(stage, {})}}
        )
        for rank, hit in enumerate(ordered, 1)
    )
    return Pool(hits=placed, cuts=tuple(cuts))


def explain_hit(hit: ScoredFact, stage: str, **figures: Any) -> ScoredFact:
    """Add figures to the entry of a stage, before the figures that it has."""
    entry = {**figures, **hit.later.get(stage, {}), **figures}
    return msgspec.structs.replace(hit, later={**hit.later, stage: entry})


def before(pool: Pool) -> dict[str, dict[str, Any]]:
    """Return rank and score of each hit before a stage, as figures for ``explain``."""
    return {
        hit.fact_id: {"rank_before": rank, "score_before": hit.score}
        for rank, hit in enumerate(pool.hits, 1)
    }


def top(pool: Pool, *, top_k: int) -> Pool:
    """Keep the first ``top_k`` hits and cut the rest."""
    total = len(pool.hits)

    def why(rank: int, hit: ScoredFact) -> str:
        return f"rank {rank} of {total}, top_k is {top_k}{_describe_demotion(hit, top_k)}"

    return head(pool, top_k, "top_k", why)


def head(pool: Pool, size: int, stage: str, why: Callable[[int, ScoredFact], str]) -> Pool:
    """Keep the first hits; cut the rest, each for a reason that is given its rank."""
    late = (Cut(hit, stage, why, rank) for rank, hit in enumerate(pool.hits[size:], size + 1))
    return Pool(hits=pool.hits[:size], cuts=(*pool.cuts, *late))


def _describe_demotion(hit: ScoredFact, top_k: int) -> str:
    """Name the stages that moved a hit out of the first ``top_k``."""
    moves = [
        f"; {stage} put it from rank {figures['rank_before']} to {figures['rank']}"
        for stage, figures in hit.later.items()
        if figures.get("rank_before", top_k + 1) <= top_k < figures["rank"]
    ]
    return "".join(moves)


def keep(pool: Pool, fact_ids: Iterable[str], *, stage: str, why: str) -> Pool:
    """Keep the hits among ``fact_ids``; cut the others, for the given reason."""
    kept = frozenset(fact_ids)
    gone = tuple(Cut(hit, stage, why) for hit in pool.hits if hit.fact_id not in kept)
    hits = tuple(hit for hit in pool.hits if hit.fact_id in kept)
    return Pool(hits=hits, cuts=pool.cuts + gone)


def join(pools: Sequence[Pool]) -> Pool:
    """Join the results of several queries: each fact once, with its best score.

    Each pool keeps its own ``top_k``, as on the platform, so the result may be as long as all pools
    together. A fact that one query cut and another found is not cut. With several pools,
    ``explain["query"]`` names the best pool and all pools that found the fact, by number from 1;
    the other entries of ``explain`` are those of the best pool.
    """
    if len(pools) == 1:
        return pools[0]
    best: dict[str, tuple[int, ScoredFact]] = {}
    found_by: dict[str, list[int]] = {}
    for number, pool in enumerate(pools, 1):
        for hit in pool.hits:
            found_by.setdefault(hit.fact_id, []).append(number)
            if hit.fact_id not in best or hit.score > best[hit.fact_id][1].score:
                best[hit.fact_id] = (number, hit)
    cuts: dict[str, Cut] = {}
    for cut in (cut for pool in pools for cut in pool.cuts):
        if cut.fact_id not in best:
            cuts.setdefault(cut.fact_id, cut)
    hits = (
        explain_hit(hit, "query", best=number, found_by=found_by[fact_id], score=hit.score)
        for fact_id, (number, hit) in best.items()
    )
    return rank_hits("query", hits, tuple(cuts.values()))
