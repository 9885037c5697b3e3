"""Evaluation of recipes on labeled queries.

The candidates of each query are fetched once, to the depth of the deepest recipe. They are fused
for every recipe and run through its stages by the code of the search. Nothing is written, and no
access is counted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from edenmem.engine.evaluation.queries import LabeledQuery
from edenmem.engine.runtime.concurrency import gather_or_cancel, in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.search.request import choose_recipe, require_source_words, validate_top_k
from edenmem.engine.search.stages import Stages
from edenmem.errors import UsageError
from edenmem.models.scope import Scope
from edenmem.models.search import Candidate, FactFilter, ListName, SearchAbility
from edenmem.search.fusion import Entries, passing
from edenmem.search.metrics import ndcg, recall, reciprocal_rank
from edenmem.search.ranking import Pool
from edenmem.search.recipes import (
    RECIPES,
    WITH_SOURCE,
    Reach,
    Recipe,
    Stage,
    best_first,
    floors_of,
    fuse,
    gaps_of,
    recipe,
    unite,
)
from edenmem.settings.schema import SearchSettings
from edenmem.store.protocol.store import batched

#: Cutoff of MRR and nDCG.
CUTOFF = 10

#: Queries in one request to a provider or a store.
_BATCH = 64
#: Queries that run through the stages of a recipe concurrently.
_STAGED_AT_ONCE = 8


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """The measures of one query, or their means over several; NaN for none."""

    recall: float
    mrr: float
    ndcg: float


class RecipeScore(Score, frozen=True, kw_only=True):
    """The scores of one recipe, over all queries or (``kind`` is set) over one kind.

    ``queries`` have an answer, and the means are over them. ``unanswerable`` have none;
    ``silent`` is for how many of those the recipe rightly found nothing.
    """

    recipe: str
    kind: str = ""
    queries: int
    unanswerable: int
    silent: int


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of each recipe: over all queries, then by kind if there are kinds.

    ``top_k`` is the k of recall. ``notices`` are for the user.
    """

    top_k: int
    scores: tuple[RecipeScore, ...]
    notices: tuple[str, ...] = ()

    def overall(self) -> tuple[RecipeScore, ...]:
        """Return the scores over all queries."""
        return tuple(score for score in self.scores if not score.kind)


class Candidates(msgspec.Struct, frozen=True, kw_only=True):
    """A query, its candidates by list, and the completed scores."""

    query: LabeledQuery
    lists: Mapping[ListName, Sequence[Candidate]]
    completed: Mapping[ListName, Mapping[str, float]] = msgspec.field(default_factory=dict)
    reach: Reach = msgspec.field(default_factory=dict)
    model: str = ""

    def of(self, plan: Recipe) -> dict[ListName, Sequence[Candidate]]:
        """Return the lists of a recipe."""
        return {name: self.lists[name] for name in plan.lists}


