"""An embedding model that is opened on first use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from threading import Lock

from edenmem.embed.protocol import Embedder, Embedding, Role


class DeferredEmbedder:
    """An `edenmem.embed.protocol.Embedder` that ``opener`` opens on first use.

    ``opener`` may block, and is called again if it failed.
    """

    def __init__(self, opener: Callable[[], Embedder]) -> None:
        self._opener = opener
        self._opened: Embedder | None = None
        self._lock = Lock()

    @property
    def model(self) -> str:
        """See the protocol."""
        return self._embedder().model

    @property
    def dimensions(self) -> int:
        """See the protocol."""
        return self._embedder().dimensions

    async def embed(self, texts: Sequence[str], *, role: Role) -> Embedding:
        """See the protocol."""
        embedder = await asyncio.to_thread(self._embedder)
        return await embedder.embed(texts, role=role)

    async def close(self) -> None:
        """Close the model if it was opened."""
        if self._opened is not None:
            await self._opened.close()

    def _embedder(self) -> Embedder:
        with self._lock:
            if self._opened is None:
                self._opened = self._opener()
            return self._opened
