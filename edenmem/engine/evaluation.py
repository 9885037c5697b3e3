"""Evaluation of recipes on labeled queries.

The candidates of each query are fetched once, to the depth of the deepest recipe. They are fused
for every recipe and run through its stages by the code of the search. Nothing is written, and no
access is counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from edenmem.engine.runtime.concurrency import gather_or_cancel, in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.references import Resolver
from edenmem.engine.scopes.visibility import reader_scopes
from edenmem.engine.search.request import choose_recipe, require_source_words, validate_top_k
from edenmem.engine.search.stages import Stages
from edenmem.engine.sessions.format import read_lines
from edenmem.errors import AmbiguousReference, InputError, NotFoundError, UsageError
from edenmem.invalid import EMPTY, explain_json, explain_value
from edenmem.models.ids import is_id
from edenmem.models.memory import content_hash
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter, Lists, Question, SearchAbility
from edenmem.search.metrics import ndcg, recall, reciprocal_rank
from edenmem.search.recipes import (
    RECIPES,
    Recipe,
    Rules,
    fuse,
    rules_of,
)
from edenmem.settings.schema import SearchSettings
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


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A query, its candidates by list, and which of them are unconfirmed."""

    query: LabeledQuery
    lists: Lists
    unconfirmed: frozenset[str] = frozenset()


class Foundation(msgspec.Struct, frozen=True, kw_only=True):
    """The candidates of all queries, how the store found them, and the model of their vectors."""

    found: tuple[Found, ...]
    ability: SearchAbility
    model: str

    def rules(self, plan: Recipe, settings: SearchSettings, top_k: int) -> Rules:
        """Return the rules of a recipe for these candidates."""
        return rules_of(
            plan, settings, model=self.model, top_k=top_k, text_floor=self.ability.text_floor
        )


class Evaluator:
    """Measures recipes on labeled queries. Only reads."""

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        self._settings = runtime.settings.search
        self._embedder = runtime.embedder
        self._clock = runtime.clock
        self._stages = Stages(runtime)
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
        base = await self.candidates(queries, plans, depth=depth)
        notices += [base.ability.notice] if base.ability.notice else []
        kinds = list(dict.fromkeys(query.kind for query in queries if query.kind))
        scores: list[RecipeScore] = []
        for plan in plans:
            rankings = await self._rankings(plan, base, top_k=count)
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

    async def candidates(
        self, queries: Sequence[LabeledQuery], plans: Sequence[Recipe], *, depth: int
    ) -> Foundation:
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
        names = list(dict.fromkeys(name for plan in plans for name in plan.lists))
        vectors = await self._vectors(queries) if "semantic" in names else {}
        model = self._embedder.model if self._embedder and vectors else ""
        groups: dict[tuple[Scope, ...], list[LabeledQuery]] = {}
        for query in queries:
            groups.setdefault(query.scopes, []).append(query)
        found: dict[int, Found] = {}
        for scopes, group in groups.items():
            for batch in batched(group, _BATCH):
                candidates = await in_thread(
                    self._store.search.candidates,
                    FactFilter(scopes=scopes, live_at=self._clock()),
                    [Question(each.query, vectors.get(each.query, b"")) for each in batch],
                    names,
                    model=model,
                    limit=depth,
                )
                for query, lists in zip(batch, candidates.lists, strict=True):
                    found[id(query)] = Found(
                        query=query, lists=lists, unconfirmed=candidates.unconfirmed
                    )
        return Foundation(
            found=tuple(found[id(query)] for query in queries), ability=ability, model=model
        )

    async def _rankings(self, plan: Recipe, base: Foundation, *, top_k: int) -> list[list[str]]:
        """Rank the facts of each query as a search would."""
        count = max(top_k, CUTOFF)
        rules = base.rules(plan, self._settings, count)
        model = base.model if plan.semantic else ""

        async def one(each: Found) -> list[str]:
            query = each.query
            (staged,), _ = await self._stages.run(
                plan,
                [fuse(plan, each.lists, rules)],
                [query.query],
                query.scopes,
                model=model,
                top_k=count,
                unconfirmed=each.unconfirmed,
            )
            return [hit.fact_id for hit in staged.hits]

        rankings: list[list[str]] = []
        for batch in batched(base.found, _STAGED_AT_ONCE):
            rankings += await gather_or_cancel([one(each) for each in batch])
        return rankings

    async def _vectors(self, queries: Sequence[LabeledQuery]) -> dict[str, bytes]:
        assert self._embedder is not None
        texts = list(dict.fromkeys(query.query for query in queries))
        vectors: dict[str, bytes] = {}
        for batch in batched(texts, _BATCH):
            made = await self._embedder.embed(batch, role="query")
            vectors.update(zip(batch, made.vectors, strict=True))
        return vectors


def ranking(plan: Recipe, found: Found, rules: Rules, *, top_k: int) -> list[str]:
    """Rank by fusion alone: the fact IDs, best first."""
    return [hit.fact_id for hit in fuse(plan, found.lists, rules).hits[:top_k]]


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
