"""Recipes of a search, as data: its lists, their fusion, and the stages after it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Any

import msgspec

from edenmem.errors import UsageError
from edenmem.invalid import nearest_word
from edenmem.models.embeddings import Scale, scale_of
from edenmem.models.search import ListName, Lists
from edenmem.search.fusion import (
    Entered,
    Entries,
    Floors,
    Scores,
    Weights,
    best_first,
    enter,
    rrf,
    weigh,
)
from edenmem.search.ranking import Cut, Explanation, Pool, ScoredFact
from edenmem.settings.schema import SearchSettings

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
    def semantic(self) -> bool:
        """Return whether the query is needed as a vector."""
        return "semantic" in self.own_lists

    def depth(self, settings: SearchSettings, top_k: int) -> int:
        """Return the number of candidates to request from each list."""
        least = settings.rerank_depth if Stage.RERANK in self.stages else 0
        return max(least, 2 * top_k if self.base == "rrf" else max(settings.depth, top_k))


RECIPES: Mapping[str, Recipe] = {
    recipe.base: recipe
    for recipe in (
        Recipe(base="convex", own_lists=("semantic", "text")),
        Recipe(base="rrf", own_lists=("semantic", "text")),
        Recipe(base="semantic", own_lists=("semantic",)),
        Recipe(base="text", own_lists=("text",)),
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


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers by which a recipe scores: from the settings, else from the embedding model.

    ``weights`` of the lists; the sum without the source is 1. ``floors`` are the minimum scores of
    the lists. ``min_score`` is the minimum score of a result before the later stages.
    """

    depth: int
    scale: Scale
    weights: Weights
    floors: Floors
    min_score: float
    rrf_k: int
    rrf_floor: float


def rules_of(
    recipe: Recipe, settings: SearchSettings, *, model: str, top_k: int, text_floor: bool
) -> Rules:
    """Return the rules of a search.

    ``text_floor``: text scores are on Lucene's scale, and its floor applies.
    """
    scale = scale_of(model)
    by_model = effective(settings, model)
    return Rules(
        depth=recipe.depth(settings, top_k),
        scale=scale,
        weights=_weights(recipe, settings),
        floors={
            "semantic": by_model["semantic_floor"] or None,
            "text": (settings.text_floor if text_floor else 0.0) or None,
        },
        min_score=(
            {"convex": by_model["min_score"], "text": settings.text_min_score}.get(recipe.base)
            or 0.0
        ),
        rrf_k=settings.rrf_k,
        rrf_floor=settings.rrf_floor,
    )


def effective(settings: SearchSettings, model: str) -> dict[str, float | None]:
    """Return the settings that follow from the embedding model unless they are set."""
    scale = scale_of(model)
    by_model = {"semantic_floor": scale.floor_score, "min_score": scale.min_score}
    configured = {name: getattr(settings, name) for name in by_model}
    return {n: by_model[n] if value is None else value for n, value in configured.items()}


def _weights(recipe: Recipe, settings: SearchSettings) -> Weights:
    """Return the weight of each list; words of the source add to those of the fact."""
    alone = len(recipe.own_lists) == 1
    semantic = float(recipe.semantic) if alone else settings.semantic_weight
    words = 1.0 - semantic
    sources = words * settings.source_weight if recipe.source else 0.0
    return {"semantic": semantic, "text": words, "source": sources}


def fuse(recipe: Recipe, lists: Lists, rules: Rules) -> Pool:
    """Fuse the lists of one query into one pool.

    A floor decides which facts a list brings in and does not change scores: a fact found by its
    words keeps a semantic score below the floor. If a list is empty, no score exceeds the weights
    of the others: a match in one way only is less evidence.
    """
    entered = enter(lists, recipe.lists, depth=rules.depth, scale=rules.scale)
    if recipe.base == "rrf":
        scores = rrf(entered, rules.rrf_k, rules.floors)
    else:
        scores = weigh(entered, rules.weights)
    admitted = set[str]().union(
        *(of.passing(rules.floors.get(name)) for name, of in entered.items())
    )
    hits: list[ScoredFact] = []
    cuts: list[Cut] = []
    ranks: dict[str, int] = {}
    fused = partial(_explain, recipe, rules, entered, scores, ranks)
    below_floors = partial(_below_floors, entered, rules)
    for fact_id in best_first(scores):
        score, ranks[fact_id] = scores[fact_id], len(hits) + 1
        hit = ScoredFact(fact_id=fact_id, score=score, fused=fused)
        if fact_id not in admitted:
            below = next(name for name, of in entered.items() if fact_id in of.places)
            cuts.append(Cut(hit, below, below_floors))
        elif score < rules.min_score:
            why = f"score {score:.3f} is below the minimum {rules.min_score:g}"
            cuts.append(Cut(hit, MIN_SCORE, why))
        elif recipe.base == "rrf" and _raw(rules, score) < rules.rrf_floor:
            why = f"raw RRF {_raw(rules, score):.4f} is below {rules.rrf_floor:g}"
            cuts.append(Cut(hit, "fusion", why))
        else:
            hits.append(hit)
    return Pool(hits=tuple(hits), cuts=tuple(cuts))


#: The stage of facts that are not relevant enough.
MIN_SCORE = "relevance"


def _raw(rules: Rules, score: float) -> float:
    """Return the sum of RRF, at most 2 / k (0.033 for k = 60), which its floor refers to."""
    return 2 * score / rules.rrf_k


def _below_floors(entered: Entered, rules: Rules, rank: int, hit: ScoredFact) -> str:
    return "; ".join(
        f"{name} score {of.scores[hit.fact_id]:.3f} is below the threshold {rules.floors[name]:g}"
        for name, of in entered.items()
        if hit.fact_id in of.places
    )


def _explain(
    recipe: Recipe,
    rules: Rules,
    entered: Entered,
    scores: Scores,
    ranks: Mapping[str, int],
    fact_id: str,
) -> Explanation:
    """Return the figures of the lists and of the fusion for one fact."""
    score = scores[fact_id]
    own = {name: of for name, of in entered.items() if fact_id in of.scores}
    said: Explanation = {
        name: _explain_entry(of, fact_id, rules.floors.get(name)) for name, of in own.items()
    }
    figures: dict[str, Any] = {
        "rank": ranks[fact_id],
        "recipe": recipe.base,
        "score": score,
        "threshold": rules.min_score or None,
    }
    if recipe.base == "rrf":
        figures |= {"k": rules.rrf_k, "raw": _raw(rules, score)}
        figures["threshold"] = rules.rrf_floor or None
    elif len(entered) > 1:
        figures["parts"] = {n: rules.weights[n] * of.shares[fact_id] for n, of in own.items()}
        figures |= {f"{name}_weight": rules.weights[name] for name in entered if name != "text"}
    return {**said, "fusion": figures}


def _explain_entry(of: Entries, fact_id: str, floor: float | None) -> dict[str, Any]:
    place = of.places.get(fact_id)
    figures = {
        "rank": None if place is None else place + 1,
        "score": of.scores[fact_id],
        "threshold": floor,
        "passed": fact_id in of.passing(floor),
        "normalized": of.shares[fact_id],
    }
    return figures if place is not None else {**figures, "completed": True}
