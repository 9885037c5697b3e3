"""Verify a forgetting: search stored texts, search results and contexts for remaining traces.

Traces are names and removed texts. Memory that was kept by decision is not a finding.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

import msgspec

from edenmem.engine.context.builder import ContextBuilder
from edenmem.engine.context.recall import Recaller
from edenmem.engine.erasure.mentions import Names, may_concern, names_of
from edenmem.engine.erasure.passages import walk_passages
from edenmem.engine.erasure.reports import ForgetPlan, Probe, name_unreadable
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.visibility import reader_scopes
from edenmem.engine.search.searcher import Searcher
from edenmem.errors import EmbeddingModelMismatch, ProviderError
from edenmem.models.forgetting import Passage
from edenmem.models.host import Agent, Session
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
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
    """Search for remaining traces; the only writes are rebuilt contexts in the cache."""

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        # No shelf: names must not enter the cache of query vectors.
        runtime = msgspec.structs.replace(runtime, llm=None, query_shelf=None)
        self._searcher = Searcher(runtime)
        recaller = Recaller(runtime, searcher=self._searcher)
        self._contexts = ContextBuilder(runtime, recaller=recaller)
        self._can_embed = runtime.embedder is not None
        self._by_words = ""

    async def probe(self, plan: ForgetPlan, kept: Collection[tuple[str, str]]) -> Probe:
        """Search for removed memory, and for names outside of ``kept`` memory."""
        self._by_words = ""
        found: Counter[str] = Counter(
            await in_thread(self._store.erasure.count_traces, plan.traces, plan.derived)
        )
        for kind in _ALIVE:
            del found[kind]
        names = names_of(plan.subject)
        unreadable: list[str] = []
        texts, alive = await in_thread(self._scan, plan, names, frozenset(kept), found, unreadable)
        gone = [
            text for text in plan.former if text not in alive and word_count(text) >= _TELLING_WORDS
        ]
        searches = await self._search(plan, names, gone, kept, found)
        contexts = await self._build(plan, names, gone, kept, found)
        return Probe(
            texts=texts,
            searches=searches,
            contexts=contexts,
            found=tuple(f"{number:,} {kind}" for kind, number in sorted(found.items()) if number),
            by_words=self._by_words,
            unreadable=tuple(unreadable),
        )

    # -- every text --------------------------------------------------------------------------

    def _scan(
        self,
        plan: ForgetPlan,
        names: Names,
        kept: frozenset[tuple[str, str]],
        found: Counter[str],
        unreadable: list[str],
    ) -> tuple[int, frozenset[str]]:
        """Return the number of texts, and the removed texts that legitimately exist elsewhere."""
        former, alive = frozenset(plan.former), set[str]()
        derived = frozenset(plan.derived)
        count = 0
        for passage in walk_passages(self._store):
            if passage.kind == "unreadable":
                if may_concern(plan.subject, plan.traces, passage):
                    unreadable.append(name_unreadable(passage))
                continue
            count += 1
            if passage.text in former and passage.scope not in plan.traces.scopes:
                alive.add(passage.text)
            if passage.target_id in derived and passage.kind != "context":
                found["derived texts"] += 1
            elif self._is_left(passage, names, kept):
                found[f"names in {_KINDS.get(passage.kind, passage.kind)}"] += 1
        return count, frozenset(alive)

    @staticmethod
    def _is_left(passage: Passage, names: Names, kept: frozenset[tuple[str, str]]) -> bool:
        if (passage.target_type, passage.target_id) in kept:
            return False
        if passage.kind == "context" and kept:
            return False  # contexts may show kept memory
        return bool(names) and names.are_in(passage.text)

    # -- searches ----------------------------------------------------------------------------

    async def _search(
        self,
        plan: ForgetPlan,
        names: Names,
        gone: Sequence[str],
        kept: Collection[tuple[str, str]],
        found: Counter[str],
    ) -> int:
        queries = [*plan.subject.names[:_QUERIES], *gone][:_SEARCHES]
        searches = 0
        for agent_id in plan.traces.agents[:_CONTEXTS]:
            scopes = await in_thread(self._readable, agent_id, plan)
            for start in range(0, len(queries), _QUERIES):
                part = [query[:2000] for query in queries[start : start + _QUERIES]]
                for hit in await self._hits(part, scopes):
                    is_trace = hit.home in plan.traces.scopes or hit.id in plan.traces.facts
                    if is_trace or (names.are_in(hit.content) and ("fact", hit.id) not in kept):
                        found["search results"] += 1
                searches += len(part)
        return searches

    def _readable(self, agent_id: str, plan: ForgetPlan) -> tuple[Scope, ...]:
        agent = self._store.host.agent(agent_id)
        homes = (*plan.traces.scopes, *plan.homes)
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

    # -- contexts ----------------------------------------------------------------------------

    async def _build(
        self,
        plan: ForgetPlan,
        names: Names,
        gone: Sequence[str],
        kept: Collection[tuple[str, str]],
        found: Counter[str],
    ) -> int:
        contexts = 0
        for session, agent in await in_thread(lambda: list(islice(self._pairs(plan), _CONTEXTS))):
            report = await self._contexts.build(
                session, agent, recall="off", force_refresh=True, keep=False
            )
            contexts += 1
            if any(escape_xml(legible(text)) in report.xml for text in gone) or (
                not kept and names.are_in(html.unescape(report.xml))
            ):
                found["contexts"] += 1
        return contexts

    def _pairs(self, plan: ForgetPlan) -> Iterator[tuple[Session, Agent]]:
        for session_id in (*plan.traces.own, *plan.traces.shared):
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
