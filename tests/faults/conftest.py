"""Assertions of the helpers tell what they compared."""

import pytest

pytest.register_assert_rewrite("tests.faults.days", "tests.faults.invariants")
