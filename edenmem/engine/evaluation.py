"""Evaluation of recipes on labeled queries, by searching for each query with each recipe.

Each query is embedded once. Nothing is written, and no access is counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from edenmem.engine.reports import SearchReport
from edenmem.engine.runtime.concurrency import gather_or_cancel
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.references import Resolver
from edenmem.engine.scopes.visibility import reader_scopes
from edenmem.engine.search.request import choose_recipe, validate_top_k
from edenmem.engine.search.searcher import Searcher
from edenmem.engine.search.stages import Stages
from edenmem.engine.sessions.format import read_lines
from edenmem.errors import AmbiguousReference, InputError, NotFoundError, UsageError
from edenmem.invalid import EMPTY, explain_json, explain_value
from edenmem.models.ids import is_id
from edenmem.models.memory import content_hash
from edenmem.models.scope import Scope
from edenmem.search.metrics import ndcg, recall, reciprocal_rank
from edenmem.search.recipes import RECIPES, Recipe
from edenmem.store.protocol.store import Store, batched
from edenmem.text import clean, one_line

_EXAMPLE = (
    'a line is such as {"query": "when does the walk start", "agent": "mira", "user": "lena",'
    ' "relevant": ["The walk starts at 17:30."]}'
)


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the file."""

    query: str
    agent: str
    relevant: tuple[str, ...]
    user: str | None = None
    group: str | None = None
    shard: str | None = None
    kind: str = ""


class LabeledQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query, its searched scopes, and the IDs of the facts that answer it.

    ``relevant`` is empty for a query without an answer. ``line`` is the line in the file, ``kind``
    an optional group for the results.
    """

    line: int
    query: str
    scopes: tuple[Scope, ...]
    relevant: frozenset[str]
    kind: str = ""


class UnknownLabel(msgspec.Struct, frozen=True, kw_only=True):
    """A label without a fact that the query's reader may see."""

    line: int
    label: str
    why: str


class LabeledSet(msgspec.Struct, frozen=True, kw_only=True):
    """The queries of a file, and the labels that are unknown.

    Unknown labels are left out of their queries. A query with unknown labels only (``lost``, by
    line) is left out of the set: it is not a query without an answer.
    """

    queries: tuple[LabeledQuery, ...]
    unknown: tuple[UnknownLabel, ...] = ()
    lost: tuple[int, ...] = ()

    @property
    def unanswerable(self) -> int:
        """Return the number of queries labeled as having no answer."""
        return sum(not query.relevant for query in self.queries)


def read_queries(store: Store, lines: Iterable[bytes | str]) -> LabeledSet:
    """Read the queries of a JSON Lines file.

    Each line has ``query``, ``agent`` and ``relevant``: full IDs of facts, or their exact texts.
    Optional are ``user``, ``group`` and ``shard``, as the options of a search, and ``kind``. A text
    means all visible facts with that text.

    Raises:
        InputError: a line is invalid or names an unknown agent, user or shard; or the file is
            empty.
    """
    resolver = Resolver(store)
    readable: dict[tuple[str | None, ...], tuple[Scope, ...]] = {}
    queries, unknown, lost = list[LabeledQuery](), list[UnknownLabel](), list[int]()
    for number, data in read_lines(lines):
        row = _row(number, data)
        key = (row.agent, row.user, row.group, row.shard)
        try:
            scopes = readable[key] = readable.get(key) or _readable(store, resolver, row)
        except (NotFoundError, AmbiguousReference) as error:
            raise InputError(error.message, line=number, hint=error.hint) from error
        relevant: set[str] = set()
        for label in row.relevant:
            found = _find_facts(store, label, scopes)
            relevant |= found
            if not found:
                why = _why_not(store, label)
                unknown.append(UnknownLabel(line=number, label=label, why=why))
        if row.relevant and not relevant:
            lost.append(number)
            continue
        queries.append(
            LabeledQuery(
                line=number,
                query=clean(row.query).strip(),
                scopes=scopes,
                relevant=frozenset(relevant),
                kind=row.kind,
            )
        )
    if not queries and not lost:
        raise InputError("no queries in the file", hint=_EXAMPLE)
    return LabeledSet(queries=tuple(queries), unknown=tuple(unknown), lost=tuple(lost))


def _row(number: int, data: bytes) -> _Row:
    try:
        row = msgspec.json.decode(data, type=_Row)
    except msgspec.ValidationError as error:
        raise InputError(explain_value(error), line=number, hint=_EXAMPLE) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(explain_json(data), line=number, hint=_EXAMPLE) from error
    if not clean(row.query).strip():
        raise InputError(f"query {EMPTY}", line=number, hint=_EXAMPLE)
    return row


