"""A whole store on its way from one embedding model to another.

While a switch is under way each fact may have two vectors: the one that it had, and beside it one
of the new model. A search names its model and is answered from the vectors of that model, so that
readers of the old one and of the new one are served at the same time::

    filling ──> switched ──> settling ──> clearing ──> (gone: the new vectors are the only ones)
       │  <──────┘
       └──────> abandoning ──> (gone: the old vectors are the only ones)
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from edenmem.errors import ConflictError, EmbeddingModelMismatch

#: "filling": the old model is in force, the new vectors are being made. "switched": the new model
#: is in force, the old vectors are still kept and searched. "settling": the new vectors take the
#: place of the old ones. "clearing": they have, and what is left beside them is taken away.
#: "abandoning": the new vectors are taken away.
SwitchPhase = Literal["filling", "switched", "settling", "clearing", "abandoning"]


class VectorSwitch(msgspec.Struct, frozen=True, kw_only=True):
    """The one switch that a store may be in.

    ``model`` and ``dimensions`` are of the new vectors. ``previous`` is the model that was in
    force before, "" if no fact had a vector.
    """

    model: str
    dimensions: int
    previous: str
    begun_at: datetime
    phase: SwitchPhase = "filling"
    switched_at: datetime | None = None

    def is_staged(self, model: str) -> bool:
        """Whether vectors of a model are now looked for, and put, beside the others."""
        return model == self.model and self.phase in ("filling", "switched", "settling")

    @property
    def in_force(self) -> str:
        """The model that readers should be configured with."""
        return self.previous if self.phase in ("filling", "abandoning") else self.model


def check_in_force(switch: VectorSwitch | None, model: str) -> None:
    """Refuse a search by a model whose vectors are not all there yet, or are being replaced.

    Raises:
        EmbeddingModelMismatch: it names the model in force and what to do.
    """
    if switch is None:
        return
    ahead = switch.phase in ("filling", "abandoning") and model == switch.model
    behind = switch.phase in ("settling", "clearing") and model == switch.previous
    if (ahead or behind) and model != switch.in_force:
        raise EmbeddingModelMismatch(
            stored=switch.in_force,
            current=model,
            hint=(
                f"vectors of {model!r} are being prepared: keep embedding.model as it was until "
                "'edenmem embed backfill --switch' has switched to it"
                if switch.phase == "filling"
                else f"set embedding.model to {switch.in_force!r}"
            ),
        )


def continue_switch(there: VectorSwitch, wanted: VectorSwitch) -> VectorSwitch:
    """The switch that is under way, if it is the one that somebody wants to begin.

    Raises:
        ConflictError: it is another, or is past its filling.
    """
    same = (there.model, there.dimensions) == (wanted.model, wanted.dimensions)
    if same and there.phase == "filling":
        return there
    raise ConflictError(
        f"a switch from {there.previous or 'no model'!r} to {there.model!r} "
        f"({there.dimensions:,} dimensions) is under way: {there.phase}",
        hint=WAY_ON[there.phase],
    )


def is_staged(switch: VectorSwitch | None, model: str, *, must: bool) -> bool:
    """Whether vectors of a model belong beside the others now.

    Raises:
        ConflictError: they do not, and ``must``: somebody ended the switch.
    """
    found = switch is not None and switch.is_staged(model)
    if must and not found:
        raise ConflictError(f"the switch to {model!r} was ended meanwhile; nothing was written")
    return found


#: Phase → what can be done about a switch in it.
WAY_ON: dict[SwitchPhase, str] = {
    "filling": "the command that began it goes on with it, 'edenmem embed switch abandon' takes it "
    "back",
    "switched": "'edenmem embed switch drop-old' ends it, 'edenmem embed switch back' undoes it",
    "settling": "'edenmem embed switch drop-old' goes on with it",
    "clearing": "'edenmem embed switch drop-old' goes on with it",
    "abandoning": "'edenmem embed switch abandon' goes on with it",
}
