"""What is wrong with an invalid value of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edenmem.invalid import EMPTY, MISSING, OBJECT, TIME

#: What is wrong with a value, by the beginning of Pydantic's type of error.
_INVALID = {
    "missing": MISSING,
    "extra_forbidden": "is not a known {what}",
    "json_invalid": "is not valid JSON (at byte {byte})",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": EMPTY,
    "too_long": "must have at most {max_length} values",
    "too_short": EMPTY,
    # All values with a bound are whole numbers.
    "greater_than_equal": "must be a whole number of at least {ge}",
    "less_than_equal": "must be a whole number of at most {le}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "string_pattern": "must be {expected}",
    "string": "must be text",
    "int": "must be a whole number",
    "bool": "must be true or false",
    "datetime": TIME,
    "timezone": TIME,
    "value_error": TIME,  # the only check of our own
    "list": "must be a list",
    "model": OBJECT,
    "dict": OBJECT,
}


def explain_invalid(kind: str, details: Mapping[str, Any]) -> str:
    """Explain what is wrong with a value, without the value.

    Args:
        kind: Pydantic's type of the error.
        details: The limits of the value; ``what`` an unknown name was given for ("field").
    """
    known = next((text for start, text in _INVALID.items() if kind.startswith(start)), None)
    return known.format_map({"what": "field", **details}) if known else "is invalid"
