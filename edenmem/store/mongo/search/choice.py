"""The way to find candidates that the server has: its search indexes, else an exact scan."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from edenmem.models.memory import Fact
from edenmem.models.search import Candidate, FactFilter, SearchAbility
from edenmem.store.mongo.core.collections import OWN, VectorSlot
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.search.atlas_search import AtlasSearch
from edenmem.store.mongo.search.scan import Scan

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

    def text_scores(
        self, filter: FactFilter, query: str, facts: Sequence[Fact]
    ) -> dict[str, float]:
        """The scores of some facts by the words of a query; none if that takes another search."""

    def reach(self, filter: FactFilter, query: str) -> float:
        """The text score of a fact that has every word of a query; 0 if it is not known."""

    def finds(self, fact: Fact) -> bool:
        """Whether search can find the fact by now."""


class SearchChoice:
    """Chooses by what the server can do.

    Args:
        db: The database.
        scan_limit: How many facts a search without search indexes may read.
        fuzzy_expansions: How many variants of a word a search index looks for.
    """

    def __init__(self, db: Connection, *, scan_limit: int, fuzzy_expansions: int) -> None:
        self._db = db
        self._scan_limit = scan_limit
        self._fuzzy_expansions = fuzzy_expansions
        self._chosen: tuple[float, Any, CandidateSearch] | None = None

    def current(self) -> CandidateSearch:
        """The way for now. The server is asked again after a while, and after a new connection."""
        now, database = time.monotonic(), self._db.database
        chosen = self._chosen
        if chosen is None or chosen[1] is not database or now - chosen[0] > _ASK_AGAIN:
            known = chosen[2] if chosen is not None and chosen[1] is database else None
            # Two threads that ask at once both get a right answer.
            self._chosen = chosen = (now, database, self._choose(known))
        return chosen[2]

    def atlas(self) -> AtlasSearch | None:
        """The server's search indexes, if it has any."""
        current = self.current()
        return current if isinstance(current, AtlasSearch) else None

    def _choose(self, known: CandidateSearch | None) -> CandidateSearch:
        facts = self._db.facts
        if not facts.answers_search():
            return Scan(facts, self._scan_limit)
        if isinstance(known, AtlasSearch):
            return known  # with what it knows of its indexes
        settings = self._db.settings
        return AtlasSearch(
            facts,
            self._db.run_all,
            storage=settings.embedding_storage,
            max_seconds=settings.search_timeout_seconds,
            vector_index=settings.vector_index,
            text_index=settings.text_index,
            fuzzy_expansions=self._fuzzy_expansions,
        )
