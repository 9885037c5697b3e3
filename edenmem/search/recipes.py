"""How a search goes, as data: which lists, how they are fused, which stages come after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Literal

import msgspec

from edenmem.errors import UsageError
from edenmem.models.search import Candidate
from edenmem.search.fusion import ListName, convex, rrf, semantic_list, single, text_list
from edenmem.search.ranking import Pool
from edenmem.settings.schema import SearchSettings

#: Queries that one search may have.
MAX_QUERIES = 3


class Stage(StrEnum):
    """What may come after fusion, in the order in which it comes."""

    RECENCY = "recency"
    MMR = "mmr"


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """A way to search that has a name."""

    name: str
    lists: tuple[ListName, ...]
    fusion: Literal["convex", "rrf", "single"]
    stages: tuple[Stage, ...] = ()

    @property
    def semantic(self) -> bool:
        """Whether the query is needed as a vector."""
        return "semantic" in self.lists

    def depth(self, settings: SearchSettings, top_k: int) -> int:
        """How many candidates each list is asked for."""
        if self.fusion == "rrf":
            return 2 * top_k
        if self.fusion == "convex" or self.stages:
            return max(settings.depth, top_k)
        return top_k


RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(name="convex", lists=("semantic", "text"), fusion="convex"),
        Recipe(name="rrf", lists=("semantic", "text"), fusion="rrf"),
        Recipe(name="semantic", lists=("semantic",), fusion="single"),
        Recipe(name="text", lists=("text",), fusion="single"),
    )
}


def recipe(name: str, *, stages: Sequence[Stage] = ()) -> Recipe:
    """The recipe of this name with these stages after it.

    Raises:
        UsageError: there is none of this name.
    """
    try:
        found = RECIPES[name]
    except KeyError:
        raise UsageError(
            f"there is no search recipe {name!r}", hint=f"it is one of {', '.join(RECIPES)}"
        ) from None
    ordered = tuple(stage for stage in Stage if stage in stages)
    return msgspec.structs.replace(found, stages=ordered)


def fuse(
    recipe: Recipe,
    lists: Mapping[ListName, Sequence[Candidate]],
    settings: SearchSettings,
    *,
    depth: int,
    text_floor: bool,
) -> Pool:
    """The lists of one query as one pool; ``text_floor``: the text scores are on Lucene's scale,
    so that its floor means something."""
    semantic = semantic_list(
        lists.get("semantic", ()), depth=depth, floor=settings.semantic_floor or None
    )
    floor = settings.text_floor if text_floor else 0.0
    text = text_list(lists.get("text", ()), depth=depth, floor=floor or None)
    if recipe.fusion == "convex":
        return convex(semantic, text, weight=settings.semantic_weight)
    if recipe.fusion == "rrf":
        return rrf(semantic, text, k=settings.rrf_k, floor=settings.rrf_floor)
    return single(semantic if recipe.semantic else text)
