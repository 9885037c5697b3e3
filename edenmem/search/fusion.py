"""Fusion of the lists of one query into one ranking.

There are two methods, both with scores in [0, 1] for any number of hits:

- a weighted sum of shares, each on an absolute scale: semantic from the model's zero to its one,
  words compared with a text that has every word of the query;
- `rrf`: reciprocal rank fusion, by ranks alone.

The weighted sum keeps the distances between scores and has one weight, which can be tuned on few
examples: Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval" (2022),
https://arxiv.org/abs/2210.11934. Nothing is scaled by the best hit, so a score means the same in
every search, and a minimum can say that nothing is relevant.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from edenmem.models.embeddings import Scale
from edenmem.models.search import ListName, Lists, ListScores

#: Scores by fact.
Scores = dict[str, float]

#: The score of a vector without similarity, (1 + 0) / 2.
_NO_SIMILARITY = 0.5


class Entries(NamedTuple):
    """One list for the candidates of all lists.

    ``places`` are the ranks from 0 of the facts that the list found, ``scores`` the raw scores,
    found or completed, and ``shares`` these on the scale of [0, 1].
    """

    places: Mapping[str, int]
    scores: Scores
    shares: Scores

    def passing(self, floor: float | None) -> Collection[str]:
        """Return the facts that the list found with a score that reaches the floor."""
        if floor is None:
            return self.places.keys()
        return {fact_id for fact_id in self.places if self.scores[fact_id] >= floor}


#: The entries by list.
Entered = Mapping[ListName, Entries]
Floors = Mapping[ListName, float | None]
Weights = Mapping[ListName, float]


def enter(lists: Lists, names: Sequence[ListName], *, depth: int, scale: Scale) -> Entered:
    """Return the entries of the facts in the first ``depth`` of any of the named lists.

    A fact has an entry in every list, no matter which list found it: a text without a word of the
    query has the score 0. Only a fact without a vector has no semantic entry.
    """
    places = {name: _places(lists[name].found, depth) for name in names}
    candidates = dict.fromkeys(fact_id for of in places.values() for fact_id in of)
    entered: dict[ListName, Entries] = {}
    for name in names:
        every = {**lists[name].completed, **lists[name].found}
        if name == "semantic":
            known = {fact_id: every[fact_id] for fact_id in candidates if fact_id in every}
            shares = _semantic_shares(known, scale)
        else:
            known = {fact_id: every.get(fact_id, 0.0) for fact_id in candidates}
            shares = _word_shares(known, lists[name])
        entered[name] = Entries(places[name], known, shares)
    return entered


def _places(found: Mapping[str, float], depth: int) -> dict[str, int]:
    return {fact_id: place for place, fact_id in enumerate(islice(found, depth))}


def _semantic_shares(known: Scores, scale: Scale) -> Scores:
    lowest = highest = _NO_SIMILARITY
    if scale.zero is None and known:
        lowest, highest = min(known.values()), max(known.values())
    if lowest == highest:
        lowest = _NO_SIMILARITY
    return scale.shares(known, lowest)


def _word_shares(known: Scores, scores: ListScores) -> Scores:
    whole = scores.whole or max(scores.found.values(), default=0.0) or 1.0
    shares = {id: score / whole if score < whole else 1.0 for id, score in known.items()}
    if scores.coverage:
        shares = {id: share * scores.coverage.get(id, 0.0) for id, share in shares.items()}
    return shares


def weigh(entered: Entered, weights: Weights) -> Scores:
    """Add up the shares of each candidate, times the weights of the lists; at most 1."""
    sums: Scores = {}
    for name, of in entered.items():
        weight = weights[name]
        for fact_id, share in of.shares.items():
            sums[fact_id] = sums.get(fact_id, 0.0) + weight * share
    return {fact_id: score if score < 1.0 else 1.0 for fact_id, score in sums.items()}


def rrf(entered: Entered, k: int, floors: Floors) -> Scores:
    """Score by Σ 1 / (k + rank) over the lists whose floor a fact passes, ranks from 0.

    The sum is divided by the highest possible sum of two lists, 2 / k.
    """
    sums: Scores = {}
    for name, of in entered.items():
        admitted = of.passing(floors.get(name))
        for fact_id, place in of.places.items():
            part = k / (2 * (k + place)) if fact_id in admitted else 0.0
            sums[fact_id] = min(1.0, sums.get(fact_id, 0.0) + part)
    return sums


def best_first(scores: Scores) -> list[str]:
    """Order facts by score, equal scores as in the lists."""
    return sorted(scores, key=scores.__getitem__, reverse=True)
