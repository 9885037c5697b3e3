"""The order of a model that reads the query and each fact together."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from edenmem.search.ranking import Cut, Pool, before, explain_hit, rank_hits


def shortlist(pool: Pool, *, depth: int) -> Pool:
    """The best ``depth`` hits: what the model is given to read."""
    total = len(pool.hits)
    late = tuple(
        Cut(
            fact_id=hit.fact_id,
            stage="rerank",
            why=f"rank {rank} of {total}, the best {depth} are read again",
            explain=hit.explain,
        )
        for rank, hit in enumerate(pool.hits[depth:], depth + 1)
    )
    return Pool(hits=pool.hits[:depth], cuts=pool.cuts + late)


def rerank(pool: Pool, scores: Mapping[str, float], *, floor: float | None, model: str) -> Pool:
    """The hits by their ``scores`` alone, in [0, 1]; those below ``floor`` are cut.

    Raises:
        KeyError: a hit has no score.
    """
    old = before(pool)
    hits, cuts = [], []
    for hit in pool.hits:
        score = scores[hit.fact_id]
        figures = {"score": score, "threshold": floor, "model": model, **old[hit.fact_id]}
        hit = explain_hit(msgspec.structs.replace(hit, score=score), "rerank", **figures)
        if floor is not None and score < floor:
            why = f"relevance {score:.3f} is below {floor:g}"
            cuts.append(Cut(fact_id=hit.fact_id, stage="rerank", why=why, explain=hit.explain))
        else:
            hits.append(hit)
    return rank_hits("rerank", hits, (*pool.cuts, *cuts))
