"""Protocols of embedding models and of the cache of query vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from edenmem.models.formation import CallUsage

#: What a text is embedded as: a query, or a stored passage. Some models return different vectors
#: for the two roles. Passages are also compared with passages.
Role = Literal["query", "passage"]


class Embedding(msgspec.Struct, frozen=True, kw_only=True):
    """Unit vectors, little-endian float32, one for each text in order, and their usage."""

    vectors: tuple[bytes, ...]
    usage: tuple[CallUsage, ...] = ()


class Embedder(Protocol):
    """An embedding model. Its vectors are finite, of unit length, and never zero."""

    @property
    def model(self) -> str:
        """Return the name that is stored with each vector; it identifies the vector space."""

    @property
    def dimensions(self) -> int:
        """Return the length of a vector."""

    async def embed(self, texts: Sequence[str], *, role: Role) -> Embedding:
        """Embed texts in as few calls as possible.

        Raises:
            ProviderError: the call failed, or an answer has the wrong number, length or kind of
                vectors.
        """

    async def close(self) -> None:
        """Close the connections."""


class QueryShelf(Protocol):
    """A cache of query vectors across processes; never of passages.

    Its methods block and never fail: an unreadable entry is missing, a failed write is skipped.
    """

    def get(self, model: str, texts: Sequence[str]) -> dict[str, bytes]:
        """Return the known vectors of the texts, of this model."""

    def put(self, model: str, vectors: Mapping[str, bytes]) -> None:
        """Store the vectors of texts."""

    def clear(self) -> None:
        """Remove all vectors."""
