"""Choose how to find candidates: by the server's search indexes, or by an exact scan."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from edenmem.models.memory import Fact
from edenmem.models.search import Candidate, FactFilter, ListScores, SearchAbility
from edenmem.store.mongo.core.collections import OWN, VectorSlot
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.search.atlas_search import AtlasSearch
from edenmem.store.mongo.search.scan import Scan

#: Seconds for which the answer about search commands is cached.
_ASK_AGAIN = 60.0


class CandidateSearch(Protocol):
    """A way to find candidates."""

    def ability(self) -> SearchAbility:
        """See `Search.search_ability`."""

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
        """See `Search.semantic_candidates`; searches the vectors of ``slot``."""

    def text(
        self, filter: FactFilter, queries: Sequence[str], *, limit: int, source: bool = False
    ) -> list[list[Candidate]]:
        """See `Search.text_candidates`."""

    def complete(
        self,
        filter: FactFilter,
        query: str,
        found: Mapping[str, float],
        lacking: Sequence[str],
        facts: Mapping[str, Fact],
        *,
        source: bool = False,
    ) -> ListScores:
        """Return a text list with what is known of the facts that it lacks."""

    def finds(self, fact: Fact) -> bool:
        """Return whether search finds the current state of a fact."""


class SearchChoice:
    """Chooses by the server's search commands.

    Args:
        db: The database.
        scan_limit: Maximum number of facts to read without search indexes.
        fuzzy_expansions: Maximum number of variants per word.
    """

    def __init__(self, db: Connection, *, scan_limit: int, fuzzy_expansions: int) -> None:
        self._db = db
        self._scan_limit = scan_limit
        self._fuzzy_expansions = fuzzy_expansions
        self._chosen: tuple[float, Any, CandidateSearch] | None = None

    def current(self) -> CandidateSearch:
        """Return the search in use; the server is asked again periodically and on reconnection."""
        now, database = time.monotonic(), self._db.database
        chosen = self._chosen
        if chosen is None or chosen[1] is not database or now - chosen[0] > _ASK_AGAIN:
            known = chosen[2] if chosen is not None and chosen[1] is database else None
            # Two threads may both ask; both answers are valid.
            self._chosen = chosen = (now, database, self._choose(known))
        return chosen[2]

    def atlas(self) -> AtlasSearch | None:
        """Return the search by the server's indexes, if it has any."""
        current = self.current()
        return current if isinstance(current, AtlasSearch) else None

    def _choose(self, known: CandidateSearch | None) -> CandidateSearch:
        facts = self._db.facts
        if not facts.answers_search():
            return Scan(facts, self._db.messages, self._db.forgotten_messages, self._scan_limit)
        if isinstance(known, AtlasSearch):
            return known  # keep its cached indexes
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
