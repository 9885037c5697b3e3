"""What the engine asks of an embedding model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from edenmem.models.formation import CallUsage

#: What a text is embedded as: what somebody asks, or what is stored and may be the answer. Some
#: models give the two different vectors; passages are compared with passages as well.
Role = Literal["query", "passage"]


class Embedding(msgspec.Struct, frozen=True, kw_only=True):
    """Unit vectors, little-endian float32, one for each text in order, and what they cost."""

    vectors: tuple[bytes, ...]
    usage: tuple[CallUsage, ...] = ()


class Embedder(Protocol):
    """A provider of embeddings. Its vectors are finite, of unit length, never zero."""

    @property
    def model(self) -> str:
        """The name that is stored beside each vector; another name, another vector space."""

    @property
    def dimensions(self) -> int:
        """Numbers in a vector."""

    async def embed(self, texts: Sequence[str], *, role: Role) -> Embedding:
        """Vectors of texts, in as few calls as the provider allows.

        Raises:
            ProviderError: also if an answer has the wrong number, length or kind of vectors.
        """

    async def close(self) -> None:
        """Let go of connections."""


class QueryShelf(Protocol):
    """Vectors of queries that outlast the process; never those of passages.

    Its methods block and never fail: what cannot be read is not there, what cannot be kept is not
    kept.
    """

    def get(self, model: str, texts: Sequence[str]) -> dict[str, bytes]:
        """The vectors of those texts that are known, of this model."""

    def put(self, model: str, vectors: Mapping[str, bytes]) -> None:
        """Keep the vectors of texts."""

    def clear(self) -> None:
        """Keep none of them any more."""
