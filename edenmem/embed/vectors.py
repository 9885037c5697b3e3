"""Conversion of model output to stored vectors: unit vectors as little-endian float32 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edenmem.errors import InputError, ProviderAnswerInvalid
from edenmem.text import clean

#: Models read 256 to about 8,000 tokens; more adds little to a fact or a query.
LONGEST_CHARACTERS = 8_000
#: Shorter vectors count as zero.
_SHORTEST = 1e-12


def unit_vectors(rows: Any, *, source: str, dimensions: int | None) -> tuple[bytes, ...]:
    """Scale each row to unit length.

    ``source`` is named in errors. ``dimensions`` is the expected length; None is any length.

    Raises:
        ProviderAnswerInvalid: a row has another length, is not a list of finite numbers, or is
            zero.
    """
    try:
        matrix: npt.NDArray[np.float64] = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ProviderAnswerInvalid(
            f"{source} returned vectors of different lengths, or values that are not numbers"
        ) from error
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise ProviderAnswerInvalid(f"{source} did not return vectors")
    if dimensions is not None and matrix.shape[1] != dimensions:
        raise ProviderAnswerInvalid(
            f"{source} returned vectors of {matrix.shape[1]} dimensions, expected {dimensions}",
            hint="embedding.dimensions sets the expected number",
        )
    if not np.isfinite(matrix).all():
        raise ProviderAnswerInvalid(f"{source} returned a vector with a number that is not finite")
    # Scaled first, so that squares neither overflow nor underflow.
    largest = np.abs(matrix).max(axis=1, keepdims=True)
    if (largest < _SHORTEST).any():
        raise ProviderAnswerInvalid(f"{source} returned a vector of zeros")
    matrix = matrix / largest
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return tuple(row.tobytes() for row in matrix.astype("<f4"))


def embeddable(texts: Sequence[str]) -> list[str]:
    """Clean the texts of invalid characters and truncate them.

    Raises:
        InputError: a text is empty.
    """
    cleaned = [clean(text).strip()[:LONGEST_CHARACTERS] for text in texts]
    for number, text in enumerate(cleaned, start=1):
        if not text:
            raise InputError(f"text to embed is empty: {number} of {len(cleaned)}")
    return cleaned
