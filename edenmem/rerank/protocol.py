"""What the engine asks of a reranker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Reranker(Protocol):
    """A model that reads a query and a document together and says how well one answers the other:
    a cross-encoder, or an endpoint that has one."""

    @property
    def model(self) -> str:
        """The name of the model, for people."""

    async def score(self, query: str, documents: Sequence[str]) -> tuple[float, ...]:
        """The relevance of each document, in order: finite, in [0, 1], higher is better.

        Any number of documents; they are read in batches.

        Raises:
            ConfigError: the settings do not name a reranker that could be used.
            ProviderError: it failed, or gave something else than a score for each document.
        """

    async def close(self) -> None:
        """Let go of threads and connections."""
