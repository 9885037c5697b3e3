"""The memory of a cold run does not grow with the number of sessions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

#: Bytes for each session: less than one prompt, or its messages.
_BYTES = 2_000


def test_memory_does_not_grow_with_the_number_of_sessions(tmp_path: Path) -> None:
    """In a process of its own: what other tests left behind grows and shrinks too."""
    command = [sys.executable, "-m", "tests.engine.cold.growth", str(tmp_path / "memory.db")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    objects, traced = map(float, done.stdout.split())
    assert objects < 1
    assert traced < _BYTES
