"""Embedding models: scales of their cosines, and the switch of a store to another model.

The scale of a model has the values of unrelated and of similar texts.

During a switch each fact may have two vectors: the old one, and a staged one of the new model. A
search specifies its model and uses the vectors of this model, so that readers of both models are
served::

    filling ──> switched ──> settling ──> clearing ──> (no switch; only new vectors)
       │  <──────┘
       └──────> abandoning ──> (no switch; only old vectors)
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from edenmem.errors import ConflictError, EmbeddingModelMismatch


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """The cosines of one model, and the settings that follow from them.

    ``zero`` is the cosine of unrelated texts (None: the lowest of the candidates), ``one`` that of
    texts with the same meaning. ``floor`` is the minimum cosine of a candidate, ``min_score`` the
    minimum score of a result of `convex`. None: no minimum.
    """

    zero: float | None = 0.0
    one: float = 1.0
    floor: float | None = None
    min_score: float | None = None

    @property
    def floor_score(self) -> float | None:
        """Return the floor as a score, (1 + cosine) / 2."""
        # Rounded, so that 0.65 is not shown as 0.6500000000000001.
        return None if self.floor is None else round((1 + self.floor) / 2, 6)

    def shares(self, scores: Mapping[str, float], lowest: float) -> dict[str, float]:
        """Convert scores, (1 + cosine) / 2, to shares in [0, 1] of this scale.

        ``lowest`` is the lowest score of the candidates, for a model of unknown scale.
        """
        zero = 2 * lowest - 1 if self.zero is None else self.zero
        above = {id: 2 * score - 1 - zero for id, score in scores.items()}
        span = self.one - zero
        return {
            id: 0.0 if each <= 0.0 else each / span if each < span else 1.0
            for id, each in above.items()
        }

    def fit(self, score: float) -> float:
        """Convert a score from a model with zero at cosine 0, as used in the settings.

        Scores below the zero map to the zero.
        """
        if not self.zero:
            return score
        cosine = max(0.0, 2 * score - 1)
        return round((1 + self.zero + cosine * (1 - self.zero)) / 2, 6)


#: Scales by the model name stored with each vector. Models with reduced dimensions
#: ("text-embedding-3-small@512") are different vector spaces, which were not measured.
SCALES = {
    "all-MiniLM-L6-v2-int8": Scale(floor=0.10, min_score=0.15),
    # E5 was trained at a low temperature: unrelated texts have cosines of .7 and more.
    "multilingual-e5-small-int4": Scale(zero=0.70, one=0.95, floor=0.74, min_score=0.24),
    "text-embedding-3-small": Scale(floor=0.30),  # the platform's score of .65
}

#: Stored names of bundled models, and their values of ``embedding.local_model``.
LOCAL_MODELS = {
    "all-MiniLM-L6-v2-int8": "all-MiniLM-L6-v2",
    "multilingual-e5-small-int4": "multilingual-e5-small",
}

#: Models for English only.
ENGLISH_ONLY = frozenset({"all-MiniLM-L6-v2-int8"})

_UNKNOWN = Scale(zero=None)


def scale_of(model: str) -> Scale:
    """Return the scale of ``model``, or one without limits for an unknown model."""
    return SCALES.get(model, _UNKNOWN)


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


def check_same(current: VectorSwitch, wanted: VectorSwitch) -> None:
    """Check that the current switch is the wanted one, and still being filled.

    Raises:
        ConflictError: the current switch differs, or has left the phase "filling".
    """
    same = (current.model, current.dimensions) == (wanted.model, wanted.dimensions)
    if not same or current.phase != "filling":
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
