"""Vectors, and switches to another model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from edenmem.models.indexes import IndexState
from edenmem.models.integrity import Finding
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.switch import SwitchPhase, VectorSwitch


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

    def vector_faults(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        """Facts that name a model and have no usable vector: none, zeros, numbers that are not
        finite, or, where a model's vectors have one length, another."""

    def drop_vectors(self, fact_ids: Sequence[str]) -> int:
        """Take away the vectors of facts, which are then without one; how many facts."""


class ModelSwitches(Protocol):
    """A second vector for each fact, and which of the two is in force. One switch at a time."""

    def platform_model(self, model: str) -> str:
        """The model whose vectors the platform searches here, if vectors of ``model`` must not come
        among them; "" if they may: nobody else uses this database, no fact has a vector of another
        model, or ``store.other_model_beside_platform`` is set."""

    def vector_switch(self) -> VectorSwitch | None:
        """The switch that is under way."""

    def begin_switch(self, switch: VectorSwitch) -> VectorSwitch:
        """Begin a switch, and to build the search index that it needs, if this store needs one.
        A switch to the same model that is being filled already is gone on with and returned.

        Raises:
            ConflictError: another switch, or another phase of this one, is under way.
        """

    def move_switch(
        self, model: str, *, before: SwitchPhase, after: SwitchPhase, at: datetime
    ) -> bool:
        """Bring the switch to ``model`` from one phase into another, in one step that every
        process sees; False if it is not in the phase ``before``, or not there."""

    def end_switch(self, model: str) -> bool:
        """Forget the switch, which must be clearing or abandoning; False if it is not."""

    def switch_index(self) -> IndexState | None:
        """How the search index of the new vectors is; None where none is needed."""

    def drop_switch_index(self) -> bool:
        """Drop the search index of the new vectors; whether it is gone, which may take a while."""

    def finds_vectors(self, model: str) -> bool:
        """Whether search by this model finds the vectors that were written last: beside the others
        or, once they are settling, in their place. At once on most stores; on Atlas, whose indexes
        follow what is written, a little later."""

    def vectors_of(self, fact_ids: Sequence[str], *, model: str) -> dict[str, bytes]:
        """Fact id → its vector of this model, for those that have one."""

    def settle_vectors(self) -> Iterator[int]:
        """Put the new vectors in the place of the old ones, a page with each step; of how many
        facts. What is written meanwhile may be left to another pass, and a pass without a step
        says that nothing is left. Only while the switch is settling or clearing."""

    def clear_staged(self) -> Iterator[int]:
        """Take away the vectors that are beside others, in the same way. Only while the switch is
        clearing or abandoning."""
