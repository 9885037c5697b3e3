"""What a store does about its indexes; a part of `edenmem.store.protocol.store.Store`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

from edenmem.models.indexes import IndexState, IndexWish, Preparation
from edenmem.models.integrity import Finding
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import Candidate, FactFilter


class SearchTrial(Protocol):
    """A collection that nobody else uses, to try on a real server what search relies on.

    Nothing is made before `prepare`; `remove` takes everything away, whatever happened.
    """

    @property
    def name(self) -> str:
        """The name of the collection."""

    def prepare(self, wish: IndexWish) -> None:
        """Make the collection and begin to build both search indexes."""

    def states(self, wish: IndexWish) -> list[IndexState]:
        """How the two indexes are."""

    def add(self, facts: Sequence[Fact], *, storage: Literal["array", "bindata"]) -> None:
        """Insert facts, their vectors in that form."""

    def semantic(
        self,
        filter: FactFilter,
        vectors: Sequence[bytes],
        *,
        model: str,
        limit: int,
        exact: bool = False,
        storage: Literal["array", "bindata"] = "array",
    ) -> list[list[Candidate]]:
        """As `Store.semantic_candidates`, with the vectors sent in that form."""

    def text(
        self, filter: FactFilter, queries: Sequence[str], *, limit: int
    ) -> list[list[Candidate]]:
        """As `edenmem.store.protocol.store.Store.text_candidates`."""

    def refusal(self, stage: Literal["vector", "text"]) -> str:
        """What the server says to an option that does not exist; empty if it takes it."""

    def remove(self) -> None:
        """Drop the collection with its indexes."""


class Indexes(Protocol):
    """The indexes of a store, and whether search has caught up with what is written."""

    def preparation(self) -> Preparation:
        """What `Store.initialise` would do now, and what it would leave to the operator; writes
        nothing."""

    def demand_formable(
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

    def is_searchable(self, fact_id: str) -> bool:
        """Whether search finds the fact as it is stored. At once on most stores; on Atlas, whose
        indexes follow what is written, a little later.

        Raises:
            StoreError: it never will, since an index is missing or of another shape.
        """

    def indexes(self, wish: IndexWish) -> list[IndexState]:
        """Every index that the store needs or has of its own: ordinary ones by collection, then
        those for search."""

    def create_index(self, name: str, wish: IndexWish) -> None:
        """Begin to make an index that is missing. Safe if it is there.

        Raises:
            StoreError: this database cannot have it, or stored data keep it from being made.
        """

    def update_index(self, name: str, wish: IndexWish) -> None:
        """Begin to make an index anew, as it is wanted now. What protects uniqueness does so
        all the while, and a search index goes on answering where the database can do that.

        Raises:
            NotFoundError: there is no such index.
            StoreError: this database cannot do it.
        """

    def drop_index(self, name: str, *, dry_run: bool = False) -> None:
        """Drop an index; with ``dry_run`` only look whether it may be dropped.

        Raises:
            NotFoundError: there is no such index.
            ConflictError: it protects uniqueness, the platform creates it too, or it is a part of
                the store.
        """

    def replace_index(self, name: str) -> None:
        """Replace older indexes by the one of this name; see `IndexState.replaces`. What protects
        uniqueness does so all the while; a run that was killed can be repeated.

        Raises:
            ConflictError: another process migrates the database, or recreates an older index.
            StoreError: stored data keep the index from being created. Nothing was dropped then.
        """

    def platform_conflicts(self) -> Iterator[Finding]:
        """The facts that the platform deletes if it starts without the index of edenmem: of those
        with the same text and agent it keeps the one that its database returns first."""

    def search_trial(self) -> SearchTrial:
        """A scratch collection on this database, with search indexes of its own.

        Raises:
            StoreError: the database has no search commands, so there is nothing to try.
        """
