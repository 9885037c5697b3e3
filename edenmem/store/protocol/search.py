"""Protocol for search candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edenmem.models.scope import Scope
from edenmem.models.search import (
    Candidate,
    Candidates,
    FactFilter,
    ListName,
    Question,
    SearchAbility,
)


class Search(Protocol):
    """Candidates for search."""

    def search_ability(self) -> SearchAbility:
        """Return how this store searches."""

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
        """Return for each vector the nearest facts with vectors of ``model``, best first.

        The filter is applied before ``limit``. Scores below ``floor`` are left out; of
        equal scores the newest facts come first. ``prepared`` allows a model that is only being
        switched to.

        Raises:
            EmbeddingModelMismatch: the filter's facts have vectors, but none of this model; or
                a switch is in progress and the model is not active.
        """

    def text_candidates(
        self, filter: FactFilter, queries: Sequence[str], *, limit: int, source: bool = False
    ) -> list[list[Candidate]]:
        """Return for each query the facts that match any of its words, best first.

        A query is plain words, never search engine syntax. With ``source`` the words of the
        messages that a fact was formed from are searched in place of its own: only of facts with
        at most `MOST_SOURCES` messages, and of messages that are stored and not forgotten.

        Raises:
            StoreError: ``source``, and `SearchAbility.source_words` is false.
        """

    def candidates(
        self,
        filter: FactFilter,
        questions: Sequence[Question],
        lists: Sequence[ListName],
        *,
        model: str,
        limit: int,
        exact: bool = False,
        prepared: bool = False,
    ) -> Candidates:
        """Return the lists of each question, in one view of the store.

        The lists are those of `semantic_candidates` and `text_candidates`. Each has the scores of
        the facts that only another one found; Atlas has no text scores of these.

        Args:
            filter: The filter.
            questions: The questions, each with a vector if ``lists`` has "semantic".
            lists: The lists to search.
            model: The model of the vectors.
            limit: Maximum number of facts that each list finds.
            exact: Compare all vectors in full instead of approximately.
            prepared: Allow a model that is only being switched to.

        Raises:
            EmbeddingModelMismatch, StoreError: as the lists alone.
        """

    def is_searchable(self, fact_id: str) -> bool:
        """Return whether search finds the stored state of a fact.

        Immediate on most stores; Atlas indexes lag behind writes.

        Raises:
            StoreError: search can never find it: an index is missing or has the wrong definition.
        """

    def require_formable(
        self, scopes: Sequence[Scope], *, model: str | None, dimensions: int | None
    ) -> None:
        """Raise if facts cannot be added and compared in these scopes, before paying for a model.

        Args:
            scopes: Where facts may be added.
            model: The model of the vectors to compare; None: nothing is compared.
            dimensions: The length of those vectors; None: unknown.

        Raises:
            FactKeyConflict: an index of the database refuses facts.
            StoreError: a search index is missing, building or insufficient; the hint names the
                command.
        """
