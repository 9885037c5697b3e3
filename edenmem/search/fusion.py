"""Fusion of the lists of one query into one ranking.

There are two methods, both with scores in [0, 1] for any number of hits:

- `convex`: a weighted sum of the scores, each scaled from its zero to the best score.
- `rrf`: reciprocal rank fusion, by ranks alone.

`convex` is the default because it keeps the distances between scores and has one weight, which can
be tuned on few examples: Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid
Retrieval" (2022), https://arxiv.org/abs/2210.11934. Its zeros are theoretical minima (section 4.1),
not the lowest score of a list, which depends on the length of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from edenmem.models.search import Candidate, ListName
from edenmem.search.ranking import Cut, Explanation, Pool, ScoredFact, by_score


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The list of one store search, cut to the depth of fusion.

    ``floor`` is compared with the raw scores (semantic: (1 + cosine) / 2, not the cosine); None is
    no floor. ``zero`` is the raw score that is scaled to 0; None is the lowest score. ``completed``
    are scores of facts that the list did not find. ``reach`` is the raw score that is scaled to 1,
    unless the best score is higher.
    """

    name: ListName
    candidates: tuple[Candidate, ...]
    floor: float | None = None
    zero: float | None = None
    completed: Mapping[str, float] = msgspec.field(default_factory=dict)
    reach: float = 0.0


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The place of a fact in a list: rank from 0, raw score, and the score scaled to [0, 1].

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
#: The weight of each list; the sum is 1.
Weights = Mapping[ListName, float]
#: The part of each list in the score of each fact.
Parts = Mapping[ListName, Mapping[str, float]]


def semantic_list(
    candidates: Sequence[Candidate],
    *,
    depth: int,
    floor: float | None = None,
    zero: float | None = None,
    completed: Mapping[str, float] = {},
) -> Listing:
    """Keep the best ``depth`` by meaning. ``zero`` belongs to the embedding model."""
    return Listing(
        name="semantic",
        candidates=tuple(by_score(candidates)[:depth]),
        floor=floor,
        zero=zero,
        completed=completed,
    )


def text_list(
    candidates: Sequence[Candidate],
    *,
    name: ListName = "text",
    depth: int,
    floor: float | None = None,
    completed: Mapping[str, float] = {},
    reach: float = 0.0,
) -> Listing:
    """Keep the best ``depth`` by words; the zero is 0, which BM25 gives to a text without a match.

    ``reach`` is the BM25 score of a text with every word of the query. Without ``reach`` the best
    fact would count as a whole match, even if it shares only an article with the query.
    """
    return Listing(
        name=name,
        candidates=tuple(by_score(candidates)[:depth]),
        floor=floor,
        zero=0.0,
        completed=completed,
        reach=reach,
    )


def missing(lists: Mapping[ListName, Sequence[Candidate]]) -> dict[ListName, list[str]]:
    """List the facts that each list lacks and another list found."""
    found = {name: {one.fact_id: None for one in of} for name, of in lists.items()}
    union = dict.fromkeys(fact_id for of in found.values() for fact_id in of)
    return {name: [each for each in union if each not in of] for name, of in found.items()}


def convex(*listings: Listing, weights: Weights) -> Pool:
    """Add up the scores of the lists, each normalized to [0, 1] and times its weight.

    A fact has the scores of all lists, no matter which list found it; a score that was neither
    found nor completed is 0. A floor decides which facts a list brings in and does not change
    scores: a fact found by its words keeps a semantic score below the floor. If a list is empty,
    no score exceeds the weights of the others: a match in one way only is less evidence.
    """
    entries = entries_of(*listings)
    parts = convex_parts(entries, weights)
    figures = {f"{one.name}_weight": weights[one.name] for one in listings if one.name != "text"}

    def explain(fact_id: str) -> dict[str, Any]:
        return {"parts": _of_fact(parts, fact_id), **figures}

    return _pool("convex", listings, entries, sum_parts(parts), explain)


def rrf(semantic: Listing, text: Listing, *, k: int, floor: float = 0.0) -> Pool:
    """Score by Σ 1 / (k + rank) over the lists, ranks from 0, divided by the highest possible sum.

    The raw sum is at most 2 / k (0.033 for k = 60). It is kept in ``explain`` as ``raw`` and
    compared with ``floor``, but never shown as a relevance. A floor of 0.015 cuts every fact that
    only one list found, from its 8th place on, so the default is no floor.
    """
    listings = (semantic, text)
    entries = entries_of(*listings)
    floors = {listing.name: listing.floor for listing in listings}
    parts = rrf_parts(entries, k, floors)
    raws = sum_parts(parts)

    def explain(fact_id: str) -> dict[str, Any]:
        figures = {"parts": _of_fact(parts, fact_id), "k": k, "raw": raws[fact_id]}
        return {**figures, "threshold": floor or None}

    pool = _pool("rrf", listings, entries, rrf_scores(raws, k), explain)
    hits, cuts = [], []
    for hit in pool.hits:
        raw = raws[hit.fact_id]
        if raw >= floor:
            hits.append(hit)
            continue
        why = f"raw RRF {raw:.4f} is below {floor:g}"
        cuts.append(Cut(hit=hit, stage="fusion", why=why))
    return Pool(hits=tuple(hits), cuts=(*pool.cuts, *cuts))


def single(listing: Listing) -> Pool:
    """Rank one list alone: semantic scores unchanged, text scores divided by the best."""
    entries = entries_of(listing)
    scores = single_scores(entries)
    return _pool(listing.name, (listing,), entries, scores, lambda _: {})


