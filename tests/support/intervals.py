"""Confidence intervals at 95 %: for shares, and for means of paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

_Z = 1.959964
_RESAMPLES = 10_000


def wilson(hits: int, of: int) -> tuple[float, float]:
    """Return the interval of a share; 0 to 1 without counts.

    E. B. Wilson, Probable inference, the law of succession, and statistical inference, Journal of
    the American Statistical Association 22 (1927), 209-212.
    """
    if not of:
        return 0.0, 1.0
    p = hits / of
    middle = (p + _Z * _Z / (2 * of)) / (1 + _Z * _Z / of)
    half = _Z / (1 + _Z * _Z / of) * sqrt(p * (1 - p) / of + _Z * _Z / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)


def paired_bootstrap(differences: Sequence[float]) -> tuple[float, float]:
    """Return the interval of the mean of paired differences (Efron and Tibshirani, 1993)."""
    values = np.asarray(differences)
    chosen = np.random.default_rng(20260314).integers(len(values), size=(_RESAMPLES, len(values)))
    low, high = np.percentile(values[chosen].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)
