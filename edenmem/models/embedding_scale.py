"""Scales of cosines by embedding model: values of unrelated and of similar texts."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


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
