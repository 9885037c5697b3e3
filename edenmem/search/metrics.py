"""How good a ranking is, measured against facts that a person has labelled as relevant.

A label is relevant or not (no grades), so the formulas are those for binary relevance. All three
are in [0, 1], higher is better, and are not defined for a query that nothing answers: whoever
averages leaves such a query out.

A ranking names each fact once, best first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence


def recall(ranking: Sequence[str], relevant: Collection[str], *, k: int) -> float:
    """The share of the relevant facts that are among the first ``k``: |relevant ∩ top k| /
    |relevant|.

    Manning, Raghavan and Schütze, "Introduction to Information Retrieval" (2008), section 8.3. It
    cannot reach 1 if there are more than ``k`` of them.

    Raises:
        ValueError: nothing is relevant.
    """
    wanted = _require_relevant(relevant)
    return len(wanted.intersection(ranking[:k])) / len(wanted)


def reciprocal_rank(ranking: Sequence[str], relevant: Collection[str], *, k: int) -> float:
    """1 / rank of the first relevant fact among the first ``k``, ranks from 1; 0 if none is.

    Its mean over queries is MRR@k: Voorhees, "The TREC-8 Question Answering Track Report" (1999).

    Raises:
        ValueError: nothing is relevant.
    """
    wanted = _require_relevant(relevant)
    for rank, fact_id in enumerate(ranking[:k], 1):
        if fact_id in wanted:
            return 1.0 / rank
    return 0.0


def ndcg(ranking: Sequence[str], relevant: Collection[str], *, k: int) -> float:
    """Normalised discounted cumulative gain: DCG@k = Σ gain / log2(rank + 1), divided by that of
    the best ranking there could be, which has the relevant facts first.

    Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques" (2002), with the
    discount of Burges et al., "Learning to Rank using Gradient Descent" (2005), which is the usual
    one today. A gain is 1 or 0.

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
        raise ValueError("a ranking is measured by what is relevant, and nothing is")
    return frozenset(relevant)
