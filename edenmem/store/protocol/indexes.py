"""Indexes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

from edenmem.models.indexes import IndexState, IndexWish
from edenmem.models.integrity import Finding
from edenmem.models.memory import Fact
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
        """As `Search.semantic_candidates`, with the vectors sent in that form."""

    def text(
        self, filter: FactFilter, queries: Sequence[str], *, limit: int
    ) -> list[list[Candidate]]:
        """As `Search.text_candidates`."""

    def refusal(self, stage: Literal["vector", "text"]) -> str:
        """What the server says to an option that does not exist; empty if it takes it."""

    def remove(self) -> None:
        """Drop the collection with its indexes."""


class Indexes(Protocol):
    """The indexes of a store."""

    def list_indexes(self, wish: IndexWish) -> list[IndexState]:
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
