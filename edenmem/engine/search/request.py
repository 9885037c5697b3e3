"""Validation of a search request, and the choice of its recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import get_args

from edenmem.embed import embedder_hint
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

#: Maximum number of results of one query.
MAX_TOP_K = 100


def validate_queries(queries: str | Sequence[str]) -> tuple[str, ...]:
    """Return the cleaned queries; a single text is one query.

    Raises:
        UsageError: no query, too many queries, or a blank query.
    """
    if isinstance(queries, str):
        queries = (queries,)
    if not all(isinstance(query, str) for query in queries):
        raise UsageError(f"a query must be text: {queries!r:.60}")
    texts = tuple(clean(query).strip() for query in queries)
    if not texts or not all(texts):
        raise UsageError("query is missing or blank")
    if len(texts) > MAX_QUERIES:
        raise UsageError(f"too many queries: {len(texts)} (maximum {MAX_QUERIES})")
    return texts


def validate_top_k(top_k: int) -> int:
    """Return ``top_k`` if it is valid.

    Raises:
        UsageError: ``top_k`` is not a whole number in range.
    """
    if isinstance(top_k, bool) or not isinstance(top_k, int):
        raise UsageError(f"top_k is not a whole number: {top_k!r:.60}")
    if not 1 <= top_k <= MAX_TOP_K:
        raise UsageError(f"top_k is not between 1 and {MAX_TOP_K}: {top_k}")
    return top_k


def validate_filters(
    within: str | Sequence[str],
    kinds: str | Sequence[str] | None,
    since: object,
    until: object,
) -> tuple[tuple[MemoryKind, ...], tuple[ScopeKind, ...]]:
    """Return the kinds of memory and of scopes to search; a single text is a list of one.

    Raises:
        UsageError: a kind is unknown, or a time is not a datetime.
    """
    asked = [within] if isinstance(within, str) else within
    known: tuple[MemoryKind, ...] = get_args(MemoryKind)
    if not asked or not set(asked) <= set(known):
        raise UsageError(f"within is not one of {', '.join(known)}: {within!r:.60}")
    named = [kinds] if isinstance(kinds, str) else kinds or ()
    if not set(named) <= set(ScopeKind):
        raise UsageError(f"kinds is not one of {', '.join(ScopeKind)}: {kinds!r:.60}")
    for name, moment in (("since", since), ("until", until)):
        if moment is not None and not isinstance(moment, datetime):
            raise UsageError(f"{name} is not a datetime: {moment!r:.60}")
    return tuple(each for each in known if each in asked), tuple(map(ScopeKind, named))


def complete_recipe(incomplete: str) -> Iterator[str]:
    """Complete a recipe: the fusions, or the typed recipe with one more stage."""
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
    """Return the recipe to use, and a notice for the user.

    ``stages`` adds (True) or removes (False) stages. Without an embedding model ``default`` becomes
    "text", with a notice.

    Raises:
        UsageError: the recipe was given by ``name`` and needs an embedding model.
    """
    plan = named_recipe(name or default, stages=stages)
    if can_embed or not plan.semantic:
        return plan, ""
    if name is not None:
        raise UsageError(
            f"recipe {plan.base!r} needs an embedding model, and none is configured",
            hint=f"{embedder_hint()}; or use recipe 'text'",
        )
    notice = f"no embedding model: searched by words alone; {embedder_hint()}"
    return named_recipe("text", stages=dict.fromkeys(plan.stages, True)), notice


#: What makes the words of source messages searchable, by the kind of store.
_SOURCE_HINTS = {
    "embedded": "'edenmem index create facts_source' creates or completes the index",
    "atlas": "Atlas indexes facts only; leave '+source' out of the recipe",
}


def check_callers_recipe(name: str | None, configured: str) -> None:
    """Check that a caller of the server uses ``+source`` only if the configured recipe does.

    Raises:
        UsageError: ``name`` is unknown, or adds ``+source``.
    """
    if not name:
        return
    if named_recipe(name).source and not named_recipe(configured).source:
        raise UsageError(
            f"recipe {name!r} is not allowed: '+source' is off on this server",
            hint="it is allowed if the setting search.recipe has '+source'",
        )


def require_source_words(plan: Recipe, ability: SearchAbility) -> None:
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
    """Return the model of the query vectors; only facts with vectors of this model are compared.

    Raises:
        UsageError: ``vectors`` have a wrong number or length, or their model is ambiguous.
    """
    if vectors is None:
        assert embedder is not None
        return embedder.model
    if len(vectors) != len(texts):
        raise UsageError(f"{len(texts)} queries but {len(vectors)} vectors")
    if embedder is not None and named in (None, embedder.model):
        for vector in vectors:
            if len(vector) != 4 * embedder.dimensions:
                raise UsageError(
                    f"query vector has {len(vector) / 4:g} dimensions; "
                    f"{embedder.model!r} has {embedder.dimensions}"
                )
        return embedder.model
    if named is not None:
        return named
    stored = await in_thread(store.vectors.vector_model_names, filter.scopes)
    if len(stored) > 1:
        raise UsageError(
            f"the facts have vectors of several models ({', '.join(stored)}); "
            "name the model of the given vectors"
        )
    return stored[0] if stored else ""
