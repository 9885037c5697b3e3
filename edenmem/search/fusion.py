"""From the lists of a semantic and a text search to one.

Two ways to fuse, both in [0, 1], whatever the number of hits:

- `convex`: a weighted sum of the two scores, each min-max normalised over the union of the lists.
- `rrf`: reciprocal rank fusion, which looks at ranks alone.

See Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval" (2022),
https://arxiv.org/abs/2210.11934, for why the first is the default: it keeps how far apart the
scores are, and has one weight that can be tuned on few examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from edenmem.models.search import Candidate
from edenmem.search.ranking import Cut, Pool, ScoredFact, by_score, rank_hits

ListName = Literal["semantic", "text"]


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """One list as a store gave it, cut to the depth that fusion looks at.

    ``floor`` is compared with the list's own scores (semantic: (1 + cosine) / 2, not the cosine);
    None is no floor. ``zero`` is the score that is worth nothing, at most that of a fact which
    the list does not have; None is the lowest score of the list.
    """

    name: ListName
    candidates: tuple[Candidate, ...]
    floor: float | None = None
    zero: float | None = None


class _Entry(msgspec.Struct, frozen=True):
    """A candidate's place in a list: rank from 0, raw score, share of the way from zero to top."""

    rank: int
    score: float
    normalised: float
    passed: bool


def semantic_list(
    candidates: Sequence[Candidate], *, depth: int, floor: float | None = None
) -> Listing:
    """The semantic list; its zero is its lowest score, below the floor or not.

    The floor decides who is in the list, not how the scores are stretched: otherwise two near
    equal hits that alone come through it would be 1 and 0.
    """
    return Listing(name="semantic", candidates=tuple(by_score(candidates)[:depth]), floor=floor)


def text_list(
    candidates: Sequence[Candidate], *, depth: int, floor: float | None = None
) -> Listing:
    """The text list; its zero is 0, what BM25 gives to a text with none of the words.

    Only if the list was cut at ``depth``, so that more facts match than it has, it is the lowest
    score of the list.
    """
    ordered = by_score(candidates)
    zero = 0.0 if len(ordered) < depth else None
    return Listing(name="text", candidates=tuple(ordered[:depth]), floor=floor, zero=zero)


def convex(semantic: Listing, text: Listing, *, weight: float) -> Pool:
    """``weight`` · semantic + (1 − ``weight``) · text, each normalised to [0, 1].

    A fact that one list lacks (or has below its floor) has 0 from it. If one list is empty the
    other one's order stands, and no score is above that list's weight: to be found in one way
    only is less evidence than to be found in both. If all scores of a list are equal, each is
    its best, 1.
    """
    shares = {semantic.name: weight, text.name: 1.0 - weight}
    entries = {listing.name: _entries(listing) for listing in (semantic, text)}

    def fuse_scores(fact_id: str) -> tuple[float, dict[str, Any]]:
        parts = {
            name: shares[name] * of[fact_id].normalised
            for name, of in entries.items()
            if fact_id in of and of[fact_id].passed
        }
        return min(1.0, sum(parts.values())), {"parts": parts, "semantic_weight": weight}

    return _fuse("convex", (semantic, text), entries, fuse_scores)


def rrf(semantic: Listing, text: Listing, *, k: int, floor: float = 0.0) -> Pool:
    """Σ 1 / (k + rank) over the lists, ranks from 0; the score is the share of the highest sum.

    The raw sum is at most 2 / k (0.033 for k = 60): it is kept in ``explain`` as ``raw`` and
    compared with ``floor``, but it is no relevance and is not shown as one. A floor of 0.015
    cuts every fact that one list alone has after its 7th place, so there is none by default.
    """
    listings = (semantic, text)
    entries = {listing.name: _entries(listing) for listing in listings}
    highest = len(listings) / k

    def fuse_scores(fact_id: str) -> tuple[float, dict[str, Any]]:
        parts = {
            name: 1.0 / (k + of[fact_id].rank)
            for name, of in entries.items()
            if fact_id in of and of[fact_id].passed
        }
        raw = sum(parts.values())
        figures = {"parts": parts, "k": k, "raw": raw, "threshold": floor or None}
        return min(1.0, raw / highest), figures

    pool = _fuse("rrf", listings, entries, fuse_scores)
    hits, cuts = [], []
    for hit in pool.hits:
        raw = hit.explain["fusion"]["raw"]
        if raw >= floor:
            hits.append(hit)
            continue
        why = f"raw RRF {raw:.4f} is below {floor:g}"
        cuts.append(Cut(fact_id=hit.fact_id, stage="fusion", why=why, explain=hit.explain))
    return Pool(hits=tuple(hits), cuts=(*pool.cuts, *cuts))


def single(listing: Listing) -> Pool:
    """One list alone: semantic scores as they are, text scores as shares of the best one."""
    as_it_is = listing.name == "semantic"
    entries = _entries(listing if as_it_is else msgspec.structs.replace(listing, zero=0.0))

    def score(fact_id: str) -> tuple[float, dict[str, Any]]:
        entry = entries[fact_id]
        return (min(1.0, max(0.0, entry.score)) if as_it_is else entry.normalised), {}

    return _fuse(listing.name, (listing,), {listing.name: entries}, score)


def _entries(listing: Listing) -> dict[str, _Entry]:
    scores = [candidate.score for candidate in listing.candidates]
    if not scores:
        return {}
    low = min(scores) if listing.zero is None else min(listing.zero, *scores)
    span = max(scores) - low
    return {
        candidate.fact_id: _Entry(
            rank=rank,
            score=candidate.score,
            normalised=(candidate.score - low) / span if span > 0 else 1.0,
            passed=listing.floor is None or candidate.score >= listing.floor,
        )
        for rank, candidate in enumerate(listing.candidates)
    }


def _fuse(
    recipe: str,
    listings: Sequence[Listing],
    entries: dict[ListName, dict[str, _Entry]],
    fused: Callable[[str], tuple[float, dict[str, Any]]],
) -> Pool:
    hits: list[ScoredFact] = []
    cuts: list[Cut] = []
    union = dict.fromkeys(fact_id for of in entries.values() for fact_id in of)
    for fact_id in union:
        explain: dict[str, dict[str, Any]] = {
            listing.name: _explain(entries[listing.name][fact_id], listing.floor)
            for listing in listings
            if fact_id in entries[listing.name]
        }
        if not any(of[fact_id].passed for of in entries.values() if fact_id in of):
            cuts.append(_below_floor(fact_id, explain))
            continue
        score, figures = fused(fact_id)
        explain["fusion"] = {"recipe": recipe, "score": score, "threshold": None, **figures}
        hits.append(ScoredFact(fact_id=fact_id, score=score, explain=explain))
    return rank_hits("fusion", hits, cuts)


def _explain(entry: _Entry, floor: float | None) -> dict[str, Any]:
    return {
        "rank": entry.rank + 1,
        "score": entry.score,
        "threshold": floor,
        "passed": entry.passed,
        "normalised": entry.normalised,
    }


def _below_floor(fact_id: str, explain: dict[str, dict[str, Any]]) -> Cut:
    below = [
        f"{name} score {of['score']:.3f} is below the floor {of['threshold']:g}"
        for name, of in explain.items()
    ]
    stage = next(iter(explain))
    return Cut(fact_id=fact_id, stage=stage, why="; ".join(below), explain=explain)
