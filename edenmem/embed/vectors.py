"""From what a model gave to what is stored: unit vectors as little-endian float32 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edenmem.errors import InputError, ProviderAnswerInvalid
from edenmem.text import clean

#: Models take 256 to about 8,000 tokens; what comes after adds little to a fact or a question.
LONGEST_CHARACTERS = 8_000
#: A vector shorter than this points nowhere that means anything.
_SHORTEST = 1e-12


def unit_vectors(rows: Any, *, source: str, dimensions: int | None) -> tuple[bytes, ...]:
    """Each row at unit length. ``source`` is named in errors; None takes any one length.

    Raises:
        ProviderAnswerInvalid: a row has another length, is no list of finite numbers, or is zero.
    """
    try:
        matrix: npt.NDArray[np.float64] = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ProviderAnswerInvalid(
            f"{source} gave vectors of different lengths, or of something else than numbers"
        ) from error
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise ProviderAnswerInvalid(f"{source} gave something else than vectors")
    if dimensions is not None and matrix.shape[1] != dimensions:
        raise ProviderAnswerInvalid(
            f"{source} gave vectors of {matrix.shape[1]} dimensions, not of {dimensions}",
            hint="embedding.dimensions says how many are expected",
        )
    if not np.isfinite(matrix).all():
        raise ProviderAnswerInvalid(f"{source} gave a vector with a number that is not finite")
    # Scaled first, so that squaring can neither overflow nor vanish.
    largest = np.abs(matrix).max(axis=1, keepdims=True)
    if (largest < _SHORTEST).any():
        raise ProviderAnswerInvalid(f"{source} gave a vector of zeros")
    matrix = matrix / largest
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return tuple(row.tobytes() for row in matrix.astype("<f4"))


def embeddable(texts: Sequence[str]) -> list[str]:
    """The texts without what no encoder takes, and without what is beyond every encoder's limit.

    Raises:
        InputError: one has nothing in it, and so no meaning that a vector could stand for.
    """
    cleaned = [clean(text).strip()[:LONGEST_CHARACTERS] for text in texts]
    for number, text in enumerate(cleaned, start=1):
        if not text:
            raise InputError(f"text {number} of {len(cleaned)} to embed is empty")
    return cleaned