def _readable(store: Store, resolver: Resolver, row: _Row) -> tuple[Scope, ...]:
    """Return the scopes that the reader of a row may see."""
    agent = resolver.agent(row.agent)
    return reader_scopes(
        store,
        agent,
        user_id=resolver.user_id(row.user, agent_id=agent.id) if row.user else None,
        group_id=resolver.group(agent, row.group) if row.group else None,
        shards=[resolver.shard(agent, row.shard)] if row.shard else None,
        kinds=None,
    )


def _find_facts(store: Store, label: str, scopes: Sequence[Scope]) -> set[str]:
    """Return the visible facts with this ID or text."""
    if is_id(label.lower()):
        return set(store.memory.facts_by_ids(scopes, [label.lower()]))
    digest = content_hash(clean(label).strip())
    found = (store.memory.facts_by_hashes(scope, [digest]) for scope in scopes)
    return {fact.id for facts in found for fact in facts.values()}


def _why_not(store: Store, label: str) -> str:
    if not is_id(label.lower()):
        return f"no searched fact has the text: {one_line(label, 60)!r}"
    if store.memory.fact(label.lower()) is None:
        return f"unknown fact: {label}"
    return f"fact is outside the scopes of this line: {label}"


# -- measuring -------------------------------------------------------------------------------------

#: Cutoff of MRR and nDCG.
CUTOFF = 10

#: Queries in one request to a provider.
_BATCH = 64
#: Queries that are searched concurrently.
_AT_ONCE = 8
#: Maximum number of notices, which may differ from scope to scope.
_MOST_NOTICES = 10


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


class Evaluator:
    """Measures recipes on labeled queries. Only reads."""

    def __init__(self, runtime: Runtime) -> None:
        self._settings = runtime.settings.search
        self._embedder = runtime.embedder
        self._stages = Stages(runtime)
        self._searcher = Searcher(runtime)
        self._vectors: dict[str, bytes] = {}
        self.read = partial(read_queries, runtime.store)

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
            UsageError: there are no queries, or a recipe is unknown, or needs an embedding model
                and none is configured.
            ConfigError: a recipe reranks, and no reranker is configured.
            EmbeddingModelMismatch: the stored vectors are of another model.
            ProviderError: the queries could not be embedded, or the candidates not reranked.
            StoreError: the store could not be searched.
        """
        count = validate_top_k(self._settings.top_k if top_k is None else top_k)
        plans, notices = self._plans(recipes)
        for plan in plans:
            self._stages.check(plan)
        if not queries:
            raise UsageError("no queries to evaluate")
        kinds = list(dict.fromkeys(query.kind for query in queries if query.kind))
        scores: list[RecipeScore] = []
        for plan in plans:
            reports = await self.search(plan, queries, top_k=max(count, CUTOFF))
            rankings = [[hit.fact.id for hit in report.hits] for report in reports]
            notices |= dict.fromkeys(notice for report in reports for notice in report.notices)
            scores += [
                _summarize(plan.name, kind, queries, rankings, top_k=count) for kind in ("", *kinds)
            ]
        return Evaluation(top_k=count, scores=tuple(scores), notices=tuple(notices)[:_MOST_NOTICES])

    def _plans(self, names: Sequence[str]) -> tuple[list[Recipe], dict[str, None]]:
        """Return the named recipes, or by default those that can run, and notices on the others.

        Raises:
            UsageError: a named recipe is unknown or cannot run.
        """
        can_embed = self._embedder is not None
        if names:
            unique = dict.fromkeys(names)
            return [choose_recipe(name, name, can_embed=can_embed)[0] for name in unique], {}
        plans = [plan for plan in RECIPES.values() if can_embed or not plan.semantic]
        configured, notice = choose_recipe(None, self._settings.recipe, can_embed=can_embed)
        if configured not in plans:
            plans.append(configured)
        return plans, {notice: None} if notice else {}

    async def search(
        self, plan: Recipe, queries: Sequence[LabeledQuery], *, top_k: int
    ) -> list[SearchReport]:
        """Search for each query."""
        if plan.semantic and self._embedder is not None:
            texts = dict.fromkeys(query.query for query in queries)
            for batch in batched([text for text in texts if text not in self._vectors], _BATCH):
                made = await self._embedder.embed(batch, role="query")
                self._vectors.update(zip(batch, made.vectors, strict=True))
        found: list[SearchReport] = []
        for group in batched(queries, _AT_ONCE):
            found += await gather_or_cancel(
                [
                    self._searcher.search(
                        [query.query],
                        query.scopes,
                        recipe=plan.name,
                        top_k=top_k,
                        track=False,
                        vectors=[self._vectors[query.query]] if plan.semantic else None,
                        vector_model=self._embedder.model if self._embedder else None,
                    )
                    for query in group
                ]
            )
        return found


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
