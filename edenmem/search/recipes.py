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
    ListName,
    convex,
    missing,
    rrf,
    semantic_list,
    single,
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
    """
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
        floor=semantic_floor(settings, model),
        zero=scale_of(model).zero_score,
        completed=known["semantic"],
    )
    floor = settings.text_floor if text_floor else 0.0
    text = text_list(by_words, depth=depth, floor=floor or None, completed=known["text"])
    if recipe.fusion == "convex":
        return convex(semantic, text, weight=settings.semantic_weight)
    if recipe.fusion == "rrf":
        return rrf(semantic, text, k=settings.rrf_k, floor=settings.rrf_floor)
    return single(semantic if recipe.semantic else text)


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
