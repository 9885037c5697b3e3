"""Protocols for a store's indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from edenmem.models.indexes import IndexState, IndexWish, SearchTrial
from edenmem.models.integrity import Finding


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

    def try_search(
        self,
        analyzer: str,
        wait: Callable[[Callable[[], bool]], bool],
        progress: Callable[[str], None],
    ) -> SearchTrial:
        """Test search in a scratch collection with its own indexes, and remove it.

        Args:
            analyzer: The analyzer of the text index.
            wait: Polls a condition until a timeout; returns whether it was met.
            progress: Called with the name of each step.

        Raises:
            StoreError: the database has no search commands.
        """
