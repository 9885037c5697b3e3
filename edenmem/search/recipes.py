"""How a search goes, as data: which lists, how they are fused, which stages come after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Literal

import msgspec

from edenmem.errors import UsageError
from edenmem.models.embedding_scale import scale_of
from edenmem.models.search import Candidate, Gap
from edenmem.search.fusion import (
    Entries,
    Floors,
    Listing,
    ListName,
    convex,
    convex_parts,
    entries_of,
    missing,
    rrf,
    rrf_parts,
    rrf_scores,
    semantic_list,
    single,
    single_scores,
    sum_parts,
    text_list,
)
from edenmem.search.ranking import Pool, by_score
from edenmem.settings.schema import SearchSettings

#: Queries that one search may have.
MAX_QUERIES = 3


class Stage(StrEnum):
    """What may come after fusion, in the order in which it comes: what a fact says, then how old
    it is, then what the others say already."""

    RERANK = "rerank"
    RECENCY = "recency"
    MMR = "mmr"


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """A way to search: ``base`` is the name of the fusion, `RECIPES` has those there are."""

    base: str
    lists: tuple[ListName, ...]
    fusion: Literal["convex", "rrf", "single"]
    stages: tuple[Stage, ...] = ()

    @property
    def name(self) -> str:
        """The base and the stages: "convex+rerank+mmr"."""
        return "+".join([self.base, *self.stages])

    @property
    def semantic(self) -> bool:
        """Whether the query is needed as a vector."""
        return "semantic" in self.lists

    @property
    def needs_both_scores(self) -> bool:
        """Whether each candidate needs the scores of both lists."""
        return self.fusion == "convex"

    def depth(self, settings: SearchSettings, top_k: int) -> int:
        """How many candidates each list is asked for."""
        least = settings.rerank_depth if Stage.RERANK in self.stages else 0
        if self.fusion == "rrf":
            return max(least, 2 * top_k)
        if self.fusion == "convex" or self.stages:
            return max(least, settings.depth, top_k)
        return top_k


RECIPES: Mapping[str, Recipe] = {
    recipe.base: recipe
    for recipe in (
        Recipe(base="convex", lists=("semantic", "text"), fusion="convex"),
        Recipe(base="rrf", lists=("semantic", "text"), fusion="rrf"),
        Recipe(base="semantic", lists=("semantic",), fusion="single"),
        Recipe(base="text", lists=("text",), fusion="single"),
    )
}


def recipe(name: str, *, stages: Mapping[Stage, bool | None] = {}) -> Recipe:
    """The recipe of this name. Stages may be part of it: "convex+recency+mmr".

    ``stages`` that are True are added to it, those that are False left out; whatever is said, they
    come in the order of `Stage`.

    Raises:
        UsageError: there is none of this name.
    """
    base, *named = name.split("+")
    if base not in RECIPES or not set(named) <= set(Stage):
        raise UsageError(
            f"there is no search recipe {name!r}",
            hint=f"it is one of {', '.join(RECIPES)}, and after it, if wanted, "
            + ", ".join(f"+{stage}" for stage in Stage),
        )
    wanted = dict.fromkeys(map(Stage, named), True)
    wanted |= {stage: on for stage, on in stages.items() if on is not None}
    ordered = tuple(stage for stage in Stage if wanted.get(stage))
    return msgspec.structs.replace(RECIPES[base], stages=ordered)


def semantic_floor(settings: SearchSettings, model: str) -> float | None:
    """The least (1 + cosine) / 2 of a result: the configured one, else that of the model."""
    if settings.semantic_floor is None:
        return scale_of(model).floor_score
    return settings.semantic_floor or None


def fuse(
    recipe: Recipe,
    lists: Mapping[ListName, Sequence[Candidate]],
    settings: SearchSettings,
    *,
    depth: int,
    text_floor: bool,
    model: str = "",
    completed: Mapping[ListName, Mapping[str, float]] = {},
    reach: float = 0.0,
) -> Pool:
    """Fuse the lists of one query into one pool.

    Args:
        recipe: How.
        lists: The candidates, as many as ``depth`` or more.
        settings: Weights and floors.
        depth: How many candidates of each list count.
        text_floor: The text scores are on Lucene's scale, so that its floor means something.
        model: The embedding model, whose scale the semantic scores have.
        completed: Scores of facts that a list did not find, by fact.
        reach: The text score of a fact with every word of the query; 0: not known.
    """
    floors = floors_of(settings, model=model, text_floor=text_floor)
    semantic, text = _listings(
        recipe, lists, floors, depth=depth, model=model, completed=completed, reach=reach
    )
    if recipe.fusion == "convex":
        return convex(semantic, text, weight=settings.semantic_weight)
    if recipe.fusion == "rrf":
        return rrf(semantic, text, k=settings.rrf_k, floor=settings.rrf_floor)
    return single(semantic if recipe.semantic else text)


def floors_of(settings: SearchSettings, *, model: str, text_floor: bool) -> Floors:
    """Return the floor of each list; ``text_floor`` as in `fuse`."""
    words = settings.text_floor if text_floor else 0.0
    return {"semantic": semantic_floor(settings, model), "text": words or None}


def unite(
    recipe: Recipe,
    lists: Mapping[ListName, Sequence[Candidate]],
    *,
    depth: int,
    model: str = "",
    completed: Mapping[ListName, Mapping[str, float]] = {},
    reach: float = 0.0,
) -> Entries:
    """Return what each list has of each candidate, so that `best_first` can order them by any
    weights and floors. The arguments are those of `fuse`."""
    both = _listings(recipe, lists, {}, depth=depth, model=model, completed=completed, reach=reach)
    return entries_of(*(listing for listing in both if listing.name in recipe.lists))


def best_first(
    recipe: Recipe, entries: Entries, settings: SearchSettings, floors: Floors
) -> list[str]:
    """Order the candidates as `fuse` does, by the same scores, without floors for a result.

    Of the settings it reads the weight for "convex" and k and the floors for "rrf"; `passing` says
    which of the candidates `fuse` would keep.
    """
    if recipe.fusion == "convex":
        scores = sum_parts(convex_parts(entries, settings.semantic_weight))
    elif recipe.fusion == "rrf":
        sums = sum_parts(rrf_parts(entries, settings.rrf_k, floors))
        enough = {fact_id: raw for fact_id, raw in sums.items() if raw >= settings.rrf_floor}
        scores = rrf_scores(enough, settings.rrf_k)
    else:
        scores = single_scores(entries)
    return sorted(sorted(scores), key=scores.__getitem__, reverse=True)  # of equals the lower id


def _listings(
    recipe: Recipe,
    lists: Mapping[ListName, Sequence[Candidate]],
    floors: Floors,
    *,
    depth: int,
    model: str,
    completed: Mapping[ListName, Mapping[str, float]],
    reach: float,
) -> tuple[Listing, Listing]:
    cut = {name: by_score(found) for name, found in lists.items()}
    by_meaning, by_words = cut.get("semantic", []), cut.get("text", [])
    known: dict[ListName, dict[str, float]] = {"semantic": {}, "text": {}}
    if recipe.needs_both_scores:
        gaps = missing(by_meaning[:depth], by_words[:depth])
        below = {name: {c.fact_id: c.score for c in found[depth:]} for name, found in cut.items()}
        scores = {name: {**below.get(name, {}), **completed.get(name, {})} for name in gaps}
        known["semantic"] = {
            id: scores["semantic"][id] for id in gaps["semantic"] if id in scores["semantic"]
        }
        known["text"] = {id: scores["text"].get(id, 0.0) for id in gaps["text"]}
    semantic = semantic_list(
        by_meaning,
        depth=depth,
        floor=floors.get("semantic"),
        zero=scale_of(model).zero_score,
        completed=known["semantic"],
    )
    text = text_list(
        by_words,
        depth=depth,
        floor=floors.get("text"),
        completed=known["text"],
        reach=reach if recipe.needs_both_scores else 0.0,
    )
    return semantic, text


def gaps_of(
    lists: Mapping[ListName, Sequence[Sequence[Candidate]]],
    queries: Sequence[str],
    vectors: Sequence[bytes],
) -> list[Gap]:
    """What the two lists of each query lack."""
    found = zip(queries, vectors, lists["semantic"], lists["text"], strict=True)
    gaps = []
    for query, vector, semantic, text in found:
        lacks = missing(semantic, text)
        gaps.append(
            Gap(
                query=query,
                vector=vector,
                semantic=tuple(lacks["semantic"]),
                text=tuple(lacks["text"]),
            )
        )
    return gaps
