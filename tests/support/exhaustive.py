"""Tests that the gate samples; ``EDENMEM_TESTS=all`` runs every case.

The marker ``exhaustive`` leaves a test to such a run: a second round of what another test shows, or
a program that no user starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")

#: Read on import: fixtures clear the environment.
EXHAUSTIVE = os.environ.get("EDENMEM_TESTS") == "all"


def sample(items: Iterable[T], every: int) -> list[T]:
    """Return all items, or one in ``every``, the first included."""
    return list(items)[:: 1 if EXHAUSTIVE else every]


def spared(*values: object) -> object:
    """Return parameters that only an exhaustive run tries."""
    return pytest.param(*values, marks=pytest.mark.exhaustive)
