"""How long to wait before trying again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.endpoint import failures
from edenmem.endpoint.failures import backoff, retry_after

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@given(
    st.integers(0, 1000),
    st.none() | st.floats(0, 1e9),
    st.floats(0, 1),
)
def test_a_wait_is_bounded_and_never_shorter_than_asked(
    tried: int, asked: float | None, share: float
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failures, "uniform", lambda low, high: low + share * (high - low))
        wait = backoff(tried, asked)
    assert 0 <= wait <= 60.5
    if asked is None:
        assert wait <= min(30, 0.5 * 2 ** min(tried, 10))
    else:
        assert wait >= min(asked, 60)


@pytest.mark.parametrize(("drawn", "wait"), [(min, 0), (max, 4)])
def test_jitter_is_full(monkeypatch: pytest.MonkeyPatch, drawn: Any, wait: float) -> None:
    monkeypatch.setattr(failures, "uniform", drawn)
    assert backoff(3, None) == wait


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": " 7 "}, 7),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:09 GMT"}, 9),
        ({"retry-after": "Sun, 01 Mar 2026 11:59:00 GMT"}, 0),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:09"}, 9),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
    ],
)
def test_retry_after_as_number_and_as_date(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds
