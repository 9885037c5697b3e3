"""From the lists of a semantic and a text search to one.

Two ways to fuse, both in [0, 1], whatever the number of hits:

- `convex`: a weighted sum of the two scores, each a share of the way from its zero to the best.
- `rrf`: reciprocal rank fusion, which looks at ranks alone.

See Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval" (2022),
https://arxiv.org/abs/2210.11934, for why the first is the default: it keeps how far apart the
scores are, and has one weight that can be tuned on few examples. Its zeros are what a score is at
least worth (section 4.1), not the lowest score of a list, which depends on how long the list is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from edenmem.models.search import Candidate
from edenmem.search.ranking import Cut, Pool, ScoredFact, by_score, rank_hits

ListName = Literal["semantic", "text"]


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """One list as a store gave it, cut to the depth that fusion looks at.

    ``floor`` is compared with the list's own scores (semantic: (1 + cosine) / 2, not the cosine);
    None is no floor. ``zero`` is the score that is worth nothing; None is the lowest score there
    is. ``completed`` are scores of facts that the list did not find, by fact.
    """

    name: ListName
    candidates: tuple[Candidate, ...]
    floor: float | None = None
    zero: float | None = None
    completed: Mapping[str, float] = msgspec.field(default_factory=dict)


class _Entry(msgspec.Struct, frozen=True):
    """A fact's place in a list: rank from 0, raw score, share of the way from zero to the best.

    A rank of None: the list did not find the fact, its score was computed afterwards.
    """

    rank: int | None
    score: float
    normalised: float
    passed: bool


def semantic_list(
    candidates: Sequence[Candidate],
    *,
    depth: int,
    floor: float | None = None,
    zero: float | None = None,
    completed: Mapping[str, float] = {},
) -> Listing:
    """The best ``depth`` by meaning. ``zero`` belongs to the embedding model."""
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
    depth: int,
    floor: float | None = None,
    completed: Mapping[str, float] = {},
) -> Listing:
    """The best ``depth`` by words; its zero is 0, what BM25 gives to a text with none of them."""
    return Listing(
        name="text",
        candidates=tuple(by_score(candidates)[:depth]),
        floor=floor,
        zero=0.0,
        completed=completed,
    )


def missing(semantic: Sequence[Candidate], text: Sequence[Candidate]) -> dict[ListName, list[str]]:
    """The facts that each list lacks, since only the other one found them."""
    by_meaning = dict.fromkeys(candidate.fact_id for candidate in semantic)
    by_words = dict.fromkeys(candidate.fact_id for candidate in text)
    return {
        "semantic": [fact_id for fact_id in by_words if fact_id not in by_meaning],
        "text": [fact_id for fact_id in by_meaning if fact_id not in by_words],
    }


def convex(semantic: Listing, text: Listing, *, weight: float) -> Pool:
    """``weight`` · semantic + (1 − ``weight``) · text, each normalised to [0, 1].

    A fact has both its scores, whichever list found it; one that was neither found nor completed
    has 0. A floor decides which facts a list brings in, not what their scores are worth: a fact
    that its words bring in keeps its score by meaning below the floor. If one list is empty, no
    score is above the other one's weight: to match in one way only is less evidence.
    """
    shares = {semantic.name: weight, text.name: 1.0 - weight}
    entries = {listing.name: _entries(listing) for listing in (semantic, text)}

    def fuse_scores(fact_id: str) -> tuple[float, dict[str, Any]]:
        parts = {
            name: shares[name] * of[fact_id].normalised
            for name, of in entries.items()
            if fact_id in of
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
            name: 1.0 / (k + entry.rank)
            for name, of in entries.items()
            if (entry := of.get(fact_id)) and entry.rank is not None and entry.passed
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
    entries = _entries(listing)

    def score(fact_id: str) -> tuple[float, dict[str, Any]]:
        entry = entries[fact_id]
        if listing.name == "semantic":
            return min(1.0, max(0.0, entry.score)), {}
        return entry.normalised, {}

    return _fuse(listing.name, (listing,), {listing.name: entries}, score)


def _entries(listing: Listing) -> dict[str, _Entry]:
    """What the list has of each fact that it is asked about: those found and those completed."""
    scores = {candidate.fact_id: candidate.score for candidate in listing.candidates}
    ranks = {fact_id: rank for rank, fact_id in enumerate(scores)}
    scores |= {id: score for id, score in listing.completed.items() if id not in scores}
    if not scores:
        return {}
    best = max(scores.values())
    zero = min(scores.values()) if listing.zero is None else listing.zero
    span = best - zero

    def share(score: float) -> float:
        if span > 0:
            return max(0.0, (score - zero) / span)
        return 1.0 if listing.zero is None else 0.0  # all are equal, or none is worth anything

    return {
        fact_id: _Entry(
            rank=ranks.get(fact_id),
            score=score,
            normalised=share(score),
            passed=fact_id in ranks and (listing.floor is None or score >= listing.floor),
        )
        for fact_id, score in scores.items()
    }


def _fuse(
    recipe: str,
    listings: Sequence[Listing],
    entries: dict[ListName, dict[str, _Entry]],
    fused: Callable[[str], tuple[float, dict[str, Any]]],
) -> Pool:
    hits: list[ScoredFact] = []
    cuts: list[Cut] = []
    union = dict.fromkeys(each.fact_id for listing in listings for each in listing.candidates)
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
    figures = {
        "rank": None,
        "score": entry.score,
        "threshold": floor,
        "passed": entry.passed,
        "normalised": entry.normalised,
    }
    if entry.rank is None:
        return {**figures, "completed": True}
    return {**figures, "rank": entry.rank + 1}


def _below_floor(fact_id: str, explain: dict[str, dict[str, Any]]) -> Cut:
    below = [
        f"{name} score {of['score']:.3f} is below the floor {of['threshold']:g}"
        for name, of in explain.items()
        if "completed" not in of
    ]
    stage = next(name for name, of in explain.items() if "completed" not in of)
    return Cut(fact_id=fact_id, stage=stage, why="; ".join(below), explain=explain)
