"""Candidates for search. How they are found is behind one small interface: by the server's search
indexes where it has search commands, else by an exact scan."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from edenmem.errors import EmbeddingModelMismatch, StoreError
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import Candidate, FactFilter, SearchAbility
from edenmem.models.switch import check_in_force
from edenmem.store.mongo.core.collections import OWN, VectorSlot
from edenmem.store.mongo.host.references import ReferencesPart
from edenmem.store.mongo.search.atlas_search import AtlasSearch
from edenmem.store.mongo.search.scan import Scan
from edenmem.store.mongo.search.slots import slot_of

#: Seconds for which the server's word on whether it has search commands is kept.
_ASK_AGAIN = 60.0


class CandidateSearch(Protocol):
    """A way to find candidates."""

    def ability(self) -> SearchAbility:
        """What `Store.search_ability` says of it."""

    def semantic(
        self,
        filter: FactFilter,
        vectors: Sequence[bytes],
        *,
        model: str,
        limit: int,
        exact: bool = False,
        slot: VectorSlot = OWN,
    ) -> list[list[Candidate]]:
        """See `Store.semantic_candidates`; by the vectors of ``slot``."""

    def text(
        self, filter: FactFilter, queries: Sequence[str], *, limit: int
    ) -> list[list[Candidate]]:
        """See `Store.text_candidates`."""

    def finds(self, fact: Fact) -> bool:
        """Whether search can find the fact by now."""


class SearchPart(ReferencesPart):
    """Finds candidates by what the server can do."""

    _chosen: tuple[float, CandidateSearch] | None = None

    def search_ability(self) -> SearchAbility:
        """See `edenmem.store.protocol.store.Store.search_ability`."""
        return self._search.ability()

    def semantic_candidates(
        self,
        filter: FactFilter,
        vectors: Sequence[bytes],
        *,
        model: str,
        limit: int,
        exact: bool = False,
        floor: float = 0.0,
        prepared: bool = False,
    ) -> list[list[Candidate]]:
        """See `edenmem.store.protocol.store.Store.semantic_candidates`."""
        search = self._search
        # To a scan, one more document to read is nothing, and what it misses nobody notices.
        switch = self.vector_switch() if isinstance(search, Scan) else self._switch()
        while True:
            try:
                if not prepared:
                    check_in_force(switch, model)
                found = search.semantic(
                    filter,
                    vectors,
                    model=model,
                    limit=limit,
                    exact=exact,
                    slot=slot_of(switch, model),
                )
            except (EmbeddingModelMismatch, StoreError):
                now = self.vector_switch()
                if now == switch:
                    raise
            else:
                now = switch if any(found) else self.vector_switch()
                if now == switch:
                    return [[one for one in nearest if one.score >= floor] for nearest in found]
            switch = now  # somebody moved it on: where the vectors were, there are none

    def text_candidates(
        self, filter: FactFilter, queries: Sequence[str], *, limit: int
    ) -> list[list[Candidate]]:
        """See `edenmem.store.protocol.store.Store.text_candidates`."""
        return self._search.text(filter, queries, limit=limit)

    def demand_formable(
        self, scopes: Sequence[Scope], *, model: str | None, dimensions: int | None
    ) -> None:
        """See `edenmem.store.protocol.indexes.Indexes.demand_formable`."""
        self._demand_fact_key()
        search = self._search
        if model is None or not isinstance(search, AtlasSearch):
            return
        filter = FactFilter(scopes=tuple(scopes))
        while True:
            switch = self._switch()
            check_in_force(switch, model)
            try:
                search.demand_vectors(
                    filter, model=model, dimensions=dimensions, slot=slot_of(switch, model)
                )
            except StoreError:
                if self.vector_switch() == switch:
                    raise
            else:
                return

    def is_searchable(self, fact_id: str) -> bool:
        """See `edenmem.store.protocol.indexes.Indexes.is_searchable`."""
        fact = self.fact(fact_id, with_vector=True)
        return fact is not None and self._search.finds(fact)

    def close(self) -> None:
        """See `edenmem.store.protocol.store.Store.close`."""
        self._chosen = None
        super().close()

    @property
    def _search(self) -> CandidateSearch:
        now = time.monotonic()
        if self._chosen is None or now - self._chosen[0] > _ASK_AGAIN:
            # Two threads that ask at once both get a right answer.
            self._chosen = (now, self._choose())
        return self._chosen[1]

    def _choose(self) -> CandidateSearch:
        if not self._facts.answers_search():
            return Scan(self._facts, self._scan_limit)
        if self._chosen is not None and isinstance(self._chosen[1], AtlasSearch):
            return self._chosen[1]  # with what it knows of its indexes
        return AtlasSearch(
            self._facts,
            self._run_all,
            storage=self._settings.embedding_storage,
            max_seconds=self._settings.search_timeout_seconds,
            vector_index=self._settings.vector_index,
            text_index=self._settings.text_index,
            fuzzy_expansions=self._fuzzy_expansions,
        )