class Evaluator:
    """Measures recipes on labeled queries. Only reads.

    ``prepared``: use the staged vectors of a switch to the embedder's model too.
    """

    def __init__(self, runtime: Runtime, *, prepared: bool = False) -> None:
        self._store = runtime.store
        self._prepared = prepared
        self._settings = runtime.settings.search
        self._embedder = runtime.embedder
        self._stages = Stages(runtime)

    async def evaluate(
        self,
        queries: Sequence[LabeledQuery],
        *,
        recipes: Sequence[str] = (),
        top_k: int | None = None,
    ) -> Evaluation:
        """Measure recipes on the queries.

        Args:
            queries: The labeled queries.
            recipes: Names, with or without stages. Without names: all fusions that can run, and the
                configured recipe.
            top_k: The k of recall; None is the configured number of results.

        Raises:
            UsageError: a recipe is unknown, or needs an embedding model and none is configured.
            ConfigError: a recipe reranks, and no reranker is configured.
            EmbeddingModelMismatch: the stored vectors are of another model.
            ProviderError: the queries could not be embedded, or the candidates not reranked.
            StoreError: the store could not be searched.
        """
        count = validate_top_k(self._settings.top_k if top_k is None else top_k)
        plans, notices = self.plans(recipes)
        for plan in plans:
            self._stages.check(plan)
        depth = max(plan.depth(self._settings, max(count, CUTOFF)) for plan in plans)
        found, ability = await self.candidates(queries, plans, depth=depth)
        notices += [ability.notice] if ability.notice else []
        kinds = list(dict.fromkeys(query.kind for query in queries if query.kind))
        scores: list[RecipeScore] = []
        for plan in plans:
            rankings = await self._rankings(plan, found, ability, top_k=count)
            scores += [
                _summarize(plan.name, kind, queries, rankings, top_k=count) for kind in ("", *kinds)
            ]
        return Evaluation(top_k=count, scores=tuple(scores), notices=tuple(notices))

    def plans(self, names: Sequence[str]) -> tuple[list[Recipe], list[str]]:
        """Return the named recipes, or by default those that can run, and notices on the others.

        Raises:
            UsageError: a named recipe is unknown or cannot run.
        """
        can_embed = self._embedder is not None
        if names:
            unique = dict.fromkeys(names)
            return [choose_recipe(name, name, can_embed=can_embed)[0] for name in unique], []
        plans = [plan for plan in RECIPES.values() if can_embed or not plan.semantic]
        configured, notice = choose_recipe(None, self._settings.recipe, can_embed=can_embed)
        if configured not in plans:
            plans.append(configured)
        return plans, [notice] if notice else []

    async def source_plans(self, plans: Sequence[Recipe]) -> list[Recipe]:
        """Return variants of the plans that search source messages, if the store can do so."""
        ability = await in_thread(self._store.search.search_ability)
        if not ability.source_words:
            return []
        more = [
            recipe(plan.name, stages={Stage.SOURCE: True})
            for plan in plans
            if plan.base in WITH_SOURCE and not plan.source
        ]
        return [plan for plan in more if plan not in plans]

    async def candidates(
        self, queries: Sequence[LabeledQuery], plans: Sequence[Recipe], *, depth: int
    ) -> tuple[list[Candidates], SearchAbility]:
        """Fetch the candidates of each query from all lists of the recipes, to ``depth``.

        Raises:
            UsageError: there are no queries.
            StoreError: a recipe searches source messages, and the store cannot.
        """
        if not queries:
            raise UsageError("no queries to evaluate")
        ability = await in_thread(self._store.search.search_ability)
        for plan in plans:
            require_source_words(plan, ability)
        names = dict.fromkeys(name for plan in plans for name in plan.lists)
        vectors = await self._vectors(queries) if "semantic" in names else []
        groups: dict[tuple[Scope, ...], list[int]] = {}
        for place, query in enumerate(queries):
            groups.setdefault(query.scopes, []).append(place)
        completes = any(plan.needs_both_scores for plan in plans)
        model = self._embedder.model if self._embedder and vectors else ""
        candidates: list[Candidates | None] = [None] * len(queries)
        for scopes, places in groups.items():
            filter = FactFilter(scopes=scopes)
            for batch in batched(places, _BATCH):
                texts = [queries[place].query for place in batch]
                given = [vectors[place] for place in batch] if vectors else []
                asked = [self._list(name, filter, texts, given, depth) for name in names]
                lists = dict(zip(names, await gather_or_cancel(asked), strict=True))
                completion = None
                if completes:
                    completion = await in_thread(
                        self._store.search.complete_scores,
                        filter,
                        gaps_of(lists, texts, given),
                        model=model,
                        prepared=self._prepared,
                    )
                for number, place in enumerate(batch):
                    candidates[place] = Candidates(
                        query=queries[place],
                        lists={name: found[number] for name, found in lists.items()},
                        completed=completion.of(number) if completion else {},
                        reach=completion.reach_of(number) if completion else {},
                        model=model,
                    )
        return [each for each in candidates if each is not None], ability

    async def _rankings(
        self, plan: Recipe, found: Sequence[Candidates], ability: SearchAbility, *, top_k: int
    ) -> list[list[str]]:
        """Rank the facts of each query as a search would."""
        if not plan.stages:
            return [ranking(plan, each, self._settings, ability, top_k=top_k) for each in found]
        count = max(top_k, CUTOFF)
        model = self._embedder.model if plan.semantic and self._embedder else ""

        async def one(each: Candidates) -> list[str]:
            pool = _fuse(plan, each, self._settings, ability, count)
            query = each.query
            (staged,), _ = await self._stages.run(
                plan, [pool], [query.query], query.scopes, model=model, top_k=count
            )
            return [hit.fact_id for hit in staged.hits]

        rankings: list[list[str]] = []
        for batch in batched(found, _STAGED_AT_ONCE):
            rankings += await gather_or_cancel([one(each) for each in batch])
        return rankings

    async def _vectors(self, queries: Sequence[LabeledQuery]) -> list[bytes]:
        assert self._embedder is not None
        texts = list(dict.fromkeys(query.query for query in queries))
        vectors: dict[str, bytes] = {}
        for batch in batched(texts, _BATCH):
            made = await self._embedder.embed(batch, role="query")
            vectors.update(zip(batch, made.vectors, strict=True))
        return [vectors[query.query] for query in queries]

    async def _list(
        self,
        name: ListName,
        filter: FactFilter,
        texts: Sequence[str],
        vectors: Sequence[bytes],
        depth: int,
    ) -> list[list[Candidate]]:
        if name != "semantic":
            return await in_thread(
                self._store.search.text_candidates,
                filter,
                texts,
                limit=depth,
                source=name == "source",
            )
        assert self._embedder is not None
        return await in_thread(
            self._store.search.semantic_candidates,
            filter,
            vectors,
            model=self._embedder.model,
            limit=depth,
            prepared=self._prepared,
        )


