"""What is wrong with the arguments of a call, in the words of the REST endpoints."""

from __future__ import annotations

import re

import msgspec

from edenmem.server.invalid import explain_invalid

#: Messages of msgspec, with the types of error of `explain_invalid`; the first match counts.
_KINDS = (
    (re.compile(r"Object missing required field `(?P<name>.*)`"), "missing"),
    (re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL), "extra_forbidden"),
    (re.compile(r"Expected `int` >= (?P<ge>[0-9]+)"), "greater_than_equal"),
    (re.compile(r"Expected `int` <= (?P<le>[0-9]+)"), "less_than_equal"),
    (re.compile(r"Expected `str` of length >= "), "string_too_short"),
    (re.compile(r"Expected `str` of length <= (?P<max_length>[0-9]+)"), "string_too_long"),
    (re.compile(r"Expected `str` matching regex "), "string_pattern"),
    (re.compile(r"Expected `array` of length >= "), "too_short"),
    (re.compile(r"Expected `array` of length <= (?P<max_length>[0-9]+)"), "too_long"),
    (re.compile(r"Expected `int`"), "int"),
    (re.compile(r"Expected `str`"), "string"),
    (re.compile(r"Expected `bool`"), "bool"),
    (re.compile(r"Expected `array`"), "list"),
)
_PATH = re.compile(r" - at `\$\.?(?P<path>[^`]*)`\Z")
#: The one pattern of arguments is that of a fact's ID.
_FULL_ID = "a full ID of 24 hex digits, as search_facts returns it"


def explain_arguments(error: msgspec.ValidationError) -> str:
    """Explain which argument is invalid and why, without its value."""
    text = str(error)
    for pattern, kind in _KINDS:
        if found := pattern.match(text):
            details = found.groupdict()
            path = _PATH.search(text)
            at = details.pop("name", None) or (path["path"] if path else "")
            known = {"what": "argument", "expected": _FULL_ID, **details}
            place = re.sub(r"\[([0-9.]+)\]", r".\1", at)[:40]
            return f"{place or 'an argument'} {explain_invalid(kind, known)}"
    return "the arguments are invalid"
