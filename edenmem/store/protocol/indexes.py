"""Protocols for a store's indexes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

from edenmem.models.indexes import IndexState, IndexWish
from edenmem.models.integrity import Finding
from edenmem.models.memory import Fact
from edenmem.models.search import Candidate, FactFilter


class SearchTrial(Protocol):
    """A private collection to test a real server's search on.

    Nothing is created before `prepare`; `remove` deletes everything after any failure.
    """

    @property
    def name(self) -> str:
        """Return the name of the collection."""

    def prepare(self, wish: IndexWish) -> None:
        """Create the collection and start building both search indexes."""

    def states(self, wish: IndexWish) -> list[IndexState]:
        """Return the states of the two indexes."""

    def add(self, facts: Sequence[Fact], *, storage: Literal["array", "bindata"]) -> None:
        """Insert facts with their vectors in this form."""

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
        """Search like `Search.semantic_candidates`, with query vectors in this form."""

    def text(
        self, filter: FactFilter, queries: Sequence[str], *, limit: int
    ) -> list[list[Candidate]]:
        """Search like `Search.text_candidates`."""

    def refusal(self, stage: Literal["vector", "text"]) -> str:
        """Return the server's error for an unknown option; empty if the server accepts it."""

    def remove(self) -> None:
        """Drop the collection and its indexes."""


class Indexes(Protocol):
    """The indexes of a store."""

    def list_indexes(self, wish: IndexWish) -> list[IndexState]:
        """List every index that the store needs or defines.

        Ordinary ones come first, by collection, then search indexes.
        """

    def create_index(self, name: str, wish: IndexWish) -> None:
        """Start building an index if it is missing.

        Raises:
            StoreError: the database does not support it, or stored data prevent it.
        """

    def update_index(self, name: str, wish: IndexWish) -> None:
        """Start rebuilding an index with its current definition.

        Uniqueness stays protected throughout, and a search index keeps answering where the database
        supports it.

        Raises:
            NotFoundError: there is no such index.
            StoreError: the database does not support it.
        """

    def drop_index(self, name: str, *, dry_run: bool = False) -> None:
        """Drop an index; ``dry_run`` only checks whether that is allowed.

        Raises:
            NotFoundError: there is no such index.
            ConflictError: it protects uniqueness, the platform creates it too, or it is part of the
                store.
        """

    def replace_index(self, name: str) -> None:
        """Replace older indexes with the one of this name; see `IndexState.replaces`.

        Uniqueness stays protected throughout, and an interrupted run can be repeated.

        Raises:
            ConflictError: another process migrates the database, or recreates an older index.
            StoreError: stored data prevent the index; nothing was dropped.
        """

    def platform_conflicts(self) -> Iterator[Finding]:
        """Yield the facts that the platform deletes if it starts without edenmem's index.

        Of facts with the same text and agent, it keeps the one that its database returns first.
        """

    def search_trial(self) -> SearchTrial:
        """Return a scratch collection on this database, with its own search indexes.

        Raises:
            StoreError: the database has no search commands.
        """