def entries_of(*listings: Listing) -> Entries:
    """Return the entries of each list, found and completed."""
    return {listing.name: _entries(listing) for listing in listings}


def convex_parts(entries: Entries, weights: Weights) -> Parts:
    """Return the part of each list in the score of each candidate: weight times share."""
    return {
        name: {fact_id: weights[name] * entry.share for fact_id, entry in of.items()}
        for name, of in entries.items()
    }


def rrf_parts(entries: Entries, k: int, floors: Floors) -> Parts:
    """Return 1 / (k + rank) of each candidate in each list whose floor it passes."""
    return {
        name: {
            fact_id: 1.0 / (k + entry.rank)
            for fact_id, entry in of.items()
            if entry.rank is not None and entry.passes(floors.get(name))
        }
        for name, of in entries.items()
    }


def sum_parts(parts: Parts) -> dict[str, float]:
    """Add up the parts of each candidate."""
    sums: dict[str, float] = {}
    for of in parts.values():
        for fact_id, part in of.items():
            sums[fact_id] = sums.get(fact_id, 0.0) + part
    return sums


def rrf_scores(sums: Mapping[str, float], k: int) -> dict[str, float]:
    """Divide each sum by the highest possible sum of two lists."""
    return {fact_id: min(1.0, raw / (2 / k)) for fact_id, raw in sums.items()}


def single_scores(entries: Entries) -> dict[str, float]:
    """Score the candidates of one list: semantic scores unchanged, text scores scaled."""
    ((name, of),) = entries.items()
    if name == "semantic":
        return {fact_id: min(1.0, max(0.0, entry.score)) for fact_id, entry in of.items()}
    return {fact_id: entry.share for fact_id, entry in of.items()}


def candidates_of(entries: Entries) -> list[str]:
    """List the facts that any list found, each once, in list order."""
    return list(
        dict.fromkeys(
            fact_id
            for of in entries.values()
            for fact_id, entry in of.items()
            if entry.rank is not None
        )
    )


def passing(entries: Entries, floors: Floors) -> set[str]:
    """Return the facts that pass the floor of at least one list."""
    return {
        fact_id
        for name, of in entries.items()
        for fact_id, entry in of.items()
        if entry.passes(floors.get(name))
    }


def _of_fact(parts: Parts, fact_id: str) -> dict[ListName, float]:
    return {name: of[fact_id] for name, of in parts.items() if fact_id in of}


def _entries(listing: Listing) -> dict[str, Entry]:
    """Scale the scores of a list, found and completed."""
    scores = {candidate.fact_id: candidate.score for candidate in listing.candidates}
    found = len(scores)
    scores |= {id: score for id, score in listing.completed.items() if id not in scores}
    if not scores:
        return {}
    best = max(*scores.values(), listing.reach)
    zero = min(scores.values()) if listing.zero is None else listing.zero
    span = best - zero

    def share(score: float) -> float:
        if span > 0:
            return max(0.0, (score - zero) / span)
        return 1.0 if listing.zero is None else 0.0  # all equal, or all at zero

    return {
        fact_id: Entry(place if place < found else None, score, share(score))
        for place, (fact_id, score) in enumerate(scores.items())
    }


def _pool(
    recipe: str,
    listings: Sequence[Listing],
    entries: Entries,
    scores: Mapping[str, float],
    explain_score: Callable[[str], dict[str, Any]],
) -> Pool:
    """Rank the candidates that pass a floor, with an explanation of each score."""
    kept = passing(entries, {listing.name: listing.floor for listing in listings})

    def places(fact_id: str) -> list[tuple[Listing, Entry]]:
        of_fact = ((listing, entries[listing.name].get(fact_id)) for listing in listings)
        return [(listing, entry) for listing, entry in of_fact if entry is not None]

    def explain_lists(fact_id: str) -> Explanation:
        return {listing.name: _explain(entry, listing.floor) for listing, entry in places(fact_id)}

    def explain(fact_id: str, rank: int) -> Explanation:
        score = scores[fact_id]
        figures = {"rank": rank, "recipe": recipe, "score": score, "threshold": None}
        return {**explain_lists(fact_id), "fusion": figures | explain_score(fact_id)}

    hits = (
        ScoredFact(fact_id=fact_id, score=scores[fact_id], fused=partial(explain, fact_id, rank))
        for rank, fact_id in enumerate(sorted(kept, key=lambda id: (-scores[id], id)), 1)
    )
    below = (
        ScoredFact(fact_id=fact_id, score=0.0, fused=partial(explain_lists, fact_id))
        for fact_id in candidates_of(entries)
        if fact_id not in kept
    )
    cuts = (_below_floor(hit, places(hit.fact_id)) for hit in below)
    return Pool(hits=tuple(hits), cuts=tuple(cuts))


def _explain(entry: Entry, floor: float | None) -> dict[str, Any]:
    figures = {
        "rank": None if entry.rank is None else entry.rank + 1,
        "score": entry.score,
        "threshold": floor,
        "passed": entry.passes(floor),
        "normalized": entry.share,
    }
    if entry.rank is None:
        figures["completed"] = True
    return figures


def _below_floor(hit: ScoredFact, places: Sequence[tuple[Listing, Entry]]) -> Cut:
    below = {
        listing.name: f"{listing.name} score {entry.score:.3f} is below the threshold"
        f" {listing.floor:g}"
        for listing, entry in places
        if entry.rank is not None
    }
    return Cut(hit=hit, stage=next(iter(below)), why="; ".join(below.values()))
