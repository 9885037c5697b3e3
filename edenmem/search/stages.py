"""The optional stages after fusion: recency, diversity, and the order of a reranker."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import msgspec

from edenmem.models.search import SCORE_DECIMALS
from edenmem.search.ranking import Cut, Pool, ScoredFact, before, explain_hit, head, rank_hits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def doubt(pool: Pool, unconfirmed: Collection[str], *, weight: float) -> Pool:
    """Multiply the scores of unconfirmed hits by ``weight``; the other scores stay.

    A pool without such hits has no entry of the stage.
    """
    if weight == 1 or not any(hit.fact_id in unconfirmed for hit in pool.hits):
        return pool
    old, same = before(pool), {hit.fact_id: hit for hit in pool.hits}
    hits = []
    for hit in pool.hits:
        if hit.fact_id in unconfirmed:
            score = weight * hit.score
            hit = msgspec.structs.replace(hit, score=score)
            figures = {"weight": weight, **old[hit.fact_id]}
            hit = explain_hit(hit, "unconfirmed", score=score, threshold=None, **figures)
        hits.append(hit)
    ranked = rank_hits("unconfirmed", hits, pool.cuts)
    kept = (hit if hit.fact_id in unconfirmed else same[hit.fact_id] for hit in ranked.hits)
    return Pool(hits=tuple(kept), cuts=pool.cuts)


def recency(pool: Pool, ages: Mapping[str, float], *, weight: float, days: float) -> Pool:
    """Score by (1 − ``weight``) · score + ``weight`` · exp(−age / ``days``), in [0, 1].

    ``ages`` are in days since a fact was formed or last corrected; a time in the future counts as
    now.
    """
    old = before(pool)
    hits = []
    for hit in pool.hits:
        age = max(0.0, ages[hit.fact_id])
        fresh = math.exp(-age / days)
        score = min(1.0, (1.0 - weight) * hit.score + weight * fresh)
        hit = msgspec.structs.replace(hit, score=score)
        figures = {"age_days": age, "recency": fresh, "weight": weight, **old[hit.fact_id]}
        hits.append(explain_hit(hit, "recency", score=score, threshold=None, **figures))
    return rank_hits("recency", hits, pool.cuts)


#: MMR chooses from this many times ``top_k`` hits; lower ranks are not relevant enough.
POOL_FACTOR = 3


def narrow(pool: Pool, *, top_k: int) -> Pool:
    """Keep the hits that `mmr` chooses from, so that only their vectors are read."""
    why = f"not among the best {POOL_FACTOR} × top_k"
    return head(pool, POOL_FACTOR * top_k, "mmr", lambda rank, hit: why)


def mmr(
    pool: Pool,
    vectors: Mapping[str, bytes],
    *,
    top_k: int,
    trade_off: float,
    zero: float = 0.0,
) -> Pool:
    """Choose ``top_k`` hits, one by one, each by relevance and by its distance from the chosen.

    ``trade_off`` is λ: 1 is relevance alone, 0 diversity alone. A score becomes
    λ · score + (1 − λ) · (1 − redundancy). Redundancy is the highest cosine with a chosen hit,
    scaled from ``zero`` to 1. ``zero`` belongs to the embedding model, as in fusion: in some models
    unrelated facts have cosines of 0.75 and would all count as repetitions. The formula is
    Carbonell and Goldstein's λ · score − (1 − λ) · redundancy, shifted into [0, 1]. Scores never
    rise from choice to choice, so the order by score is the order of choice.

    ``vectors`` are of one model. A fact without a vector has redundancy 0.
    """
    pool = narrow(pool, top_k=top_k)
    chosen, rest = _choose(pool, vectors, top_k=top_k, trade_off=trade_off, zero=zero)
    cuts = tuple(
        Cut(hit, "mmr", f"redundancy {redundancy:.3f} with a result") for hit, redundancy in rest
    )
    return Pool(hits=tuple(chosen), cuts=pool.cuts + cuts)


def _choose(
    pool: Pool, vectors: Mapping[str, bytes], *, top_k: int, trade_off: float, zero: float
) -> tuple[list[ScoredFact], list[tuple[ScoredFact, float]]]:
    import numpy as np

    hits, old = pool.hits, before(pool)
    if not hits:
        return [], []
    matrix = _matrix([vectors.get(hit.fact_id) for hit in hits])
    relevance = np.array([hit.score for hit in hits])
    redundancy = np.zeros(len(hits))
    left = np.ones(len(hits), dtype=bool)
    chosen: list[ScoredFact] = []
    while len(chosen) < min(top_k, len(hits)):
        scores = trade_off * relevance + (1.0 - trade_off) * (1.0 - redundancy)
        # hits are ordered by score and ID; argmax takes the first of equal ones
        best = int(np.argmax(np.where(left, scores, -1.0)))
        left[best] = False
        score = float(scores[best])
        hit = msgspec.structs.replace(hits[best], score=score)
        figures = {"redundancy": float(redundancy[best]), "lambda": trade_off, **old[hit.fact_id]}
        rank = len(chosen) + 1
        chosen.append(explain_hit(hit, "mmr", rank=rank, score=score, threshold=None, **figures))
        cosines = np.round(matrix @ matrix[best], SCORE_DECIMALS)
        redundancy = np.maximum(redundancy, np.clip((cosines - zero) / (1.0 - zero), 0.0, 1.0))
    rest = [(hits[index], float(redundancy[index])) for index in np.flatnonzero(left)]
    return chosen, rest


def _matrix(vectors: list[bytes | None]) -> NDArray[np.float64]:
    """Return unit rows; zeros for a fact without a vector."""
    import numpy as np

    width = next((len(vector) // 4 for vector in vectors if vector), 1)
    matrix = np.zeros((len(vectors), width))
    for row, vector in enumerate(vectors):
        if vector:
            matrix[row] = np.frombuffer(vector, dtype="<f4")
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    matrix /= np.where(norms > 0, norms, 1.0)
    return matrix


def shortlist(pool: Pool, *, depth: int) -> Pool:
    """Keep the best ``depth`` hits for the reranker."""
    total = len(pool.hits)
    return head(
        pool,
        depth,
        "rerank",
        lambda rank, hit: f"rank {rank} of {total}, only the best {depth} are reranked",
    )


def rerank(pool: Pool, scores: Mapping[str, float], *, floor: float | None, model: str) -> Pool:
    """Order the hits by ``scores`` alone, in [0, 1]; cut those below ``floor``.

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
            cuts.append(Cut(hit, "rerank", f"relevance {score:.3f} is below {floor:g}"))
        else:
            hits.append(hit)
    return rank_hits("rerank", hits, (*pool.cuts, *cuts))
