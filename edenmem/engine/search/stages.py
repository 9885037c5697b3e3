"""The stages after fusion: reranking, recency, diversity, and the cut to ``top_k``.

The stages are pure functions in edenmem.search; this module loads the facts, vectors and reranker
scores for them. Search and evaluation share it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from edenmem.engine.runtime.concurrency import demand_loop, gather_or_cancel, in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import ConfigError, ProviderError
from edenmem.models.embeddings import scale_of
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.observation import Stopwatch
from edenmem.rerank import RERANKER_HINT
from edenmem.search.ranking import Pool, keep, top
from edenmem.search.recipes import Recipe, Stage
from edenmem.search.stages import doubt, narrow, shortlist
from edenmem.search.stages import mmr as choose_diverse
from edenmem.search.stages import recency as prefer_recent
from edenmem.search.stages import rerank as by_relevance

_DAY = 86_400.0

Facts = Mapping[str, Fact]


class Stages:
    """Runs the stages of a recipe, in the order of `edenmem.search.recipes.Stage`.

    Before recency and diversity, facts in doubt lose a part of their relevance.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        self._settings = runtime.settings.search
        self._reranker = runtime.reranker
        self._clock = runtime.clock

    def check(self, plan: Recipe) -> None:
        """Refuse a recipe that cannot run.

        Raises:
            ConfigError: the recipe reranks, and no reranker is configured.
        """
        if Stage.RERANK in plan.stages and self._reranker is None:
            raise ConfigError(
                "reranking needs a reranker, and none is configured", hint=RERANKER_HINT
            )

    async def run(
        self,
        plan: Recipe,
        pools: Sequence[Pool],
        texts: Sequence[str],
        scopes: Sequence[Scope],
        *,
        model: str,
        top_k: int,
        unconfirmed: Collection[str],
        with_vectors: bool = False,
        known: Facts = MappingProxyType({}),
        watch: Stopwatch | None = None,
    ) -> tuple[list[Pool], dict[str, Fact]]:
        """Run each pool through the stages and cut it to ``top_k``; return pools and facts.

        Args:
            plan: The recipe.
            pools: The fused pool of each query.
            texts: The queries.
            scopes: The searched scopes.
            model: The model of the vectors to compare; "": the most frequent one.
            top_k: Maximum number of results of each query.
            unconfirmed: The facts in doubt among the hits.
            with_vectors: Return the facts with their vectors.
            known: Facts that are already loaded, without their vectors.
            watch: Records the time of each stage.

        Raises:
            ProviderError: the reranker failed.
            StoreError: the facts could not be read.
        """
        watch = watch or Stopwatch()
        staged = list(pools)
        if Stage.RERANK in plan.stages:
            with watch.stage("rerank"):
                staged = await self._rerank(staged, texts, scopes, known)
        # The relevance is that of the reranker, if it ran, else that of fusion.
        weight = self._settings.unconfirmed_weight
        staged = [doubt(pool, unconfirmed, weight=weight) for pool in staged]
        if Stage.RECENCY in plan.stages:
            with watch.stage("recency"):
                staged, facts = await self._load(staged, scopes, known)
                staged = self._recent_first(staged, facts)
        diverse = Stage.MMR in plan.stages
        staged = [(narrow if diverse else top)(pool, top_k=top_k) for pool in staged]
        with watch.stage("load"):
            staged, facts = await self._load(
                staged, scopes, known, with_vectors=diverse or with_vectors
            )
        if diverse:
            with watch.stage("mmr"):
                compared = model or _commonest_model(facts)
                vectors = await self._comparable(facts, compared)
                trade_off = self._settings.mmr_lambda
                zero = scale_of(compared).zero or 0.0
                staged = [
                    choose_diverse(pool, vectors, top_k=top_k, trade_off=trade_off, zero=zero)
                    for pool in staged
                ]
            if not with_vectors:
                facts = {id: replace(fact, embedding=None) for id, fact in facts.items()}
        return staged, facts

    async def _load(
        self,
        pools: Sequence[Pool],
        scopes: Sequence[Scope],
        known: Facts,
        *,
        with_vectors: bool = False,
    ) -> tuple[list[Pool], dict[str, Fact]]:
        """Load the facts of all pools; drop hits whose facts were deleted meanwhile."""
        ids = list(dict.fromkeys(hit.fact_id for pool in pools for hit in pool.hits))
        if not with_vectors and all(id in known for id in ids):
            return list(pools), {id: known[id] for id in ids}
        facts = await in_thread(
            self._store.memory.facts_by_ids, scopes, ids, with_vectors=with_vectors
        )
        why = "deleted during the search"
        return [keep(pool, facts, stage="load", why=why) for pool in pools], facts

    async def _rerank(
        self, pools: Sequence[Pool], texts: Sequence[str], scopes: Sequence[Scope], known: Facts
    ) -> list[Pool]:
        reranker = self._reranker
        assert reranker is not None
        short = [shortlist(pool, depth=self._settings.rerank_depth) for pool in pools]
        short, facts = await self._load(short, scopes, known)
        await demand_loop()

        async def one(pool: Pool, text: str) -> Pool:
            ids = [hit.fact_id for hit in pool.hits]
            if not ids:
                return pool
            scores = await reranker.score(text, [facts[id].content for id in ids])
            return by_relevance(
                pool,
                dict(zip(ids, scores, strict=True)),
                floor=self._settings.rerank_floor or None,
                model=reranker.model,
            )

        try:
            return await gather_or_cancel([one(*each) for each in zip(short, texts, strict=True)])
        except ProviderError as error:
            error.add_hint("a recipe without +rerank searches without the reranker")
            raise

    def _recent_first(self, pools: Sequence[Pool], facts: Facts) -> list[Pool]:
        now = self._clock()
        ages = {
            fact_id: (now - fact.recent_at).total_seconds() / _DAY
            for fact_id, fact in facts.items()
        }
        weight, days = self._settings.recency_weight, self._settings.recency_days
        return [prefer_recent(pool, ages, weight=weight, days=days) for pool in pools]

    async def _comparable(self, facts: Facts, model: str) -> dict[str, bytes]:
        """Return the vectors of one model, for the facts that have one."""
        vectors = {
            fact_id: fact.embedding
            for fact_id, fact in facts.items()
            if fact.embedding is not None and (fact.embedding_model or "") == model
        }
        missing = [fact_id for fact_id in facts if fact_id not in vectors]
        if model and missing:  # staged, while the store switches models
            vectors |= await in_thread(self._store.switches.vectors_of, missing, model=model)
        return vectors


def _commonest_model(facts: Facts) -> str:
    """Return the model of most vectors, for the recipe "text", which has no query vector."""
    models = [fact.embedding_model or "" for fact in facts.values() if fact.embedding is not None]
    return max(set(models), key=lambda model: (models.count(model), model), default="")
