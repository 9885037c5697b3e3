"""What the migration does not do yet, by case. Who makes a case right removes its line.

A key is the name of a case, or of a store or a way and a case; a line too many fails the test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest


def params(
    names: Iterable[str], not_yet: Mapping[str, str], store: str = "", *marks: Any
) -> list[Any]:
    """Return parameters of these cases, those that cannot pass yet marked so."""
    made = []
    for name in names:
        keys = (name, f"{store} {name}", f"{store.rpartition(' ')[2]} {name}")
        reason = next((not_yet[key] for key in keys if key in not_yet), "")
        own = (
            [pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason)] if reason else []
        )
        given = (store, name) if store else (name,)
        made.append(pytest.param(*given, marks=[*marks, *own], id=" ".join(given)))
    return made


CASES: dict[str, str] = {}

DAMAGES: dict[str, str] = {}

CHANGES: dict[str, str] = {}

FILES: dict[str, str] = {}

ACCEPTED: dict[str, str] = {}

CONFLICTS: dict[str, str] = {}

AGAIN: dict[str, str] = {}

STATUS: dict[str, str] = {}

RELATED: dict[str, str] = {}

#: Names of differences that any world may have.
ANYWHERE: dict[str, str] = {}
