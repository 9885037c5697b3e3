"""Explanation of why a search does not return a fact: the stages of the search for that fact.

For operators, who may see every scope; readers never learn about facts outside their scopes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from edenmem.engine.reports import SearchReport
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.search.request import (
    choose_recipe,
    require_source_words,
    validate_queries,
    validate_top_k,
)
from edenmem.engine.search.searcher import Searcher
from edenmem.errors import EmbeddingModelMismatch, NotFoundError
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter, Question
from edenmem.search.recipes import MIN_SCORE, Recipe, Stage, rules_of

#: Depth to which each list is searched for the fact.
_DEEP = 10_000


class ListPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The place of the fact in one list.

    ``rank`` counts from 1; None: not among the first 10,000. ``depth`` is the depth of the search,
    ``floor`` its minimum score.
    """

    name: str
    rank: int | None
    score: float | None
    depth: int
    floor: float | None = None


class WhyNot(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one fact and query.

    ``stage`` is where the fact was dropped: "scope", "filter", "embedding", "depth", "words", a
    stage of the search, or "found". ``advice`` is what would change that. ``explain`` has the
    entries of the stages that the fact passed.
    """

    fact: Fact
    query: str
    recipe: str
    in_scope: bool
    vector: str
    lists: tuple[ListPlace, ...]
    stage: str
    why: str
    advice: str = ""
    explain: dict[str, Any] = msgspec.field(default_factory=dict)
    notices: tuple[str, ...] = ()


class MissExplainer:
    """Explains searches of one store, with the settings and the model of the searches."""

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        self._settings = runtime.settings.search
        self._embedder = runtime.embedder
        self._searcher = Searcher(runtime)
        self._clock = runtime.clock

    async def why_not(
        self,
        fact_id: str,
        query: str,
        scopes: Sequence[Scope],
        *,
        recipe: str | None = None,
        top_k: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        session_id: str | None = None,
        tags: Sequence[str] = (),
        key: str | None = None,
        rerank: bool | None = None,
        recency: bool | None = None,
        mmr: bool | None = None,
        exact: bool = False,
    ) -> WhyNot:
        """Explain why the search does not return the fact, or that it does.

        The arguments are those of `Searcher.search`. No access is counted.

        Raises:
            NotFoundError: the fact does not exist.
            UsageError: as `Searcher.search`.
            ProviderError: the query could not be embedded.
            StoreError: the store could not be searched.
        """
        (text,) = validate_queries([query])
        count = validate_top_k(self._settings.top_k if top_k is None else top_k)
        fact = await in_thread(self._load, fact_id)
        plan, notice = choose_recipe(
            recipe,
            self._settings.recipe,
            can_embed=self._embedder is not None,
            stages={Stage.RERANK: rerank, Stage.RECENCY: recency, Stage.MMR: mmr},
        )
        filter = FactFilter(
            scopes=tuple(dict.fromkeys(scopes)),
            since=since,
            until=until,
            session_id=session_id,
            live_at=self._clock(),
            tags=tuple(tags),
            key=key,
        )
        ruled_out = _find_exclusion(fact, filter)
        asked: bytes | None = None
        if ruled_out is None and plan.semantic and self._embedder is not None:
            (asked,) = (await self._embedder.embed([text], role="query")).vectors
        vector, fits = self._vector_state(fact, asked)
        places: tuple[ListPlace, ...] = ()
        report: SearchReport | None = None
        if ruled_out is None:
            vector_asked = asked if fits else None
            places = await in_thread(self._places, fact, text, plan, filter, count, vector_asked)
            try:
                report = await self._searcher.search(
                    [text],
                    filter.scopes,
                    recipe=plan.name,
                    top_k=count,
                    since=since,
                    until=until,
                    session_id=session_id,
                    tags=tags,
                    key=key,
                    exact=exact,
                    track=False,
                    vectors=None if asked is None else [asked],
                    explain=True,
                )
            except EmbeddingModelMismatch as error:
                ruled_out = ("embedding", error.message, error.hint or "", {})
        stage, why, advice, explain = ruled_out or self._verdict(
            fact, plan, places, report, vector=vector, fits=fits
        )
        return WhyNot(
            fact=msgspec.structs.replace(fact, embedding=None),
            query=text,
            recipe=plan.name,
            in_scope=fact.home in filter.scopes,
            vector=vector,
            lists=places,
            stage=stage,
            why=why,
            advice=advice,
            explain=explain,
            notices=(*([notice] if notice else []), *(report.notices if report else ())),
        )

    def _load(self, fact_id: str) -> Fact:
        """Load the fact, preferably with its vector of the configured model. Blocks."""
        fact = self._store.memory.fact(fact_id, with_vector=True)
        if fact is None:
            raise NotFoundError(f"unknown fact: {fact_id!r}")
        model = self._embedder.model if self._embedder is not None else fact.embedding_model
        if model is None or model == fact.embedding_model:
            return fact
        found = self._store.switches.vectors_of([fact.id], model=model)
        if fact.id not in found:
            return fact
        return msgspec.structs.replace(fact, embedding=found[fact.id], embedding_model=model)

    def _vector_state(self, fact: Fact, asked: bytes | None) -> tuple[str, bool]:
        """Describe the vector of the fact, and whether it is comparable with the query's."""
        if fact.embedding is None:
            return "none", False
        length = len(fact.embedding) // 4
        said = f"{fact.embedding_model or 'an unknown model'}, {length:,} dimensions"
        is_current = self._embedder is not None and fact.embedding_model == self._embedder.model
        return said, is_current and asked is not None and len(asked) == len(fact.embedding)

    def _places(
        self,
        fact: Fact,
        text: str,
        plan: Recipe,
        filter: FactFilter,
        count: int,
        asked: bytes | None,
    ) -> tuple[ListPlace, ...]:
        """Find the fact's place in each list. Blocks."""
        ability = self._store.search.search_ability()
        require_source_words(plan, ability)
        model = self._embedder.model if self._embedder else fact.embedding_model or ""
        rules = rules_of(
            plan, self._settings, model=model, top_k=count, text_floor=ability.text_floor
        )
        found = self._store.search.candidates(
            filter,
            [Question(text, asked or b"")],
            [name for name in plan.lists if name != "semantic" or asked],
            model=fact.embedding_model or "",
            limit=_DEEP,
            exact=True,
        ).lists[0]
        places = []
        for name in plan.lists:
            scores = found[name].found if name in found else {}
            rank = list(scores).index(fact.id) + 1 if fact.id in scores else None
            score = scores.get(fact.id)
            if name == "semantic" and asked and fact.embedding is not None:
                score = _score(asked, fact.embedding)
            floor = rules.floors.get(name)
            places.append(
                ListPlace(name=name, rank=rank, score=score, depth=rules.depth, floor=floor)
            )
        return tuple(places)

    def _verdict(
        self,
        fact: Fact,
        plan: Recipe,
        places: Sequence[ListPlace],
        report: SearchReport | None,
        *,
        vector: str,
        fits: bool,
    ) -> tuple[str, str, str, dict[str, Any]]:
        for rank, hit in enumerate(report.hits if report else (), 1):
            if hit.fact.id == fact.id:
                why = f"found at rank {rank} of {len(report.hits if report else ())}"
                return "found", why, "", hit.explain
        for cut in report.dropped if report else ():
            if cut.fact_id == fact.id:
                return cut.stage, cut.why, _CUT.get(cut.stage, ""), cut.explain
        deep = [place for place in places if place.rank is not None]
        if deep:
            said = ", ".join(f"rank {p.rank} of the {p.name} list" for p in deep)
            why = f"{said}; the search reads the first {deep[0].depth}"
            return "depth", why, "raise search.depth or --limit, or add words of the fact", {}
        if plan.semantic and not fits:
            model = self._embedder.model if self._embedder else ""
            why = f"its vector is {vector}, the query's is of {model}" + (
                ", and no word of the query matches" if "text" in plan.lists else ""
            )
            return "embedding", why, "'edenmem embed backfill' creates its vector", {}
        if plan.semantic:
            why = f"not among the first {_DEEP:,} by meaning" + (
                ", and no word of the query matches" if "text" in plan.lists else ""
            )
            return "depth", why, "use words closer to the fact", {}
        return "words", "no word of the query matches", "search by meaning too", {}


#: Advice by the stage that cut the fact.
_CUT = {
    "semantic": "lower search.semantic_floor (try it with --set), or use words of the fact",
    "text": "lower search.text_floor (try it with --set)",
    MIN_SCORE: "lower search.min_score (try it with --set), or use words of the fact",
    "fusion": "lower search.rrf_floor (try it with --set)",
    "top_k": "raise --limit; or weigh otherwise: search.semantic_weight, or stages of"
    " --recipe (or leave out what put it down)",
    "rerank": "raise search.rerank_depth, lower search.rerank_floor, or leave out +rerank",
    "mmr": "raise --limit or search.mmr_lambda, or leave out +mmr",
}


def _find_exclusion(fact: Fact, filter: FactFilter) -> tuple[str, str, str, dict[str, Any]] | None:
    """Return why the filter excludes the fact; None if it does not."""
    if fact.home not in filter.scopes:
        agent, owner = fact.home.agent_id, fact.home.owner
        whose = f"{owner} of agent {agent}" if owner else f"of {agent}"
        why = f"in the {fact.home.kind} scope {whose}, which is not searched"
        return "scope", why, _whose(fact.home), {}
    if filter.session_id is not None and fact.session_id != filter.session_id:
        return "filter", "from another session", "leave out --session", {}
    if filter.live_at is not None and fact.has_expired(filter.live_at):
        return "filter", "expired", f"edenmem edit {fact.id} --expires never", {}
    if not set(filter.tags) <= set(fact.tags) or filter.key not in (None, fact.key):
        return "filter", "without the tags or the key", "leave out --tag and --key", {}
    dated = f"{'said' if fact.said_at else 'formed'} at {fact.dated_at:%Y-%m-%d %H:%M} UTC"
    if filter.since is not None and fact.dated_at < filter.since:
        why = f"{dated}, before --since"
        return "filter", why, "use an earlier --since", {}
    if filter.until is not None and fact.dated_at >= filter.until:
        why = f"{dated}, not before --until"
        return "filter", why, "use a later --until", {}
    return None


def _whose(scope: Scope) -> str:
    option = {"user": "--user", "group": "--group", "shard": "--shard"}.get(scope.kind.value)
    owner = f" {option} {scope.owner}" if option else ""
    return f"search with --agent {scope.agent_id}{owner}, and no other --scope"


def _score(one: bytes, other: bytes) -> float | None:
    """Return (1 + cosine) / 2; None for a zero vector."""
    a, b = (struct.unpack(f"<{len(vector) // 4}f", vector) for vector in (one, other))
    lengths = math.hypot(*a) * math.hypot(*b)
    return (
        (1.0 + math.fsum(x * y for x, y in zip(a, b, strict=True)) / lengths) / 2.0
        if lengths
        else None
    )
