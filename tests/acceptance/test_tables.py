"""The word tables of the rules: every entry is read by some rule, and every pattern compiles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import edenmem.acceptance
from edenmem.acceptance.tables import table

ROOT = Path(edenmem.acceptance.__file__).parent
SUBJECTS = sorted(path.stem for path in ROOT.glob("tables/*.toml"))
CODE = "".join(path.read_text("utf-8") for path in ROOT.rglob("*.py"))


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_tables_are_used_and_compile(subject: str) -> None:
    for name, value in table(subject).items():
        assert re.search(rf'"{subject}\.{name}["./]', CODE), f"{subject}.{name} is never read"
        for text in texts(value):
            re.compile(text.replace("\n", ""))


def test_lines_of_a_pattern_end_visibly() -> None:
    """A blank at the end of a line is part of the pattern, and editors remove it."""
    for path in ROOT.glob("tables/*.toml"):
        lines = path.read_text("utf-8").splitlines()
        assert [line for line in lines if line != line.rstrip()] == [], path.name
