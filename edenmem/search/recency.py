"""A preference for what was learned, or corrected, lately."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from edenmem.search.ranking import Pool, before, explain_hit, rank_hits


def recency(pool: Pool, ages: Mapping[str, float], *, weight: float, days: float) -> Pool:
    """(1 − ``weight``) · score + ``weight`` · exp(−age / ``days``), in [0, 1].

    ``ages`` are in days since a fact was made or last corrected; one in the future counts as now.
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
