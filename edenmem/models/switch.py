"""The switch of a store to another embedding model.

During a switch each fact may have two vectors: the old one, and a staged one of the new model. A
search specifies its model and uses the vectors of this model, so that readers of both models are
served::

    filling ──> switched ──> settling ──> clearing ──> (no switch; only new vectors)
       │  <──────┘
       └──────> abandoning ──> (no switch; only old vectors)
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from edenmem.errors import ConflictError, EmbeddingModelMismatch

#: "filling": the old model is active, new vectors are computed. "switched": the new model is
#: active, old vectors are still searched. "settling": new vectors replace the old ones.
#: "clearing": staged copies are removed. "abandoning": new vectors are removed.
SwitchPhase = Literal["filling", "switched", "settling", "clearing", "abandoning"]


class VectorSwitch(msgspec.Struct, frozen=True, kw_only=True):
    """The current switch of a store.

    ``model`` and ``dimensions`` describe the new vectors. ``previous`` is the old model, "" if no
    fact had a vector.
    """

    model: str
    dimensions: int
    previous: str
    begun_at: datetime
    phase: SwitchPhase = "filling"
    switched_at: datetime | None = None

    def is_staged(self, model: str) -> bool:
        """Check whether vectors of a model are currently staged."""
        return model == self.model and self.phase in ("filling", "switched", "settling")

    @property
    def in_force(self) -> str:
        """Return the active model, which readers should use."""
        return self.previous if self.phase in ("filling", "abandoning") else self.model


def check_in_force(switch: VectorSwitch | None, model: str) -> None:
    """Reject a search with a model whose vectors are incomplete.

    Raises:
        EmbeddingModelMismatch: the error has the active model and a hint.
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
                f"vectors of {model!r} are incomplete: keep the old embedding.model until "
                "'edenmem embed use' has finished"
                if switch.phase == "filling"
                else f"set embedding.model to {switch.in_force!r}"
            ),
        )


def continue_switch(current: VectorSwitch, wanted: VectorSwitch) -> VectorSwitch:
    """Return the current switch if it matches the wanted one.

    Raises:
        ConflictError: the current switch differs, or has left the phase "filling".
    """
    same = (current.model, current.dimensions) == (wanted.model, wanted.dimensions)
    if same and current.phase == "filling":
        return current
    raise ConflictError(
        f"a switch from {current.previous or 'no model'!r} to {current.model!r} "
        f"({current.dimensions:,} dimensions) is in progress: {current.phase}",
        hint=WAY_ON[current.phase],
    )


def is_staged(switch: VectorSwitch | None, model: str, *, must: bool) -> bool:
    """Check whether vectors of a model are currently staged.

    Raises:
        ConflictError: the switch was ended, with ``must``.
    """
    found = switch is not None and switch.is_staged(model)
    if must and not found:
        raise ConflictError(f"the switch to {model!r} has ended; nothing was written")
    return found


#: Hints for a switch by phase.
WAY_ON: dict[SwitchPhase, str] = {
    "filling": "resume with the same command, or cancel with 'edenmem embed use --abandon'",
    "switched": "finish with 'edenmem embed use --drop-old', or return with "
    "'edenmem embed use --back'",
    "settling": "resume with 'edenmem embed use --drop-old'",
    "clearing": "resume with 'edenmem embed use --drop-old'",
    "abandoning": "resume with 'edenmem embed use --abandon'",
}