def ranking(
    plan: Recipe,
    found: Candidates,
    settings: SearchSettings,
    ability: SearchAbility,
    *,
    top_k: int,
) -> list[str]:
    """Rank by fusion alone: the fact IDs of a search with ``top_k`` (at least 10), best first."""
    count = max(top_k, CUTOFF)
    floors = floors_of(settings, model=found.model, text_floor=ability.text_floor)
    entries = united(plan, found, depth=plan.depth(settings, count))
    kept = passing(entries, floors)
    order = best_first(plan, entries, settings, floors)
    return list(itertools.islice(filter(kept.__contains__, order), count))


def united(plan: Recipe, found: Candidates, *, depth: int) -> Entries:
    """Return the entries of a recipe's lists for candidates in the first ``depth`` of a list."""
    return unite(
        plan,
        found.of(plan),
        depth=depth,
        model=found.model,
        completed=found.completed,
        reach=found.reach,
    )


def _fuse(
    plan: Recipe, found: Candidates, settings: SearchSettings, ability: SearchAbility, count: int
) -> Pool:
    return fuse(
        plan,
        found.of(plan),
        settings,
        depth=plan.depth(settings, count),
        text_floor=ability.text_floor,
        model=found.model,
        completed=found.completed,
        reach=found.reach,
    )


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean; NaN for no values."""
    return math.fsum(values) / len(values) if values else math.nan


def _summarize(
    recipe: str,
    kind: str,
    queries: Sequence[LabeledQuery],
    rankings: Sequence[Sequence[str]],
    *,
    top_k: int,
) -> RecipeScore:
    pairs = [
        (ids, query.relevant)
        for query, ids in zip(queries, rankings, strict=True)
        if not kind or query.kind == kind
    ]
    answered = [(ids, relevant) for ids, relevant in pairs if relevant]
    silent = sum(not ids for ids, relevant in pairs if not relevant)

    def over(measure: Callable[..., float], k: int) -> float:
        return mean([measure(ids, relevant, k=k) for ids, relevant in answered])

    return RecipeScore(
        recipe=recipe,
        kind=kind,
        queries=len(answered),
        unanswerable=len(pairs) - len(answered),
        silent=silent,
        recall=over(recall, top_k),
        mrr=over(reciprocal_rank, CUTOFF),
        ndcg=over(ndcg, CUTOFF),
    )
