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

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from edenmem.models.embedding_scale import Scale
from edenmem.models.search import ListName, Lists, ListScores

#: The score of a vector without similarity, (1 + 0) / 2.
_NO_SIMILARITY = 0.5


class Entry(NamedTuple):
    """The place of a fact in a list: rank from 0, raw score, and the share in [0, 1].

    A rank of None means that the score was completed; the list did not find the fact.
    """

    rank: int | None
    score: float
    share: float

    def passes(self, floor: float | None) -> bool:
        """Return whether the list found the fact and its score reaches the floor."""
        return self.rank is not None and (floor is None or self.score >= floor)


#: The entries of each list by fact, found or completed.
Entries = Mapping[ListName, Mapping[str, Entry]]
Floors = Mapping[ListName, float | None]
Weights = Mapping[ListName, float]
#: The scores of the candidates by fact.
Scores = dict[str, float]


def enter(lists: Lists, names: Sequence[ListName], *, depth: int, scale: Scale) -> Entries:
    """Return the entries of the facts in the first ``depth`` of any of the named lists.

    A fact has an entry in every list, no matter which list found it: a text without a word of the
    query has the score 0. Only a fact without a vector has no semantic entry.
    """
    candidates: dict[str, None] = {}
    for name in names:
        candidates |= dict.fromkeys(islice(lists[name].found, depth))
    return {
        name: _semantic(lists[name], candidates, depth, scale)
        if name == "semantic"
        else _words(lists[name], candidates, depth)
        for name in names
    }


def _semantic(
    scores: ListScores, candidates: Mapping[str, None], depth: int, scale: Scale
) -> dict[str, Entry]:
    known = _known(scores, candidates, depth)
    lowest = highest = _NO_SIMILARITY
    if scale.zero is None and known:
        lowest, highest = min(known.values()), max(known.values())
    if lowest == highest:
        lowest = _NO_SIMILARITY
    return _ranked(scores, known, depth, {id: scale.share(s, lowest) for id, s in known.items()})


def _words(scores: ListScores, candidates: Mapping[str, None], depth: int) -> dict[str, Entry]:
    known = dict.fromkeys(candidates, 0.0) | _known(scores, candidates, depth)
    whole = scores.whole or max(scores.found.values(), default=0.0) or 1.0
    shares = {
        id: min(1.0, score / whole) * scores.coverage.get(id, 1.0) for id, score in known.items()
    }
    return _ranked(scores, known, depth, shares)


def _known(scores: ListScores, candidates: Mapping[str, None], depth: int) -> Scores:
    every = {**scores.completed, **scores.found}
    return {fact_id: every[fact_id] for fact_id in candidates if fact_id in every}


def _ranked(scores: ListScores, known: Scores, depth: int, shares: Scores) -> dict[str, Entry]:
    places = {fact_id: place for place, fact_id in enumerate(islice(scores.found, depth))}
    return {id: Entry(places.get(id), score, shares[id]) for id, score in known.items()}


def weigh(entries: Entries, weights: Weights) -> Scores:
    """Add up the shares of each candidate, times the weights of the lists."""
    sums: Scores = {}
    for name, of in entries.items():
        weight = weights[name]
        for fact_id, entry in of.items():
            sums[fact_id] = sums.get(fact_id, 0.0) + weight * entry.share
    return sums


def rrf(entries: Entries, k: int, floors: Floors) -> Scores:
    """Score by Σ 1 / (k + rank) over the lists whose floor a fact passes, ranks from 0.

    The sum is divided by the highest possible sum of two lists, 2 / k.
    """
    sums: Scores = {}
    for name, of in entries.items():
        for fact_id, entry in of.items():
            if entry.rank is not None and entry.passes(floors.get(name)):
                sums[fact_id] = sums.get(fact_id, 0.0) + k / (2 * (k + entry.rank))
    return {fact_id: min(1.0, score) for fact_id, score in sums.items()}


def passing(entries: Entries, floors: Floors) -> set[str]:
    """Return the facts that pass the floor of at least one list."""
    return {
        fact_id
        for name, of in entries.items()
        for fact_id, entry in of.items()
        if entry.passes(floors.get(name))
    }


def best_first(scores: Scores) -> list[str]:
    """Order facts by score, equal scores as in the lists."""
    return sorted(scores, key=scores.__getitem__, reverse=True)
