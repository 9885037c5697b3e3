"""Tuning of search settings on labeled queries, with a test against chance.

Settings that are chosen and measured on the same queries look better than they are. So the queries
are split into folds: the settings that are best on all other folds are measured on the fold (k-fold
cross-validation; Stone, "Cross-Validatory Choice and Assessment of Statistical Predictions", 1974).
The gain over the settings in force is reported with its standard error over the queries. Several
splits are drawn from a fixed seed, so that the result depends on no single split and is the same in
every run.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from edenmem.engine.evaluation.evaluator import (
    CUTOFF,
    Evaluator,
    Found,
    RecipeScore,
    mean,
    ranking,
)
from edenmem.engine.evaluation.queries import LabeledQuery
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import UsageError
from edenmem.models.embeddings import VectorSwitch
from edenmem.search.metrics import ndcg
from edenmem.search.recipes import Recipe, Rules, Stage, effective, recipe
from edenmem.settings.schema import SearchSettings

#: The recipes that depend on the embedding model.
_SEMANTIC = ("convex", "rrf", "semantic")


class RecipePair(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of one recipe with the vectors of both models."""

    recipe: str
    old: RecipeScore
    new: RecipeScore

    @property
    def loss(self) -> float:
        """Return the loss of recall with the new model."""
        return self.old.recall - self.new.recall


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of two models; the pair of the configured recipe is first."""

    old_model: str
    new_model: str
    top_k: int
    pairs: tuple[RecipePair, ...]

    @property
    def loss(self) -> float:
        """Return the loss of recall@k with the configured recipe; a gain is negative."""
        return self.pairs[0].loss


async def compare_models(
    switch: VectorSwitch,
    queries: Sequence[LabeledQuery],
    *,
    old: Runtime,
    new: Runtime,
) -> Comparison:
    """Measure both models of a switch, while the vectors of both are stored.

    Args:
        switch: The switch.
        queries: The labeled queries.
        old: The runtime with the settings in force and their embedding model.
        new: The runtime with the settings after the switch.

    Raises:
        UsageError: no query has an answer, or the old model is not configured.
        ProviderError: the queries could not be embedded.
        StoreError: the store could not be searched.
    """
    embedder = old.embedder
    if embedder is None or embedder.model != switch.previous:
        configured = "none" if embedder is None else repr(embedder.model)
        raise UsageError(
            f"a comparison needs both models: the facts have vectors of {switch.previous!r}, the "
            f"configured model is {configured}",
            hint="keep the old model in the configuration, and give the new model with --model or "
            "--to",
        )
    if not any(query.relevant for query in queries):
        raise UsageError("no query has a known label, so recall cannot be compared")
    base = recipe(old.settings.search.recipe).base
    names = dict.fromkeys((base if base in _SEMANTIC else "semantic", *_SEMANTIC))
    before = await Evaluator(old, prepared=True).evaluate(queries, recipes=tuple(names))
    after = await Evaluator(new, prepared=True).evaluate(queries, recipes=tuple(names))
    pairs = tuple(
        RecipePair(recipe=one.recipe, old=one, new=other)
        for one, other in zip(before.overall(), after.overall(), strict=True)
    )
    assert not math.isnan(pairs[0].loss)
    return Comparison(
        old_model=embedder.model,
        new_model=new.demand_embedder().model,
        top_k=before.top_k,
        pairs=pairs,
    )


FOLDS = 5
#: Number of random splits.
SPLITS = 10
#: Minimum number of queries with an answer.
LEAST_QUERIES = 20
#: A gain of fewer standard errors is noise (about 95 %, two-sided).
NOISE = 2.0

_SEED = 20260314
_WEIGHTS = tuple(step / 10 for step in range(11))
_FLOORS = (0.0, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75)
_DEPTHS = (25, 50, 100, 200)
_RRF_KS = (5, 10, 20, 40, 60, 100)

#: What a word of the source messages may weigh, compared with a word of the fact.
_SOURCE_WEIGHTS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)

#: The settings that decide what a recipe finds, in order of display. Without "+source" the deeper
#: lists are tried too; with both the grid would be too large.
_SETTINGS: Mapping[str, Mapping[str, Sequence[float]]] = {
    "convex": {"semantic_weight": _WEIGHTS, "depth": _DEPTHS},
    "convex+source": {"semantic_weight": _WEIGHTS, "source_weight": _SOURCE_WEIGHTS},
    "rrf": {"rrf_k": _RRF_KS, "semantic_floor": _FLOORS},
    "semantic": {"semantic_floor": _FLOORS},
    "text": {},
    "text+source": {"source_weight": _SOURCE_WEIGHTS},
}


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """The result of tuning.

    ``current`` and ``best`` are settings of the section ``search``; ``best`` has the highest mean
    over all queries. ``current_ndcg`` is the mean nDCG@10 of the settings in force,
    ``held_out_ndcg`` the mean of settings chosen without the measured query; ``best_ndcg`` is
    biased upwards. ``gain`` is the held-out mean minus the current one, ``spread`` its standard
    error over the queries. ``folds_agree`` is the share of folds that chose ``best``.
    """

    queries: int
    tried: int
    current: dict[str, str | float]
    current_ndcg: float
    best: dict[str, str | float]
    best_ndcg: float
    held_out_ndcg: float
    gain: float
    spread: float
    folds_agree: float

    @property
    def changes(self) -> dict[str, str | float]:
        """Return the settings of ``best`` that differ from those in force."""
        return {name: value for name, value in self.best.items() if self.current[name] != value}

    @property
    def is_noise(self) -> bool:
        """Return whether the gain may be due to chance."""
        return self.gain <= NOISE * self.spread or not self.changes


class _Trial(NamedTuple):
    """Settings to try, with their recipe."""

    plan: Recipe
    settings: SearchSettings

    @property
    def grid(self) -> Mapping[str, Sequence[float]]:
        return _grid_of(self.plan)

    def describe(self) -> dict[str, str | float]:
        names = self.grid
        return {"recipe": self.plan.name} | {name: getattr(self.settings, name) for name in names}


async def tune(
    evaluator: Evaluator,
    queries: Sequence[LabeledQuery],
    settings: SearchSettings,
    *,
    recipes: Sequence[str] = (),
) -> Tuning:
    """Try the settings of recipes (by default all that can run) on the queries with answers.

    Only the fusion is tuned; later stages stay as they are and are not measured.

    Raises:
        UsageError: too few queries have an answer, or the recipe in force cannot run.
        EmbeddingModelMismatch, ProviderError, StoreError: as `Evaluator.evaluate`.
    """
    answered = [query for query in queries if query.relevant]
    if len(answered) < LEAST_QUERIES:
        raise UsageError(
            f"too few queries with an answer: {len(answered)} (tuning needs at least "
            f"{LEAST_QUERIES} queries)"
        )
    (current,), _ = evaluator.plans([settings.recipe])
    plans = _fusions(evaluator.plans(recipes)[0], current)
    if not recipes:
        plans += await evaluator.source_plans(plans)
    deepest = max(settings.depth, *_DEPTHS, 2 * CUTOFF)
    base = await evaluator.candidates(answered, [*plans, current], depth=deepest)
    in_force = {name: value or 0.0 for name, value in effective(settings, base.model).items()}
    settings = msgspec.structs.replace(settings, **in_force)
    longest = max(len(each.found) for one in base.found for each in one.lists.values())
    trials = _trials(plans, current, settings, longest)
    rules = [base.rules(trial.plan, trial.settings, CUTOFF) for trial in trials]
    figures = [await in_thread(_measure, trials, rules, each) for each in base.found]
    return _choose(trials, list(zip(*figures, strict=True)))


def _fusions(plans: Sequence[Recipe], current: Recipe) -> list[Recipe]:
    """Return each fusion once, with the later stages in force."""
    later: dict[Stage, bool | None] = {
        stage: True for stage in current.stages if stage is not Stage.SOURCE
    }
    unique = {(plan.base, plan.source): plan for plan in plans}
    return [
        recipe(plan.base, stages={**later, Stage.SOURCE: plan.source}) for plan in unique.values()
    ]


def _grid_of(plan: Recipe) -> Mapping[str, Sequence[float]]:
    return _SETTINGS[f"{plan.base}+source" if plan.source else plan.base]


def _trials(
    plans: Sequence[Recipe], current: Recipe, settings: SearchSettings, longest: int
) -> list[_Trial]:
    """Return the settings in force, then all others by distance: the first of equals wins."""
    trials = [_Trial(current, settings)]
    for plan in plans:
        grid = dict(_grid_of(plan))
        if "depth" in grid:  # depths beyond the longest list are equivalent
            enough = [depth for depth in _DEPTHS if depth < longest]
            grid["depth"] = sorted({*enough, settings.depth})
        trials += [
            _Trial(plan, msgspec.structs.replace(settings, **dict(zip(grid, values, strict=True))))
            for values in itertools.product(*grid.values())
        ]
    unique = {tuple(trial.describe().items()): trial for trial in reversed(trials)}
    return sorted(unique.values(), key=lambda trial: _distance(trial, trials[0]))


def _distance(trial: _Trial, current: _Trial) -> tuple[bool, int, float]:
    """Order by recipe, then by the number of differing settings, then by their difference."""
    names = trial.grid
    steps = [abs(getattr(trial.settings, name) - getattr(current.settings, name)) for name in names]
    return trial.plan.name != current.plan.name, sum(step > 0 for step in steps), sum(steps)


def _measure(trials: Sequence[_Trial], rules: Sequence[Rules], found: Found) -> list[float]:
    """Return the nDCG@10 of one query by each trial."""
    return [
        ndcg(ranking(trial.plan, found, each, top_k=CUTOFF), found.query.relevant, k=CUTOFF)
        for trial, each in zip(trials, rules, strict=True)
    ]


def _choose(trials: Sequence[_Trial], table: Sequence[Sequence[float]]) -> Tuning:
    """Choose among trials by their figures for each query; the first trial is in force.

    ``table`` has a row for each trial and a column for each query.
    """
    count = len(table[0])
    everything = range(count)
    figures = np.array(table)
    best = _best(figures, everything)
    held_out = [0.0] * count
    agreed = 0
    chance = random.Random(_SEED)  # noqa: S311 - must be reproducible
    for _ in range(SPLITS):
        order = list(everything)
        chance.shuffle(order)
        for fold in range(FOLDS):
            measured = order[fold::FOLDS]
            left_out = frozenset(measured)
            choice = _best(figures, [place for place in everything if place not in left_out])
            agreed += choice == best
            for place in measured:
                held_out[place] += table[choice][place]
    held_out = [summed / SPLITS for summed in held_out]
    gains = [new - old for new, old in zip(held_out, table[0], strict=True)]
    current = dict(trials[0].describe())
    settings = trials[best].describe()
    for name in settings:
        current.setdefault(name, getattr(trials[0].settings, name))
    return Tuning(
        queries=count,
        tried=len(trials),
        current=current,
        current_ndcg=mean(table[0]),
        best=settings,
        best_ndcg=mean(table[best]),
        held_out_ndcg=mean(held_out),
        gain=mean(gains),
        spread=_standard_error(gains),
        folds_agree=agreed / (SPLITS * FOLDS),
    )


def _best(table: NDArray[np.float64], places: Sequence[int]) -> int:
    """Return the row with the highest sum at these places; the first of equals after rounding."""
    return int(np.argmax(table[:, list(places)].sum(axis=1).round(9)))


def _standard_error(values: Sequence[float]) -> float:
    center = mean(values)
    variance = math.fsum((value - center) ** 2 for value in values) / (len(values) - 1)
    return math.sqrt(variance / len(values))
