"""What a store knows of the vectors of facts, and of those that lack one; a part of
`edenmem.store.protocol.store.Store`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from edenmem.models.memory import Fact
from edenmem.models.scope import Scope


class VectorCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many facts of an agent have a vector of ``model``; "" counts those without a vector.

    ``wrong_length``: those of them whose vector has another number of dimensions than was asked
    for, which is only looked at for the model that was named.
    """

    agent_id: str
    model: str
    facts: int
    wrong_length: int = 0


class Vectors(Protocol):
    """Vectors by the models that they are of."""

    def set_vectors(
        self, vectors: Mapping[str, tuple[str, bytes]], *, model: str, staged: bool = False
    ) -> int:
        """Give facts vectors: fact id → (content hash that was embedded, vector).

        A fact whose text is another by now is left as it is. How many were written. While a
        switch to ``model`` is under way they are put beside the others; ``staged``: or nowhere.

        Raises:
            ConflictError: ``staged``, and no such switch is under way.
        """

    def vector_models(self, scopes: Sequence[Scope] | None = None) -> dict[str, int]:
        """Name of the embedding model → number of facts; "" counts facts without a vector."""

    def vector_model_names(self, scopes: Sequence[Scope]) -> tuple[str, ...]:
        """The models that facts of the scopes have vectors of, in order; quick, as nothing is
        counted. Vectors that came without the name of a model have none."""

    def vector_counts(
        self, model: str, *, dimensions: int | None, agent_id: str | None = None
    ) -> list[VectorCount]:
        """The facts by agent and by the model of their vectors, in that order.

        ``dimensions``: what vectors of ``model`` should have; None: lengths are not looked at.
        """

    def stale_facts(
        self, model: str, *, dimensions: int | None, agent_id: str | None = None
    ) -> Iterator[Fact]:
        """The facts that have no vector of ``model`` with so many ``dimensions`` (None: of any
        length): without one, with zeros in its place, of another length, or of another model.

        Each once, without its vector, in an order of the store's own. They come in pages, without
        a cursor or snapshot between them, so that one may write in between, and may stop: what has
        its vector by then does not come when asked for again.
        """

    def unsearchable(self, scopes: Sequence[Scope], *, model: str) -> int:
        """How many facts of the scopes have no vector of ``model``; next to nothing to ask where
        there are none."""
