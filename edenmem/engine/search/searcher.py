"""Search from query to results: vectors, candidates, fusion, facts, and the explanation.

A `Recipe` (edenmem.search.recipes) describes one search: the store returns its lists, each query is
fused on its own and runs through the recipe's stages, and the results are joined. The filter (exact
scopes, times, session) is part of each store query, also when facts are loaded by ID, so nothing
outside the filter can be returned. Every failure is an error: an outage never looks like "no
memories".
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime

import msgspec

from edenmem.embed.protocol import Embedder, QueryShelf
from edenmem.engine.embeddings.status import explain_mismatch, vector_advice
from edenmem.engine.reports import DroppedCandidate, SearchHit, SearchReport
from edenmem.engine.runtime.concurrency import in_loop, in_thread, run_in_turns
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.search.request import (
    choose_recipe,
    require_source_words,
    validate_queries,
    validate_top_k,
)
from edenmem.engine.search.request import vector_model as model_of_vectors
from edenmem.engine.search.stages import Stages
from edenmem.errors import EmbeddingModelMismatch, ProviderError, StoreError, WriteRefused
from edenmem.models.scope import Scope
from edenmem.models.search import Candidates, FactFilter, Question, SearchAbility
from edenmem.observation import Stopwatch, observed
from edenmem.search.ranking import join
from edenmem.search.recipes import MIN_SCORE, Recipe, Rules, Stage, fuse, rules_of

_log = logging.getLogger("edenmem.search")


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """A valid search: what is asked, of which facts, and how the store searches."""

    plan: Recipe
    rules: Rules
    texts: tuple[str, ...]
    filter: FactFilter
    ability: SearchAbility
    model: str
    top_k: int
    exact: bool
    clock: Stopwatch


class Searcher:
    """Finds facts. Safe for concurrent searches.

    Caches the vectors of the latest queries, with a shelf also across processes.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        self._settings = runtime.settings.search
        self._all_settings = runtime.settings
        self._embedder = runtime.embedder
        size = runtime.settings.search.query_cache
        self._vectors = (
            QueryVectors(runtime.embedder, size, runtime.query_shelf)
            if runtime.embedder is not None
            else None
        )
        self._stages = Stages(runtime)
        self._clock = runtime.clock
        self._embedded: SearchAbility | None = None

    @observed(
        "search",
        after=lambda report: {
            "recipe": report.recipe,
            "queries": len(report.queries),
            "hits": len(report.hits),
        },
    )
    async def search(
        self,
        queries: Sequence[str],
        scopes: Sequence[Scope],
        *,
        recipe: str | None = None,
        top_k: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        session_id: str | None = None,
        tags: Sequence[str] = (),
        key: str | None = None,
        track: bool = True,
        rerank: bool | None = None,
        recency: bool | None = None,
        mmr: bool | None = None,
        exact: bool = False,
        vectors: Sequence[bytes] | None = None,
        vector_model: str | None = None,
        with_vectors: bool = False,
        explain: bool = False,
    ) -> SearchReport:
        """Find the facts of ``scopes`` that answer the queries best.

        Args:
            queries: One to three texts. Each is searched alone, and the results are joined; a fact
                found by several queries has its best score.
            scopes: The scopes to search. Without scopes nothing is found.
            recipe: "convex", "rrf", "semantic" or "text", with optional stages:
                "convex+rerank+recency+mmr". None is the configured recipe, which becomes "text",
                with a notice, without an embedding model.
            top_k: Maximum number of results of each query; None is the configured number.
            since: Only facts formed at or after this time.
            until: Only facts formed before this time.
            session_id: Only facts from this session.
            tags: Only facts with all of these tags.
            key: Only facts with this key.
            track: Count an access on each returned fact.
            rerank: Order the best candidates by a cross-encoder. None, here and below: as in the
                recipe.
            recency: Prefer facts that were formed or corrected recently.
            mmr: Avoid redundant results.
            exact: Compare all vectors in full instead of approximately.
            vectors: The vectors of the queries, if the caller has them.
            vector_model: The model of ``vectors``; None is the model of the embedder or, without
                an embedder, the only model among the vectors of the facts.
            with_vectors: Return the facts with their vectors.
            explain: Return the figures of each stage, and the dropped candidates.

        Raises:
            UsageError: an argument is invalid, or a recipe given by name needs an embedding model
                and none is configured.
            ConfigError: the recipe reranks, and no usable reranker is configured.
            EmbeddingModelMismatch: the stored vectors are of another model.
            ProviderError: the query could not be embedded, or the candidates not reranked.
            StoreError: the store could not be searched.
        """
        texts = validate_queries(queries)
        count = validate_top_k(self._settings.top_k if top_k is None else top_k)
        can_embed = vectors is not None or self._embedder is not None
        plan, notice = choose_recipe(
            recipe,
            self._settings.recipe,
            can_embed=can_embed,
            stages={Stage.RERANK: rerank, Stage.RECENCY: recency, Stage.MMR: mmr},
        )
        self._stages.check(plan)
        notices = [notice] if notice else []
        if not scopes:
            notices.append("no scopes to search")
            return SearchReport(queries=texts, recipe=plan.name, hits=(), notices=tuple(notices))
        clock = Stopwatch()
        ability = await self._ability(plan)
        require_source_words(plan, ability)
        if ability.notice:
            notices.append(ability.notice)
        filter = FactFilter(
            scopes=tuple(dict.fromkeys(scopes)),
            since=since,
            until=until,
            session_id=session_id,
            live_at=self._clock(),
            tags=tuple(tags),
            key=key,
        )
        model = ""
        if plan.semantic:
            model = await model_of_vectors(
                self._store, self._embedder, filter, texts, vectors, vector_model
            )
        in_process = ability.kind == "embedded"
        if in_process and plan.semantic and vectors is None:
            vectors = await self._embed(texts, clock)
        work = self._find(
            _Request(
                plan=plan,
                texts=texts,
                filter=filter,
                ability=ability,
                model=model,
                rules=rules_of(
                    plan,
                    self._settings,
                    model=model,
                    top_k=count,
                    text_floor=ability.text_floor,
                ),
                top_k=count,
                exact=exact,
                clock=clock,
            ),
            vectors,
            notices,
            track=track,
            with_vectors=with_vectors,
            explain=explain,
        )
        return await (run_in_turns(work, "search") if in_process else work)

    async def _ability(self, plan: Recipe) -> SearchAbility:
        """Return how the store searches.

        For embedded indexes only the words of sources may come and go, so the store is asked once.
        """
        if self._embedded is not None and not plan.source:
            return self._embedded
        ability = await in_thread(self._store.search.search_ability)
        if ability.kind == "embedded":
            self._embedded = ability
        return ability

    async def _find(
        self,
        asked: _Request,
        vectors: Sequence[bytes] | None,
        notices: list[str],
        *,
        track: bool,
        with_vectors: bool,
        explain: bool,
    ) -> SearchReport:
        """Run a valid search."""
        plan, clock = asked.plan, asked.clock
        if plan.semantic and vectors is None:
            vectors = await self._embed(asked.texts, clock)
        # One read transaction, unless a reranker is asked in between.
        is_one = asked.ability.kind == "embedded" and Stage.RERANK not in plan.stages
        with self._store.database.snapshot() if is_one else nullcontext():
            with clock.stage("lists"):
                found = await in_thread(self._candidates, asked, vectors or ())
            notices += found.notices
            if plan.semantic:
                notices += await in_thread(self._explain_missing_vectors, asked, found)
            with clock.stage("fusion"):
                pools = [fuse(plan, lists, asked.rules) for lists in found.lists]
            irrelevant = any(cut.stage == MIN_SCORE for pool in pools for cut in pool.cuts)
            pools, facts = await self._stages.run(
                plan,
                pools,
                asked.texts,
                asked.filter.scopes,
                model=asked.model,
                top_k=asked.top_k,
                with_vectors=with_vectors,
                unconfirmed=found.unconfirmed,
                known=found.facts,
                watch=clock,
            )
        joined = join(pools)
        if track and joined.hits:
            with clock.stage("track"):
                notices += await self._track([hit.fact_id for hit in joined.hits])
        return SearchReport(
            queries=asked.texts,
            recipe=plan.name,
            hits=tuple(
                SearchHit(
                    fact=facts[hit.fact_id],
                    score=hit.score,
                    explain=hit.explain if explain else {},
                )
                for hit in joined.hits
            ),
            nothing_relevant=irrelevant and not joined.hits,
            dropped=tuple(
                DroppedCandidate(
                    fact_id=cut.fact_id, stage=cut.stage, why=cut.why, explain=cut.hit.explain
                )
                for cut in (joined.cuts if explain else ())
            ),
            timings_ms=clock.timings(),
            notices=tuple(notices),
        )

    async def _embed(self, texts: Sequence[str], clock: Stopwatch) -> Sequence[bytes]:
        assert self._vectors is not None
        with clock.stage("embed"):
            return await self._vectors.of(texts)

    def _candidates(self, asked: _Request, vectors: Sequence[bytes]) -> Candidates:
        """Return the candidates of each list and question. Blocks."""
        questions = [
            Question(text, vectors[place] if vectors else b"")
            for place, text in enumerate(asked.texts)
        ]
        try:
            return self._store.search.candidates(
                asked.filter,
                questions,
                asked.plan.lists,
                model=asked.model,
                limit=asked.rules.depth,
                exact=asked.exact,
            )
        except EmbeddingModelMismatch as error:
            explain_mismatch(self._store, self._all_settings, error)
            error.add_hint("--recipe text searches by words alone")
            raise

    def _explain_missing_vectors(self, asked: _Request, found: Candidates) -> list[str]:
        """Return notices on facts without a vector of the model, as during a switch. Blocks."""
        model, count = asked.model, found.without_vector
        if not any(lists["semantic"].found for lists in found.lists):
            return self._why_no_vectors(asked, count)
        if not count:
            return []
        switch = self._store.switches.vector_switch()
        if switch is not None and switch.in_force != model == switch.previous:
            return [
                f"facts without a vector of {model!r}: {count:,}; memory was switched to "
                f"{switch.model!r}, set embedding.model to it"
            ]
        others = self._store.vectors.vector_model_names(asked.filter.scopes)
        return [
            f"facts without a vector of {model!r}, found by words alone: {count:,}; "
            f"{vector_advice(self._store, self._all_settings, model, others)}"
        ]

    def _why_no_vectors(self, asked: _Request, without: int) -> list[str]:
        """Return notices that explain an empty semantic list. Blocks."""
        filter, model = asked.filter, asked.model
        models = self._store.vectors.vector_model_names(filter.scopes)
        narrowed = filter.since or filter.until or filter.session_id or filter.tags or filter.key
        if asked.ability.kind == "atlas" and model in models and not narrowed:
            return [
                f"facts have vectors of {model!r}, and none was found: Atlas indexes new facts "
                "with a short delay"
            ]
        if not without or models:
            return []
        return [
            f"none of the {without:,} facts has a vector; searched by words alone; "
            f"{vector_advice(self._store, self._all_settings, model)}"
        ]

    async def _track(self, fact_ids: Sequence[str]) -> list[str]:
        """Count the accesses. A failure does not withhold the results."""
        try:
            await in_thread(self._store.search.track_access, fact_ids, self._clock())
        except WriteRefused:  # read-only, as requested
            return []
        except StoreError as error:
            # Clients read the notices, and the message may name files and addresses.
            _log.debug("accesses were not counted: %s", error)
            return ["accesses were not counted: the store could not be written"]
        return []


