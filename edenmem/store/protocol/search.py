"""Candidates for search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edenmem.models.scope import Scope
from edenmem.models.search import Candidate, Completion, FactFilter, Gap, SearchAbility


class Search(Protocol):
    """Candidates for search."""

    def search_ability(self) -> SearchAbility:
        """How this store searches."""

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
        """For each vector the nearest facts with vectors of ``model``, best first, at most
        ``limit``, none with a score under ``floor``; the filter holds before the limit. Equal
        scores are ordered by id.
        ``prepared``: also of a model that a switch is being prepared to.

        Raises:
            EmbeddingModelMismatch: the filter's facts have vectors, but none of this model; or
                a switch is under way and the model is not in force yet, or no longer.
        """

    def text_candidates(
        self, filter: FactFilter, queries: Sequence[str], *, limit: int
    ) -> list[list[Candidate]]:
        """For each query the facts that match any of its words, best first, at most ``limit``.
        A query is words, never syntax of the search engine."""

    def complete_scores(
        self,
        filter: FactFilter,
        gaps: Sequence[Gap],
        *,
        model: str,
        load: Sequence[str] = (),
        prepared: bool = False,
    ) -> Completion:
        """The scores that lists lacked, as the lists themselves would have them: the same filter
        and model. Atlas computes none by words; there a fact that its text list did not find has
        no text score.

        Args:
            filter: That of the lists.
            gaps: One for each query.
            model: That of the vectors.
            load: Facts that are read next. A store that reads whole documents to score them
                returns these too, so that they are read once.
            prepared: Also of a model that a switch is being prepared to.
        """

    def is_searchable(self, fact_id: str) -> bool:
        """Whether search finds the fact as it is stored. At once on most stores; on Atlas, whose
        indexes follow what is written, a little later.

        Raises:
            StoreError: it never will, since an index is missing or of another shape.
        """

    def require_formable(
        self, scopes: Sequence[Scope], *, model: str | None, dimensions: int | None
    ) -> None:
        """Demand that facts can be added to these scopes and compared with those that are there,
        before a model is paid for it.

        Args:
            scopes: Where facts may be added.
            model: That of the vectors to compare by; None: nothing is compared.
            dimensions: The length of those vectors; None: not known yet.

        Raises:
            FactKeyConflict: an index of the database refuses facts.
            StoreError: a search index is missing, is being built or does not suffice; the hint
                names the command.
        """
