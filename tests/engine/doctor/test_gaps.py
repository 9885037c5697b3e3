"""Gaps in histories."""

from __future__ import annotations

import pytest

from edenmem.engine.doctor.memory import find_gaps


@pytest.mark.parametrize(
    ("actions", "current", "gaps"),
    [
        ({1: "edit", 2: "edit", 3: "edit"}, 3, []),
        ({1: "edit", 2: "edit"}, 3, []),  # the current version of a fact is not in history yet
        ({1: "edit", 3: "edit"}, 3, [2]),
        ({2: "edit"}, 5, [3, 4]),
        ({4: "migrate", 9: "migrate", 10: "edit"}, 10, []),
        ({4: "migrate", 9: "edit"}, 9, [5, 6, 7, 8]),
        # Migrated, reverted, and migrated again.
        ({4: "migrate", 5: "migrate", 6: "restore", 7: "migrate", 8: "migrate"}, 8, []),
        ({4: "migrate", 5: "restore", 7: "restore", 9: "migrate"}, 9, [6]),
    ],
)
def test_gaps(actions: dict[int, str], current: int, gaps: list[int]) -> None:
    assert find_gaps(actions, current) == gaps
