"""Errors of the fake Atlas server."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any


class Refused(Exception):
    """An answer with ``ok: 0``; Atlas uses code 8 for errors of its search process."""

    def __init__(self, message: str, code: int = 8, name: str = "UnknownError") -> None:
        super().__init__(message)
        self.answer = {"ok": 0.0, "errmsg": message, "code": code, "codeName": name}


def known_fields(
    where: str,
    given: Any,
    *,
    required: Collection[str] = (),
    optional: Collection[str] = (),
) -> Mapping[str, Any]:
    """Check an object for unknown and missing fields, and return it."""
    if not isinstance(given, Mapping):
        raise Refused(f'"{where}" must be a document')
    unknown = set(given) - {*required, *optional}
    if unknown:
        raise Refused(f'"{where}" has unrecognized field(s) {sorted(unknown)}')
    missing = set(required) - set(given)
    if missing:
        raise Refused(f'"{where}" lacks required field(s) {sorted(missing)}')
    return given


def whole_number(where: str, given: Any, low: int, high: int) -> int:
    """Check the bounds of an integer, and return it."""
    if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
        raise Refused(f'"{where}" must be an integer between {low} and {high}, is {given!r}')
    return given


def text(where: str, given: Any) -> str:
    """Check for nonempty text, and return it."""
    if not isinstance(given, str) or not given:
        raise Refused(f'"{where}" must be a string that is not empty')
    return given
