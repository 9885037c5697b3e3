"""Names of parametrised cases."""

from __future__ import annotations

import re

_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{24}(?![0-9a-f])")


def stable(value: object) -> str:
    """``value`` as text without ids, which are made anew in each of the processes that run tests,
    while all of them must name a case the same."""
    return _ID.sub("an id", str(value))
