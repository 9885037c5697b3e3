"""Measures of a ranking against facts that a person has labeled as relevant.

Relevance is binary. All three measures are in [0, 1], higher is better, and undefined for a query
without an answer, which means leave out. A ranking names each fact once, best first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence


def recall(ranking: Sequence[str], relevant: Collection[str], *, k: int) -> float:
    """Return the share of the relevant facts in the first ``k``: |relevant ∩ top k| / |relevant|.

    Manning, Raghavan and Schütze, "Introduction to Information Retrieval" (2008), section 8.3.
    Stays below 1 with more than ``k`` relevant facts.

    Raises:
        ValueError: nothing is relevant.
    """
    wanted = _require_relevant(relevant)
    return len(wanted.intersection(ranking[:k])) / len(wanted)


def reciprocal_rank(ranking: Sequence[str], relevant: Collection[str], *, k: int) -> float:
    """Return 1 / rank of the first relevant fact in the first ``k``, ranks from 1; 0 without one.

    The mean over queries is MRR@k: Voorhees, "The TREC-8 Question Answering Track Report" (1999).

    Raises:
        ValueError: nothing is relevant.
    """
    wanted = _require_relevant(relevant)
    for rank, fact_id in enumerate(ranking[:k], 1):
        if fact_id in wanted:
            return 1.0 / rank
    return 0.0


def ndcg(ranking: Sequence[str], relevant: Collection[str], *, k: int) -> float:
    """Return the normalized discounted cumulative gain.

    DCG@k = Σ gain / log2(rank + 1), divided by the DCG of the ideal ranking, which has the relevant
    facts first. A gain is 1 or 0. Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR
    techniques" (2002), with the discount of Burges et al., "Learning to Rank using Gradient
    Descent" (2005).

    Raises:
        ValueError: nothing is relevant.
    """
    wanted = _require_relevant(relevant)
    gained = math.fsum(
        _discount(rank) for rank, fact_id in enumerate(ranking[:k], 1) if fact_id in wanted
    )
    best = math.fsum(_discount(rank) for rank in range(1, min(k, len(wanted)) + 1))
    return gained / best


def _discount(rank: int) -> float:
    return 1.0 / math.log2(rank + 1)


def _require_relevant(relevant: Collection[str]) -> frozenset[str]:
    if not relevant:
        raise ValueError("no relevant facts to measure a ranking by")
    return frozenset(relevant)
