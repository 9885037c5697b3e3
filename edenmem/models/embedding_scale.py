"""Scales of cosines by embedding model: values of unrelated and of similar texts."""

from __future__ import annotations

import msgspec


class Scale(msgspec.Struct, frozen=True):
    """Limits of one model, as cosines.

    ``zero`` is the cosine that counts as no similarity in fusion (None: the lowest of the
    candidates). ``floor`` is the minimum cosine of a result (None: no minimum).
    """

    zero: float | None
    floor: float | None

    @property
    def zero_score(self) -> float | None:
        """Return the zero as a score, (1 + cosine) / 2."""
        return _score(self.zero)

    @property
    def floor_score(self) -> float | None:
        """Return the floor as a score, (1 + cosine) / 2."""
        return _score(self.floor)

    def fit(self, score: float) -> float:
        """Convert a score from a model with zero at cosine 0, as used in the settings.

        Scores below the zero map to the zero.
        """
        if not self.zero:
            return score
        cosine = max(0.0, 2 * score - 1)
        return round((1 + self.zero + cosine * (1 - self.zero)) / 2, 6)


def _score(cosine: float | None) -> float | None:
    # Rounded, so that 0.65 is not shown as 0.6500000000000001.
    return None if cosine is None else round((1 + cosine) / 2, 6)


#: Scales by the model name stored with each vector. Models with reduced dimensions
#: ("text-embedding-3-small@512") are different vector spaces, which were not measured.
SCALES = {
    "all-MiniLM-L6-v2-int8": Scale(zero=0.0, floor=0.10),
    # E5 was trained at a low temperature: unrelated texts have cosines of .7 and more.
    "multilingual-e5-small-int4": Scale(zero=0.70, floor=0.74),
    "text-embedding-3-small": Scale(zero=0.0, floor=0.30),  # the platform's score of .65
}

#: Stored names of bundled models, and their values of ``embedding.local_model``.
LOCAL_MODELS = {
    "all-MiniLM-L6-v2-int8": "all-MiniLM-L6-v2",
    "multilingual-e5-small-int4": "multilingual-e5-small",
}

#: Models for English only.
ENGLISH_ONLY = frozenset({"all-MiniLM-L6-v2-int8"})

_UNKNOWN = Scale(zero=None, floor=None)


def scale_of(model: str) -> Scale:
    """Return the scale of ``model``, or one without limits for an unknown model."""
    return SCALES.get(model, _UNKNOWN)
