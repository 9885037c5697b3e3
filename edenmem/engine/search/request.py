"""Whether a search can be done as it was asked for, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import get_args

from edenmem.embed import EMBEDDER_HINT
from edenmem.embed.protocol import Embedder
from edenmem.engine.reports import MemoryKind
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.errors import StoreError, UsageError
from edenmem.models.scope import ScopeKind
from edenmem.models.search import FactFilter, SearchAbility
from edenmem.search.recipes import MAX_QUERIES, RECIPES, WITH_SOURCE, Recipe, Stage
from edenmem.search.recipes import recipe as named_recipe
from edenmem.store.protocol.store import Store
from edenmem.text import clean

#: The most results that one query may have.
MAX_TOP_K = 100


def validate_queries(queries: str | Sequence[str]) -> tuple[str, ...]:
    """The queries as they are searched; a text alone is one.

    Raises:
        UsageError: there is none, too many, or a blank one.
    """
    if isinstance(queries, str):
        queries = (queries,)
    if not all(isinstance(query, str) for query in queries):
        raise UsageError(f"a query must be a text: {queries!r:.60}")
    texts = tuple(clean(query).strip() for query in queries)
    if not texts or not all(texts):
        raise UsageError("a query is needed, and it must not be blank")
    if len(texts) > MAX_QUERIES:
        raise UsageError(f"at most {MAX_QUERIES} queries go together, {len(texts)} were given")
    return texts


def validate_top_k(top_k: int) -> int:
    """``top_k``, if it may be so.

    Raises:
        UsageError: it may not.
    """
    if isinstance(top_k, bool) or not isinstance(top_k, int):
        raise UsageError(f"top_k must be a whole number: {top_k!r:.60}")
    if not 1 <= top_k <= MAX_TOP_K:
        raise UsageError(f"top_k is {top_k}, and may be 1 to {MAX_TOP_K}")
    return top_k


def validate_filters(
    within: str | Sequence[str],
    kinds: str | Sequence[str] | None,
    since: object,
    until: object,
) -> tuple[tuple[MemoryKind, ...], tuple[ScopeKind, ...]]:
    """What is searched, and the kinds of scopes; a text alone is one.

    Raises:
        UsageError: one of them does not exist, or a time is not one.
    """
    asked = [within] if isinstance(within, str) else within
    known: tuple[MemoryKind, ...] = get_args(MemoryKind)
    if not asked or not set(asked) <= set(known):
        raise UsageError(f"within takes {', '.join(known)}: {within!r:.60}")
    named = [kinds] if isinstance(kinds, str) else kinds or ()
    if not set(named) <= set(ScopeKind):
        raise UsageError(f"kinds takes {', '.join(ScopeKind)}: {kinds!r:.60}")
    for name, moment in (("since", since), ("until", until)):
        if moment is not None and not isinstance(moment, datetime):
            raise UsageError(f"{name} must be a datetime: {moment!r:.60}")
    return tuple(each for each in known if each in asked), tuple(map(ScopeKind, named))


def complete_recipe(incomplete: str) -> Iterator[str]:
    """The fusions, and what was typed of a recipe with one more stage."""
    yield from RECIPES
    base, _, rest = incomplete.partition("+")
    if base in RECIPES:
        chosen = [stage for stage in rest.split("+")[:-1] if stage in list(Stage)]
        stages = [one for one in Stage if one is not Stage.SOURCE or base in WITH_SOURCE]
        yield from ("+".join([base, *chosen, one]) for one in stages if one not in chosen)


def choose_recipe(
    name: str | None,
    default: str,
    *,
    can_embed: bool,
    stages: Mapping[Stage, bool | None] = {},
) -> tuple[Recipe, str]:
    """The recipe to go by, and what the person should be told about it.

    ``stages`` that are True are added to those that the recipe names, False takes one out.

    Without a way to embed, the ``default`` becomes "text", and that is said; it is never silent.

    Raises:
        UsageError: the recipe was asked for by ``name`` and needs vectors that cannot be had.
    """
    plan = named_recipe(name or default, stages=stages)
    if can_embed or not plan.semantic:
        return plan, ""
    if name is not None:
        raise UsageError(
            f"recipe {plan.base!r} needs an embedding model, and there is none",
            hint=f"{EMBEDDER_HINT}; or search with recipe 'text'",
        )
    notice = f"no embedding model, so words alone were searched; {EMBEDDER_HINT}"
    return named_recipe("text", stages=dict.fromkeys(plan.stages, True)), notice


#: What makes the words of source messages searchable, by the kind of store.
_SOURCE_HINTS = {
    "embedded": "'edenmem index create facts_source' creates the index",
    "atlas": "Atlas indexes facts only; leave '+source' out of the recipe",
}


def demand_source_words(plan: Recipe, ability: SearchAbility) -> None:
    """Refuse a recipe with the stage "source" where the store cannot search source messages.

    Raises:
        StoreError: the store has no index of these words.
    """
    if plan.source and not ability.source_words:
        raise StoreError(
            f"recipe {plan.name!r} needs an index of the source messages",
            hint=_SOURCE_HINTS.get(ability.kind),
        )


async def vector_model(
    store: Store,
    embedder: Embedder | None,
    filter: FactFilter,
    texts: Sequence[str],
    vectors: Sequence[bytes] | None,
    named: str | None,
) -> str:
    """The model of the query's vectors; facts with vectors of another are not compared.

    Raises:
        UsageError: ``vectors`` are too few or of a wrong length, or nobody can tell their model.
    """
    if vectors is None:
        assert embedder is not None
        return embedder.model
    if len(vectors) != len(texts):
        raise UsageError(f"{len(texts)} queries need as many vectors, not {len(vectors)}")
    if embedder is not None and named in (None, embedder.model):
        for vector in vectors:
            if len(vector) != 4 * embedder.dimensions:
                raise UsageError(
                    f"a vector of {embedder.model!r} has {embedder.dimensions} numbers, "
                    f"one that was given has {len(vector) / 4:g}"
                )
        return embedder.model
    if named is not None:
        return named
    stored = await in_thread(store.vectors.vector_model_names, filter.scopes)
    if len(stored) > 1:
        raise UsageError(
            f"the facts have vectors of several models ({', '.join(stored)}); "
            "name the one that the given vectors are of"
        )
    return stored[0] if stored else ""
