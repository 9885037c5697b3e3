"""What a store does about a switch of the embedding model; a part of
`edenmem.store.protocol.Store`.

While a switch is under way, every method that is given a model looks at the vectors of that model,
wherever they are: `semantic_candidates`, `stale_facts`, `vector_counts`, `unsearchable`. Those of
the new model are kept beside the others, and `set_vectors` puts them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from edenmem.models.indexes import IndexState
from edenmem.models.switch import SwitchPhase, VectorSwitch


class ModelSwitches(Protocol):
    """A second vector for each fact, and which of the two is in force. One switch at a time."""

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
        """Forget the switch, which must be clearing or abandoning, with its search index."""

    def switch_index(self) -> IndexState | None:
        """How the search index of the new vectors is; None where none is needed."""

    def finds_vectors(self, model: str) -> bool:
        """Whether search by this model finds the vectors that were written last. At once on most
        stores; on Atlas, whose indexes follow what is written, a little later."""

    def vectors_of(self, fact_ids: Sequence[str], *, model: str) -> dict[str, bytes]:
        """Fact id → its vector of this model, for those that have one."""

    def settle_vectors(self, *, limit: int) -> int:
        """Put up to ``limit`` new vectors in the place of the old ones; how many facts that was,
        0 when none is left. Only while the switch is settling or clearing."""

    def clear_beside(self, *, limit: int) -> int:
        """Take away up to ``limit`` vectors that are beside others; how many, 0 when none is left.
        Only while the switch is clearing or abandoning."""
