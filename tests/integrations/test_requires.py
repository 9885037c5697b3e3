"""A missing framework is named."""

from __future__ import annotations

import pytest

from edenmem.integrations import requires


def test_a_missing_package_is_named() -> None:
    with (
        pytest.raises(ImportError, match=r"needs the package langgraph .*: pip install langgraph"),
        requires("langgraph"),
    ):
        import langgraph_of_another_name  # type: ignore[import-not-found]  # noqa: F401
