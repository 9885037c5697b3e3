"""What the stages of a search hand to each other: a ranked pool, and what was cut out of it.

Every stage takes a `Pool` and gives back a `Pool`, with an entry under its own name in the
``explain`` of each hit, so that a stage more is one function more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from edenmem.models.search import Candidate


class ScoredFact(msgspec.Struct, frozen=True, kw_only=True):
    """A fact with the score of the last stage that it came through, in [0, 1].

    ``explain`` maps each stage to what it said: ``rank`` (from 1), ``score``, ``threshold`` (None:
    there was none) and the stage's own figures.
    """

    fact_id: str
    score: float
    explain: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that did not come through ``stage``, and why; ``explain`` as of `ScoredFact`."""

    fact_id: str
    stage: str
    why: str
    explain: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Hits, best first, equal scores by id; and all that was cut so far."""

    hits: tuple[ScoredFact, ...] = ()
    cuts: tuple[Cut, ...] = ()


def rank_hits(stage: str, hits: Iterable[ScoredFact], cuts: Sequence[Cut] = ()) -> Pool:
    """The hits in order of their new scores, with the rank that each has in ``stage``."""
    ordered = sorted(hits, key=lambda hit: (-hit.score, hit.fact_id))
    placed = tuple(
        ScoredFact(
            fact_id=hit.fact_id,
            score=hit.score,
            explain={**hit.explain, stage: {"rank": rank, **hit.explain.get(stage, {})}},
        )
        for rank, hit in enumerate(ordered, 1)
    )
    return Pool(hits=placed, cuts=tuple(cuts))


def explain_hit(hit: ScoredFact, stage: str, **figures: Any) -> ScoredFact:
    """``hit`` with these figures under the stage's name, ahead of those it has there."""
    entry = {**figures, **hit.explain.get(stage, {}), **figures}
    return msgspec.structs.replace(hit, explain={**hit.explain, stage: entry})


def before(pool: Pool) -> dict[str, dict[str, Any]]:
    """Where each hit stands ahead of a stage, as figures for that stage's entry in ``explain``."""
    return {
        hit.fact_id: {"rank_before": rank, "score_before": hit.score}
        for rank, hit in enumerate(pool.hits, 1)
    }


def by_score(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Candidates best first, equal scores by id, each fact once."""
    ordered = sorted(candidates, key=lambda candidate: (-candidate.score, candidate.fact_id))
    best: dict[str, Candidate] = {}
    for candidate in ordered:
        best.setdefault(candidate.fact_id, candidate)
    return list(best.values())


def top(pool: Pool, *, top_k: int) -> Pool:
    """The first ``top_k``; what comes after them is cut."""
    total = len(pool.hits)
    late = tuple(
        Cut(
            fact_id=hit.fact_id,
            stage="top_k",
            why=f"rank {rank} of {total}, top_k is {top_k}{_describe_demotion(hit, top_k)}",
            explain=hit.explain,
        )
        for rank, hit in enumerate(pool.hits[top_k:], top_k + 1)
    )
    return Pool(hits=pool.hits[:top_k], cuts=pool.cuts + late)


def _describe_demotion(hit: ScoredFact, top_k: int) -> str:
    """The stages that put a hit down from among the first ``top_k``."""
    moves = [
        f"; {stage} put it from rank {figures['rank_before']} to {figures['rank']}"
        for stage, figures in hit.explain.items()
        if figures.get("rank_before", top_k + 1) <= top_k < figures["rank"]
    ]
    return "".join(moves)


def keep(pool: Pool, fact_ids: Iterable[str], *, stage: str, why: str) -> Pool:
    """Only the hits among ``fact_ids``; the others are cut for the reason given."""
    kept = frozenset(fact_ids)
    gone = tuple(
        Cut(fact_id=hit.fact_id, stage=stage, why=why, explain=hit.explain)
        for hit in pool.hits
        if hit.fact_id not in kept
    )
    hits = tuple(hit for hit in pool.hits if hit.fact_id in kept)
    return Pool(hits=hits, cuts=pool.cuts + gone)


def join(pools: Sequence[Pool]) -> Pool:
    """The results of several queries as one: each fact once, with its best score.

    Each pool keeps its own ``top_k``, as the platform's agents have it, so the result may be as
    long as all of them together. A fact that one query cut and another one found is not cut.
    With several pools, ``explain["query"]`` names the best one and all that found the fact, by
    number from 1; what the stages say in ``explain`` is of the best one.
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
