"""Recipes of a search, as data: its lists, their fusion, and the stages after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Literal

import msgspec

from edenmem.errors import UsageError
from edenmem.invalid import nearest_word
from edenmem.models.embedding_scale import scale_of
from edenmem.models.search import Candidate, Gap, ListName
from edenmem.search.fusion import (
    Entries,
    Floors,
    Listing,
    Weights,
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

#: The score of a fact with every word of the query, by list of words.
Reach = Mapping[ListName, float]

#: Maximum number of queries in one search.
MAX_QUERIES = 3


class Stage(StrEnum):
    """Options of a recipe, in order of execution.

    `SOURCE` is a third list, by the words of the source messages. The others follow fusion.
    """

    SOURCE = "source"
    RERANK = "rerank"
    RECENCY = "recency"
    MMR = "mmr"


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """A way to search. ``base`` names the fusion; see `RECIPES`."""

    base: str
    own_lists: tuple[ListName, ...]
    own_fusion: Literal["convex", "rrf", "single"]
    stages: tuple[Stage, ...] = ()

    @property
    def name(self) -> str:
        """Return the base and the stages: "convex+rerank+mmr"."""
        return "+".join([self.base, *self.stages])

    @property
    def source(self) -> bool:
        """Return whether the words of the source messages are searched too."""
        return Stage.SOURCE in self.stages

    @property
    def lists(self) -> tuple[ListName, ...]:
        """Return the lists to fuse."""
        return (*self.own_lists, "source") if self.source else self.own_lists

    @property
    def fusion(self) -> Literal["convex", "rrf", "single"]:
        """Return how the lists are fused."""
        return "convex" if self.source else self.own_fusion

    @property
    def semantic(self) -> bool:
        """Return whether the query is needed as a vector."""
        return "semantic" in self.lists

    @property
    def needs_both_scores(self) -> bool:
        """Return whether each candidate needs the scores of all lists."""
        return self.fusion == "convex"

    def depth(self, settings: SearchSettings, top_k: int) -> int:
        """Return the number of candidates to request from each list."""
        least = settings.rerank_depth if Stage.RERANK in self.stages else 0
        if self.fusion == "rrf":
            return max(least, 2 * top_k)
        if self.fusion == "convex" or self.stages:
            return max(least, settings.depth, top_k)
        return top_k


RECIPES: Mapping[str, Recipe] = {
    recipe.base: recipe
    for recipe in (
        Recipe(base="convex", own_lists=("semantic", "text"), own_fusion="convex"),
        Recipe(base="rrf", own_lists=("semantic", "text"), own_fusion="rrf"),
        Recipe(base="semantic", own_lists=("semantic",), own_fusion="single"),
        Recipe(base="text", own_lists=("text",), own_fusion="single"),
    )
}

#: The fusions that can weigh the words of the source messages.
WITH_SOURCE = ("convex", "text")


def recipe(name: str, *, stages: Mapping[Stage, bool | None] = {}) -> Recipe:
    """Return the recipe of a name such as "convex+recency+mmr".

    ``stages`` adds (True) or removes (False) stages. They run in the order of `Stage`.

    Raises:
        UsageError: the name is unknown, or a stage does not fit the fusion.
    """
    base, *named = name.split("+")
    if base not in RECIPES or not set(named) <= set(Stage):
        raise UsageError(
            f"unknown search recipe: {name!r} (one of {', '.join(RECIPES)}, optionally with "
            + ", ".join(f"+{stage}" for stage in Stage)
            + ")",
            hint=f"did you mean {near!r}?" if (near := nearest_word(base, RECIPES)) else None,
        )
    wanted = dict.fromkeys(map(Stage, named), True)
    wanted |= {stage: on for stage, on in stages.items() if on is not None}
    ordered = tuple(stage for stage in Stage if wanted.get(stage))
    if Stage.SOURCE in ordered and base not in WITH_SOURCE:
        raise UsageError(
            f"recipe {base!r} takes no stage 'source' "
            f"({' or '.join(f'{each}+source' for each in WITH_SOURCE)} does)"
        )
    return msgspec.structs.replace(RECIPES[base], stages=ordered)


def semantic_floor(settings: SearchSettings, model: str) -> float | None:
    """Return the minimum (1 + cosine) / 2 of a result: as configured, else by the model."""
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
    reach: Mapping[ListName, float] = {},
) -> Pool:
    """Fuse the lists of one query into one pool.

    Args:
        recipe: The recipe.
        lists: The candidates, ``depth`` of them or more.
        settings: Weights and floors.
        depth: Number of candidates of each list to use.
        text_floor: Whether the text scores are on Lucene's scale and its floor applies.
        model: The embedding model, which sets the scale of semantic scores.
        completed: Scores of facts that a list did not find.
        reach: The score of a fact with every word of the query, by list; missing if unknown.
    """
    floors = floors_of(settings, model=model, text_floor=text_floor)
    listings = _listings(
        recipe, lists, floors, depth=depth, model=model, completed=completed, reach=reach
    )
    if recipe.fusion == "convex":
        return convex(*listings, weights=weights_of(recipe, settings))
    if recipe.fusion == "rrf":
        return rrf(*listings, k=settings.rrf_k, floor=settings.rrf_floor)
    (listing,) = listings
    return single(listing)


def weights_of(recipe: Recipe, settings: SearchSettings) -> Weights:
    """Return the weight of each list of a convex recipe; the sum is 1.

    The words of the source get ``source_weight`` times the weight of the words of the fact.
    """
    semantic = settings.semantic_weight if recipe.semantic else 0.0
    words = 1.0 - semantic
    sources = words * settings.source_weight if recipe.source else 0.0
    total = 1.0 + sources
    return {"semantic": semantic / total, "text": words / total, "source": sources / total}


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
    reach: Mapping[ListName, float] = {},
) -> Entries:
    """Return the entries of each list, for `best_first` with any weights and floors.

    The arguments are those of `fuse`.
    """
    return entries_of(
        *_listings(recipe, lists, {}, depth=depth, model=model, completed=completed, reach=reach)
    )


def best_first(
    recipe: Recipe, entries: Entries, settings: SearchSettings, floors: Floors
) -> list[str]:
    """Order the candidates by the scores of `fuse`, without the floors of a result.

    Reads only the weights for "convex", and k and the floors for "rrf". `passing` returns the
    candidates that `fuse` would keep.
    """
    if recipe.fusion == "convex":
        scores = sum_parts(convex_parts(entries, weights_of(recipe, settings)))
    elif recipe.fusion == "rrf":
        sums = sum_parts(rrf_parts(entries, settings.rrf_k, floors))
        enough = {fact_id: raw for fact_id, raw in sums.items() if raw >= settings.rrf_floor}
        scores = rrf_scores(enough, settings.rrf_k)
    else:
        scores = single_scores(entries)
    return sorted(
        sorted(scores), key=scores.__getitem__, reverse=True
    )  # equal scores: lower ID first


def _listings(
    recipe: Recipe,
    lists: Mapping[ListName, Sequence[Candidate]],
    floors: Floors,
    *,
    depth: int,
    model: str,
    completed: Mapping[ListName, Mapping[str, float]],
    reach: Reach,
) -> list[Listing]:
    cut = {name: by_score(lists[name]) for name in recipe.lists}
    known: dict[ListName, dict[str, float]] = {name: {} for name in cut}
    if recipe.needs_both_scores:
        gaps = missing({name: found[:depth] for name, found in cut.items()})
        for name, lacking in gaps.items():
            below = {one.fact_id: one.score for one in cut[name][depth:]}
            scores = {**below, **completed.get(name, {})}
            if name != "semantic":  # a fact without a matching word has the score 0
                scores = {**dict.fromkeys(lacking, 0.0), **scores}
            known[name] = {id: scores[id] for id in lacking if id in scores}
    return [
        semantic_list(
            found,
            depth=depth,
            floor=floors.get(name),
            zero=scale_of(model).zero_score,
            completed=known[name],
        )
        if name == "semantic"
        else text_list(
            found,
            name=name,
            depth=depth,
            floor=floors.get(name),
            completed=known[name],
            reach=reach.get(name, 0.0) if recipe.needs_both_scores else 0.0,
        )
        for name, found in cut.items()
    ]


def gaps_of(
    lists: Mapping[ListName, Sequence[Sequence[Candidate]]],
    queries: Sequence[str],
    vectors: Sequence[bytes],
) -> list[Gap]:
    """Return the scores that the lists of each query lack."""
    gaps = []
    for number, query in enumerate(queries):
        lacks = missing({name: found[number] for name, found in lists.items()})
        gaps.append(
            Gap(
                query=query,
                vector=vectors[number] if vectors else b"",
                semantic=tuple(lacks.get("semantic", ())),
                text=tuple(lacks.get("text", ())),
                source=tuple(lacks["source"]) if "source" in lacks else None,
            )
        )
    return gaps