class QueryVectors:
    """The vectors of the latest ``size`` queries, in memory and on the shelf, if one is given.

    A ``size`` of 0 turns both off.
    """

    def __init__(self, embedder: Embedder, size: int, shelf: QueryShelf | None = None) -> None:
        self._embedder = embedder
        self._size = size
        self._shelf = shelf if size else None
        self._known: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    async def of(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        """Return a vector for each text, in order, with one model call for all unknown texts.

        Raises:
            ProviderError: the texts could not be embedded.
        """
        model = self._embedder.model
        vectors = {text: self._known[model, text] for text in texts if (model, text) in self._known}
        unknown = [text for text in dict.fromkeys(texts) if text not in vectors]
        if unknown and self._shelf is not None:
            vectors |= await in_thread(self._shelf.get, model, unknown)
            unknown = [text for text in unknown if text not in vectors]
        if unknown:
            try:
                made = (await in_loop(self._embedder.embed, unknown, role="query")).vectors
            except ProviderError as error:
                error.add_hint("--recipe text searches by words alone")
                raise
            fresh = dict(zip(unknown, made, strict=True))
            vectors |= fresh
            if self._shelf is not None:
                await in_thread(self._shelf.put, model, fresh)
        self._keep(model, {text: vectors[text] for text in texts})
        return tuple(vectors[text] for text in texts)

    def _keep(self, model: str, vectors: Mapping[str, bytes]) -> None:
        for text, vector in vectors.items():
            self._known[model, text] = vector
            self._known.move_to_end((model, text))
        while len(self._known) > self._size:
            self._known.popitem(last=False)
