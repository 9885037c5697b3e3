"""What cosines mean, by embedding model: where unrelated texts lie, and where likeness begins."""

from __future__ import annotations

import msgspec


class Scale(msgspec.Struct, frozen=True):
    """Limits of one model, as cosines.

    ``zero`` is the cosine that counts as no likeness when lists are fused; None stands for the
    lowest of the candidates. ``floor`` is the cosine below which a fact is no result; None means
    that all are.
    """

    zero: float | None
    floor: float | None

    @property
    def zero_score(self) -> float | None:
        """The zero as a score, (1 + cosine) / 2."""
        return _score(self.zero)

    @property
    def floor_score(self) -> float | None:
        """The floor as a score, (1 + cosine) / 2."""
        return _score(self.floor)

    def fit(self, score: float) -> float:
        """Return the score as near to 1 here as ``score`` is with a model whose zero is cosine 0.

        Limits in the settings are written for such models. A score below the zero stays there.
        """
        if not self.zero:
            return score
        cosine = max(0.0, 2 * score - 1)
        return round((1 + self.zero + cosine * (1 - self.zero)) / 2, 6)


def _score(cosine: float | None) -> float | None:
    # Rounded, since a floor of 0.65 should not be 0.6500000000000001 on a screen.
    return None if cosine is None else round((1 + cosine) / 2, 6)


#: By the name that is stored beside each vector. A model at fewer dimensions than its own
#: ("text-embedding-3-small@512") is another vector space, and is not here: nobody measured it.
SCALES = {
    "all-MiniLM-L6-v2-int8": Scale(zero=0.0, floor=0.10),
    # E5 was trained at a low temperature: unrelated texts have cosines of .7 and more.
    "multilingual-e5-small-int4": Scale(zero=0.70, floor=0.74),
    "text-embedding-3-small": Scale(zero=0.0, floor=0.30),  # the platform's score of .65
}

#: The bundled models: the name that is stored, and the value of ``embedding.local_model``.
LOCAL_MODELS = {
    "all-MiniLM-L6-v2-int8": "all-MiniLM-L6-v2",
    "multilingual-e5-small-int4": "multilingual-e5-small",
}

#: Models that know English alone.
ENGLISH_ONLY = frozenset({"all-MiniLM-L6-v2-int8"})

_UNKNOWN = Scale(zero=None, floor=None)


def scale_of(model: str) -> Scale:
    """Return the scale of ``model``, or one without limits for an unknown model."""
    return SCALES.get(model, _UNKNOWN)
