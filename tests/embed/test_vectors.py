"""What may be stored as a vector, and what may not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st

from edenmem.embed.vectors import LONGEST_CHARACTERS, embeddable, unit_vectors
from edenmem.errors import InputError, ProviderAnswerInvalid


@given(
    np_st.arrays(
        np.float64,
        st.tuples(st.integers(1, 5), st.integers(1, 32)),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    )
)
def test_every_vector_that_points_somewhere_comes_out_at_unit_length(
    matrix: np.ndarray[tuple[int, int], np.dtype[np.float64]],
) -> None:
    assume((np.abs(matrix).max(axis=1) > 1e-12).all())
    vectors = unit_vectors(matrix, source="m", dimensions=matrix.shape[1])
    for row, vector in zip(matrix, vectors, strict=True):
        stored = np.frombuffer(vector, "<f4")
        assert stored.shape == row.shape
        assert np.linalg.norm(stored.astype(np.float64)) == pytest.approx(1, abs=1e-5)
        strongest = np.abs(row).argmax()
        assert np.sign(stored[strongest]) == np.sign(row[strongest])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[0.0, 0.0]], "zeros"),
        ([[1.0, 2.0], [0.0, 1e-300]], "zeros"),
        ([[1.0, float("nan")]], "not finite"),
        ([[1.0, float("inf")]], "not finite"),
        ([[1.0, 2.0, 3.0]], "3 dimensions, expected 2"),
        ([[1.0, 2.0], [1.0]], "different lengths"),
        ([["a", "b"]], "not numbers"),
        ([[1.0, None]], "not numbers|not finite|not return"),
        ([None], "not numbers|did not return"),
        ([[]], "did not return vectors"),
        ([1.0, 2.0], "did not return vectors"),
    ],
)
def test_a_vector_that_means_nothing_is_refused(rows: object, words: str) -> None:
    """Known failure 27: no zero vector is ever stored."""
    with pytest.raises(ProviderAnswerInvalid, match=words):
        unit_vectors(rows, source="m", dimensions=2)


def test_a_text_is_cleaned_and_cut_and_never_empty() -> None:
    assert embeddable(["  a\x00b \ud800", "x" * 100_000]) == ["ab", "x" * LONGEST_CHARACTERS]
    with pytest.raises(InputError, match="empty: 2 of 2"):
        embeddable(["a", " \x00\n"])
