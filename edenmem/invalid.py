"""Words for invalid input, the same for lines of files, arguments and requests."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

import msgspec

#: What is wrong with a value; follows the name of the field.
MISSING = "is missing"
UNKNOWN = "is not a known field"
EMPTY = "must not be empty"
OBJECT = "must be a JSON object"
TIME = "must be a time in ISO 8601, such as 2026-01-31T09:30:00Z"

#: Types in messages of msgspec, and their names for people.
_TYPES = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a JSON object",
    "datetime": TIME.removeprefix("must be "),
    "null": "null",
}

_Words = Callable[[re.Match[str]], str]
#: Messages of msgspec, and their words.
_MESSAGES: tuple[tuple[re.Pattern[str], _Words], ...] = (
    (re.compile(r"Object missing required field"), lambda _: MISSING),
    (re.compile(r"Object contains unknown field"), lambda _: UNKNOWN),
    (re.compile(r"Expected `(?:str|array|bytes|object)` of length >= 1$"), lambda _: EMPTY),
    (
        re.compile(r"Expected `(str|array|bytes|object)` of length ([<>])= (\d+)"),
        lambda found: (
            f"must have at {'most' if found[2] == '<' else 'least'} {found[3]} "
            f"{'characters' if found[1] == 'str' else 'values'}"
        ),
    ),
    (
        re.compile(r"Expected `(int|float)` ([<>])= (\S+)"),
        lambda found: (
            f"must be {_TYPES[found[1]]} of at {'most' if found[2] == '<' else 'least'} {found[3]}"
        ),
    ),
    (
        re.compile(r"Expected `str` matching regex '\^\[0-9a-f\]\{24\}\$'"),
        lambda _: "must be a full ID of 24 hex digits",
    ),
    (re.compile(r"Expected `([a-z |]+)`"), lambda found: f"must be {_name_types(found[1])}"),
    (re.compile(r"Invalid (?:RFC3339|ISO8601) encoded"), lambda _: TIME),
    (
        re.compile(r"Invalid (?:enum )?value (.+)"),
        lambda found: f"is unknown: {found[1]}",
    ),
)
_FIELD = re.compile(r"Object [a-z ]+ field `(.*)`$", re.DOTALL)
#: Maximum length of the name of a field in a message, in characters.
_LONGEST_FIELD = 80


def explain_value(error: msgspec.ValidationError, *, whole: str = "the line") -> str:
    """Return what is wrong with a value: ``query must be text``.

    ``whole`` names the value that has no field.
    """
    message, _, location = str(error).partition(" - at `")
    *keys, path = location.rstrip("`").split("` in `")
    path = path.removeprefix("$").removeprefix(".")
    field = _FIELD.match(message)
    subject = ".".join(filter(None, [path, field[1] if field else ""]))[:_LONGEST_FIELD] or whole
    if keys:
        subject = f"a key of {subject}"
    for pattern, words in _MESSAGES:
        if found := pattern.match(message):
            return f"{subject} {words(found)}"
    return f"{subject} is invalid"


def _name_types(types: str) -> str:
    """Return the names of types, without null: a missing value."""
    names = [_TYPES.get(name, name) for name in types.split(" | ") if name != "null"] or ["null"]
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def explain_json(data: bytes) -> str:
    """Return why a line is not JSON, with the column of the error."""
    try:
        text = data.decode("utf-8", "surrogatepass").strip()
    except UnicodeDecodeError as error:
        return f"the line is not valid UTF-8 (byte {error.start + 1})"
    try:
        json.loads(text)
    except RecursionError:
        return "the line is nested too deeply"
    except json.JSONDecodeError as error:
        where = "it ends early" if error.pos >= len(text) else f"column {error.pos + 1}"
        return f"the line is not valid JSON ({where})"
    except ValueError:  # a number with thousands of digits
        pass
    return "the line is not valid JSON"


#: Minimum length of a word with a suggestion, and of one that may have two errors.
_ONE_ERROR, _TWO_ERRORS = 3, 8


def nearest_word(given: str, known: Iterable[str]) -> str | None:
    """Return the known word that was probably meant, or None if no word is clearly the best.

    A word of three letters may have one typing error (a letter missing, added, wrong, or in the
    wrong order), one of eight letters two. The beginning of a single known word means that word.
    """
    word = _plain_word(given)
    if len(word) < _ONE_ERROR:
        return None
    errors = 1 if len(word) < _TWO_ERRORS else 2
    plain = {name: _plain_word(name) for name in known}
    distances = {
        name: _distance(word, other)
        for name, other in plain.items()
        if abs(len(word) - len(other)) <= errors
    }
    best = min(distances.values(), default=errors + 1)
    if best <= errors:
        near = [name for name, distance in distances.items() if distance == best]
    else:
        near = [name for name, other in plain.items() if other.startswith(word)]
    return near[0] if len(near) == 1 else None


def _plain_word(word: str) -> str:
    """Return an option or name as it is compared."""
    return word.lstrip("-").replace("_", "-").casefold()


def _distance(one: str, other: str) -> int:
    """Return the number of typing errors between two words."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, start=1):
        before, last, row = row, before, [at]
        for place, wanted in enumerate(other, start=1):
            cost = min(
                before[place] + 1, row[place - 1] + 1, before[place - 1] + (letter != wanted)
            )
            is_swapped = at > 1 < place and letter == other[place - 2] and one[at - 2] == wanted
            row.append(min(cost, last[place - 2] + 1) if is_swapped else cost)
    return row[-1]
