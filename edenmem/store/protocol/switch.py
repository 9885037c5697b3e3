"""What a store does about a switch of the embedding model; a part of
`edenmem.store.protocol.store.Store`.

While a switch is under way, every method that is given a model looks at the vectors of that model,
wherever they are: `semantic_candidates`, `stale_facts`, `vector_counts`, `unsearchable`. Those of
the new model are kept beside the others, and `set_vectors` puts them there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

from edenmem.models.indexes import IndexState
from edenmem.models.switch import SwitchPhase, VectorSwitch


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
