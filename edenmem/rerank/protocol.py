"""Protocol of rerankers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Reranker(Protocol):
    """A model that scores how well a document answers a query, local or behind an endpoint."""

    @property
    def model(self) -> str:
        """Return the name of the model, for display."""

    async def score(self, query: str, documents: Sequence[str]) -> tuple[float, ...]:
        """Return the relevance of each document, in order: finite, in [0, 1], higher is better.

        Any number of documents is split into batches.

        Raises:
            ConfigError: the settings name no usable reranker.
            ProviderError: the call failed, or did not return a score for each document.
        """

    async def close(self) -> None:
        """Stop threads and close connections."""
