"""Search of reflections and texts by words.

The buffer and the text of a scope are small compared with its facts, so they are read and compared
without an index. A match in a text is a paragraph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice

import msgspec

from edenmem.engine.reports import MemoryHit, MemoryKind, SearchReport
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.search.request import validate_queries, validate_top_k
from edenmem.errors import StoreError
from edenmem.models.scope import Scope, ScopeKind
from edenmem.search.text_ranking import Corpus
from edenmem.store.protocol.store import Store


def search_passages(
    runtime: Runtime,
    queries: Sequence[str],
    scopes: Sequence[Scope],
    kinds: Sequence[MemoryKind],
    *,
    top_k: int | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    session_id: str | None = None,
    **_: object,
) -> SearchReport:
    """Find the reflections and paragraphs of texts that match the queries' words. Blocks.

    Args:
        runtime: The store and the settings.
        queries: One to three queries; a passage found by several has its best score.
        scopes: The scopes to search.
        kinds: The kinds of memory to search; facts are ignored.
        top_k: Maximum number of results of each kind; None is the configured number.
        since: Only reflections formed, and texts written, at or after this time.
        until: Only reflections formed, and texts written, before this time.
        session_id: Only reflections from this session, and only the session's text.
        **_: Options of the fact search, ignored.

    Raises:
        UsageError: a query or number is invalid.
        StoreError: more reflections or paragraphs than ``search.scan_limit``.
    """
    settings = runtime.settings.search
    texts = validate_queries(queries)
    limit = validate_top_k(settings.top_k if top_k is None else top_k)
    found: list[MemoryHit] = []
    if "reflections" in kinds:
        reflections = _reflections(runtime.store, scopes, since, until, session_id)
        found += _rank(reflections, texts, limit, settings.scan_limit)
    if "texts" in kinds:
        if session_id is not None:
            scopes = [scope for scope in scopes if scope.kind is ScopeKind.SESSION]
        paragraphs = _paragraphs(runtime.store, scopes, since, until)
        found += _rank(paragraphs, texts, limit, settings.scan_limit)
    return SearchReport(queries=texts, recipe="text", hits=(), passages=tuple(found))


def _rank(
    passages: Iterable[MemoryHit], queries: Sequence[str], limit: int, most: int
) -> list[MemoryHit]:
    read = list(islice(passages, most + 1))
    if len(read) > most:
        raise StoreError(
            f"more than {most:,} reflections or paragraphs to search",
            hint="narrow the search by scope, time or session, or raise search.scan_limit",
        )
    corpus = Corpus((str(number), passage.content) for number, passage in enumerate(read))
    scores: dict[int, float] = {}
    for query in queries:
        for key, score in corpus.best(corpus.weigh(query), limit):
            scores[int(key)] = max(score, scores.get(int(key), 0.0))
    best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:limit]
    return [msgspec.structs.replace(read[number], score=score) for number, score in best]


def _reflections(
    store: Store,
    scopes: Sequence[Scope],
    since: datetime | None,
    until: datetime | None,
    session_id: str | None,
) -> Iterator[MemoryHit]:
    for each in store.memory.reflections(scopes, since=since, before=until):
        if session_id is None or each.session_id == session_id:
            yield MemoryHit(
                kind="reflection",
                id=each.id,
                scope=each.home,
                content=each.content,
                at=each.dated_at,
                version=each.version,
                unconfirmed=each.unconfirmed,
            )


def _paragraphs(
    store: Store, scopes: Sequence[Scope], since: datetime | None, until: datetime | None
) -> Iterator[MemoryHit]:
    for scope, text in store.memory.consolidations(scopes).items():
        at = text.last_consolidated_at or text.updated_at
        if (since and (at is None or at < since)) or (until and (at is None or at >= until)):
            continue
        for paragraph in text.consolidated_content.splitlines():
            if paragraph.strip():
                yield MemoryHit(
                    kind="text",
                    id=text.id,
                    scope=scope,
                    content=paragraph.strip(),
                    at=at,
                    version=text.version,
                )
