"""Descriptions of settings in the source of the schema."""

from __future__ import annotations

import pytest

from edenmem.settings.keys import accepted_values, defaults
from tests.support.readme import descriptions


def test_every_setting_is_described() -> None:
    assert list(descriptions()) == list(defaults())
    for key, text in descriptions().items():
        assert len(text.split()) >= 3, f"{key}: {text!r}"
        assert text.endswith("."), f"{key}: {text!r}"


@pytest.mark.parametrize(
    ("key", "accepted"),
    [
        ("search.top_k", "a whole number from 1 to 100"),
        ("store.read_only", "true or false"),
        ("context.recall", "one of always, heuristic, llm, off"),
    ],
)
def test_accepted_values_come_from_the_type(key: str, accepted: str) -> None:
    assert accepted_values(key) == accepted
