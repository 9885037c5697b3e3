"""Protocols for search candidates, vectors, and switches between embedding models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import msgspec

from edenmem.models.scope import Scope
from edenmem.models.search import (
    Candidate,
    Candidates,
    FactFilter,
    ListName,
    Question,
    SearchAbility,
)

if TYPE_CHECKING:  # a command loads what it uses
    from edenmem.models.embeddings import VectorSwitch
    from edenmem.models.indexes import IndexState
    from edenmem.models.integrity import Finding
    from edenmem.models.memory import Fact


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
    ) -> list[list[Candidate]]:
        """Return for each vector the nearest facts with vectors of ``model``, best first.

        The filter is applied before ``limit``. Scores below ``floor`` are left out; of
        equal scores the newest facts come first.

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

        Raises:
            EmbeddingModelMismatch, StoreError: as the lists alone.
        """

    def track_access(self, fact_ids: Sequence[str], at: datetime) -> None:
        """Increment the access count of each fact."""

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


class VectorCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of an agent's facts with vectors of ``model``; "" for facts without a vector.

    ``wrong_length`` counts those whose vector has other dimensions than requested; only computed
    for the requested model.
    """

    agent_id: str
    model: str
    facts: int
    wrong_length: int = 0


class Vectors(Protocol):
    """Vectors by embedding model."""

    def set_vectors(
        self, vectors: Mapping[str, tuple[str, bytes]], *, model: str, staged: bool = False
    ) -> int:
        """Set vectors by fact ID: (content hash that was embedded, vector); return how many."""

    def vector_model_names(self, scopes: Sequence[Scope]) -> tuple[str, ...]:
        """Return the models of the vectors in these scopes, in order, without counting facts.

        Vectors without a model name are ignored.
        """

    def first_vector_model(self) -> str:
        """Return the model of the oldest fact with a vector, without counting facts.

        "" if no fact has a vector, or the store does not exist.
        """

    def vector_counts(
        self, model: str, *, dimensions: int | None, agent_id: str | None = None
    ) -> list[VectorCount]:
        """Count facts by agent and embedding model, in that order.

        ``dimensions`` is the expected length of vectors of ``model``; None skips the check.
        """

    def stale_facts(
        self, model: str, *, dimensions: int | None, agent_id: str | None = None
    ) -> Iterator[Fact]:
        """Yield facts without a valid vector of ``model``.

        That is: missing, zeros, or of another model or length.
        """

    def vector_faults(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        """Yield facts with a model but no usable vector: missing, zeros or not finite.

        Where all vectors of a model share one length, those of another length are included.
        """

    def drop_vectors(self, fact_ids: Sequence[str]) -> int:
        """Remove the vectors of facts; return how many facts."""


class ModelSwitches(Protocol):
    """Switches between embedding models, one at a time, with a second vector for each fact."""

    def platform_model(self, model: str) -> str:
        """Return the platform's model if vectors of ``model`` must not be mixed with it, else "".

        They may be if the platform does not use this database, or if
        ``store.other_model_beside_platform`` is set.
        """

    def vector_switch(self) -> VectorSwitch | None:
        """Return the switch in progress."""

    def move_switch(self, before: VectorSwitch | None, after: VectorSwitch | None) -> bool:
        """Replace a state of the switch by the next one, visible to every process in one step.

        None means no switch. Returns False if the stored state is another than ``before``.
        """

    def switch_index(self) -> IndexState | None:
        """Return the state of the new vectors' search index; None where none is needed."""

    def drop_switch_index(self) -> bool:
        """Drop the search index of the new vectors; return False while the drop is in progress."""

    def finds_vectors(self, model: str) -> bool:
        """Return whether search finds the most recently written vectors of ``model``.

        Checks staged vectors or, once settling, the active ones. Immediate on most stores; Atlas
        indexes lag behind writes.
        """

    def vectors_of(self, fact_ids: Sequence[str], *, model: str) -> dict[str, bytes]:
        """Map fact IDs to their vectors of ``model``, for facts that have one."""

    def settle_vectors(self) -> Iterator[int]:
        """Replace old vectors with staged ones, page by page; yield the number of facts per page.

        Concurrent writes may be left to the next pass; a pass that yields nothing is complete. Only
        while settling or clearing.
        """

    def clear_staged(self) -> Iterator[int]:
        """Remove staged vectors like `settle_vectors`; only while clearing or abandoning."""
