"""Two embedding models on the same labelled queries, over the same facts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from edenmem.embed.protocol import Embedder
from edenmem.engine.evaluation.evaluator import Evaluator, RecipeScore
from edenmem.engine.evaluation.queries import LabelledQuery
from edenmem.errors import UsageError
from edenmem.models.switch import VectorSwitch
from edenmem.search.recipes import recipe
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store

#: The recipes that a change of model can change.
_SEMANTIC = ("convex", "rrf", "semantic")


class RecipePair(msgspec.Struct, frozen=True, kw_only=True):
    """How one recipe did by the vectors of both models."""

    recipe: str
    old: RecipeScore
    new: RecipeScore

    @property
    def loss(self) -> float:
        """By how much recall is smaller by the new model."""
        return self.old.recall - self.new.recall


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The models and what they find; the pair of the configured recipe is first."""

    old_model: str
    new_model: str
    top_k: int
    pairs: tuple[RecipePair, ...]

    @property
    def loss(self) -> float:
        """What of recall@k the configured recipe would lose; less than 0 is a gain."""
        return self.pairs[0].loss


async def compare_models(
    store: Store,
    switch: VectorSwitch,
    queries: Sequence[LabelledQuery],
    *,
    old: tuple[Settings, Embedder | None],
    new: tuple[Settings, Embedder],
    top_k: int | None = None,
) -> Comparison:
    """Measure both models, while the vectors of both are there.

    Args:
        store: With the new vectors beside the old ones.
        switch: Between which models.
        queries: With their labels.
        old: The settings in force and their embedding model.
        new: The settings after the switch and theirs.
        top_k: The k of recall; None is the configured number of results.

    Raises:
        UsageError: no query has an answer, or the old model is not the one that is configured.
        ProviderError: the queries could not be embedded.
        StoreError: the store could not be searched.
    """
    settings, embedder = old
    if embedder is None or embedder.model != switch.previous:
        configured = "none" if embedder is None else repr(embedder.model)
        raise UsageError(
            f"to compare takes both models: the facts have vectors of {switch.previous!r}, the "
            f"configured model is {configured}",
            hint="leave the old model in the configuration and name the new one with --model or "
            "--to",
        )
    if not any(query.relevant for query in queries):
        raise UsageError("no query has a label that is known, so there is no recall to compare")
    base = recipe(settings.search.recipe).base
    names = dict.fromkeys((base if base in _SEMANTIC else "semantic", *_SEMANTIC))
    before = await Evaluator(store, settings, embedder=embedder, prepared=True).evaluate(
        queries, recipes=tuple(names), top_k=top_k
    )
    after = await Evaluator(store, new[0], embedder=new[1], prepared=True).evaluate(
        queries, recipes=tuple(names), top_k=top_k
    )
    pairs = tuple(
        RecipePair(recipe=one.recipe, old=one, new=other)
        for one, other in zip(before.overall(), after.overall(), strict=True)
    )
    assert not math.isnan(pairs[0].loss)
    return Comparison(
        old_model=embedder.model, new_model=new[1].model, top_k=before.top_k, pairs=pairs
    )
