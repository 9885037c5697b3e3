"""Verify a forgetting: search stored texts, search results and contexts for remaining traces.

Traces are names and removed texts. Memory that was kept by decision is not a finding.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from itertools import islice

import msgspec

from edenmem.engine.context.builder import ContextBuilder
from edenmem.engine.context.recall import Recaller
from edenmem.engine.erasure.mentions import may_concern, names_of
from edenmem.engine.erasure.passages import walk_passages
from edenmem.engine.erasure.reports import ForgetPlan, Probe, name_unreadable
from edenmem.engine.erasure.survey import count_traces
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.visibility import reader_scopes
from edenmem.engine.search.searcher import Searcher
from edenmem.errors import EmbeddingModelMismatch, ProviderError
from edenmem.models.host import Agent, Session
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import batched
from edenmem.text import escape_xml, legible, word_count

#: Sample sizes of searches and contexts; the scan of texts is complete.
_SEARCHES = 24
_CONTEXTS = 10
#: Queries per search.
_QUERIES = 3
#: Shorter texts may apply to many people.
_TELLING_WORDS = 4

#: Kinds of `Store.count_traces` that reappear in live use, without content of the subject.
_ALIVE = frozenset({"cached contexts", "notes of replies"})


class Prober:
    """Search for what is left of a subject; the only writes are rebuilt contexts in the cache.

    Args:
        runtime: The store, and the embedding model of searches.
        plan: The plan of the forgetting.
        kept: Type and ID of memory that was kept by decision, and may name the subject.
    """

    def __init__(self, runtime: Runtime, plan: ForgetPlan, kept: Set[tuple[str, str]]) -> None:
        self._store = runtime.store
        self._plan = plan
        self._traces = plan.traces
        self._kept = kept
        self._names = names_of(plan.subject)
        # No shelf: names must not enter the cache of query vectors.
        runtime = msgspec.structs.replace(runtime, llm=None, query_shelf=None)
        self._searcher = Searcher(runtime)
        recaller = Recaller(runtime, searcher=self._searcher)
        self._contexts = ContextBuilder(runtime, recaller=recaller)
        self._found = Counter[str]()
        self._unreadable: list[str] = []
        self._gone: list[str] = []
        self._by_words = ""

    async def probe(self) -> Probe:
        """Search for removed memory, and for names outside of kept memory."""
        plan = self._plan
        left = await in_thread(count_traces, self._store, plan.traces, plan.derived)
        self._found.update({kind: count for kind, count in left.items() if kind not in _ALIVE})
        texts = await in_thread(self._scan)
        searches = await self._search()
        contexts = await self._build()
        found = sorted(self._found.items())
        return Probe(
            texts=texts,
            searches=searches,
            contexts=contexts,
            found=tuple(f"{number:,} {kind}" for kind, number in found if number),
            by_words=self._by_words,
            unreadable=tuple(self._unreadable),
        )

    def _scan(self) -> int:
        """Read every text; return their number."""
        plan, alive, count = self._plan, set[str](), 0
        former, derived = frozenset(plan.former), frozenset(plan.derived)
        for passage in walk_passages(self._store):
            if passage.kind == "unreadable":
                if may_concern(plan.subject, plan.traces, passage):
                    self._unreadable.append(name_unreadable(passage))
                continue
            count += 1
            if passage.text in former and passage.scope not in plan.traces.scopes:
                alive.add(passage.text)
            is_context = passage.kind == "context"
            key = (passage.target_type, passage.target_id)
            if passage.target_id in derived and not is_context:
                self._found["derived texts"] += 1
            elif key in self._kept or (is_context and self._kept):
                continue  # contexts may show kept memory
            elif self._names.are_in(passage.text):
                self._found[f"names in {_KINDS.get(passage.kind, passage.kind)}"] += 1
        # Removed texts that do not legitimately exist elsewhere.
        self._gone = [
            text for text in plan.former if text not in alive and word_count(text) >= _TELLING_WORDS
        ]
        return count

    async def _search(self) -> int:
        """Search for names and removed texts; return the number of searches."""
        queries = [*self._plan.subject.names[:_QUERIES], *self._gone][:_SEARCHES]
        searches = 0
        for agent_id in self._traces.agents[:_CONTEXTS]:
            scopes = await in_thread(self._readable, agent_id)
            for part in batched((query[:2000] for query in queries), _QUERIES):
                for hit in await self._hits(part, scopes):
                    is_trace = hit.home in self._traces.scopes or hit.id in self._traces.facts
                    is_kept = ("fact", hit.id) in self._kept
                    if is_trace or (self._names.are_in(hit.content) and not is_kept):
                        self._found["search results"] += 1
                searches += len(part)
        return searches

    def _readable(self, agent_id: str) -> tuple[Scope, ...]:
        agent = self._store.host.agent(agent_id)
        homes = (*self._traces.scopes, *self._plan.homes)
        own = [one for one in homes if one.agent_id == agent_id]
        seen = reader_scopes(self._store, agent) if agent is not None else ()
        return tuple(dict.fromkeys((*seen, *own[:100])))

    async def _hits(self, queries: Sequence[str], scopes: Sequence[Scope]) -> list[Fact]:
        """Return the facts of the configured search, or of text search if that fails."""
        try:
            report = await self._searcher.search(queries, scopes, track=False)
        except (ProviderError, EmbeddingModelMismatch) as error:
            self._by_words = error.message
            report = await self._searcher.search(queries, scopes, track=False, recipe="text")
        return [hit.fact for hit in report.hits]

    async def _build(self) -> int:
        """Rebuild contexts, and search them; return their number."""
        contexts = 0
        for session, agent in await in_thread(lambda: list(islice(self._pairs(), _CONTEXTS))):
            report = await self._contexts.build(
                session, agent, recall="off", force_refresh=True, keep=False
            )
            contexts += 1
            if any(escape_xml(legible(text)) in report.xml for text in self._gone) or (
                not self._kept and self._names.are_in(html.unescape(report.xml))
            ):
                self._found["contexts"] += 1
        return contexts

    def _pairs(self) -> Iterator[tuple[Session, Agent]]:
        for session_id in (*self._traces.own, *self._traces.shared):
            session = self._store.host.session(session_id)
            for agent_id in session.agents if session is not None else ():
                agent = self._store.host.agent(agent_id)
                if session is not None and agent is not None:
                    yield session, agent


_KINDS = {
    "fact": "facts",
    "previous": "earlier texts of facts",
    "doubt": "quotes or doubts",
    "reflection": "reflections",
    "consolidation": "texts",
    "policy": "policies",
    "audit": "audit entries",
    "formation": "records of formations",
    "context": "cached contexts",
}
