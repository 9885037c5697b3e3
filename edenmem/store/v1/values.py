"""Values of old documents, made into the types that they should have, with a note on each that
was not. ``edenmem/docs/migration.md`` has the table of what becomes of which value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import Decimal128, ObjectId, Timestamp

from edenmem.models.ids import as_utc, is_id
from edenmem.models.v1 import V1ProblemKind as Kind
from edenmem.models.v1_documents import Note

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Numbers up to here are taken for seconds since 1970, greater ones for milliseconds.
_MOST_SECONDS = 100_000_000_000
_NUMBER = re.compile(r"[+-]?\d{1,20}(?:\.\d{1,9})?", re.ASCII)
#: Eight digits are a date, not seconds.
_DATE_DIGITS = re.compile(r"(?:19|20)\d{6}", re.ASCII)
#: Numbers that Extended JSON, or a driver that did not understand it, left as a document.
_NUMBER_KEYS = ("$numberLong", "$numberInt", "$numberDouble", "$numberDecimal")
#: The line that v1 wrote under a consolidated text.
_WORD_COUNT = re.compile(
    r"^[^\S\n]*-+[^\S\n]*total word count:[^\S\n]*[\d,.]+[^\S\n]*(?:words)?[^\S\n]*-*[^\S\n]*"
    r"(?:\n|\Z)",
    re.IGNORECASE | re.MULTILINE,
)
#: Notes on one document: enough for a person, and no cost for a list of a million wrong entries.
_MOST_NOTES = 100
_SURROGATES = re.compile("[\ud800-\udfff]+")
#: Bytes that are no UTF-8, in text that was read with "surrogateescape".
_ESCAPED = re.compile("[\udc80-\udcff]+")


class Notes:
    """What was noticed in one document. Most have nothing, and pay nothing for it.

    ``wrong`` holds the fields whose value has a type that nothing can be made of.
    """

    __slots__ = ("found", "wrong")

    def __init__(self) -> None:
        self.found: list[Note] = []
        self.wrong: set[str] = set()

    def add(self, kind: Kind, detail: str) -> None:
        """Note something, once."""
        if len(self.found) < _MOST_NOTES and (kind, detail) not in self.found:
            self.found.append((kind, detail))


def format_value(value: Any) -> str:
    """A value in a note: enough to recognise it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def identifier(value: Any, field: str, notes: Notes) -> str:
    """An id, or what stands in its place, as text; empty if there is none."""
    if type(value) is ObjectId:
        return str(value)
    if value is None or value == "":
        return ""
    if isinstance(value, Mapping) and isinstance(value.get("$oid"), str) and len(value) == 1:
        notes.add(Kind.ID_AS_TEXT, f"{field} holds a dict, not an ID")
        return _hex(value["$oid"])
    if isinstance(value, str):
        text = _hex(value)
        notes.add(Kind.ID_AS_TEXT, f"{field} is text, not an ID")
        return text
    notes.add(Kind.WRONG_SHAPE, f"{field} is not an ID: {format_value(value)}")
    return format_value(value)


def _hex(text: str) -> str:
    plain = text.strip().lower()
    return plain if is_id(plain) else _SURROGATES.sub("\ufffd", text)


def owner(value: Any, field: str, notes: Notes) -> str:
    """The id of an agent, user, session or shard; empty if there is none or it is not an ID."""
    found = identifier(value, field, notes)
    if found and not is_id(found):
        notes.add(Kind.NO_OWNER, f"{field} is not an ID: {format_value(value)}")
        notes.wrong.add(field)
        return ""
    return found


def identifiers(value: Any, field: str, notes: Notes, *, other: str = "") -> tuple[str, ...]:
    """A list of ids. A dict in its place gives its values in order, a single id a list of one.

    Texts and numbers that are not ids stay, in case a document has such an ``_id``. Lists within
    the list give their entries. Every other entry is ``other``, or left out.
    """
    if value is None:
        return ()
    if isinstance(value, list):
        items = value
    elif isinstance(value, Mapping) and "$oid" not in value:
        notes.add(Kind.WRONG_SHAPE, f"{field} is a dict, not a list")
        items = list(value.values())
    else:
        notes.add(Kind.WRONG_SHAPE, f"{field} is a single value, not a list")
        items = [value]
    found: list[str] = []
    for item in items:
        if type(item) is ObjectId:
            found.append(str(item))
        else:
            found += _entries(item, field, notes, other)
    return tuple(found)


def _entries(item: Any, field: str, notes: Notes, other: str) -> list[str]:
    """What an entry that is not an ObjectId stands for."""
    if isinstance(item, list):
        notes.add(Kind.NOT_AN_ID, f"{field} holds a list; its entries are taken")
        return [each for inner in item for each in _entries(inner, field, notes, other)]
    is_document = isinstance(item, Mapping) and isinstance(item.get("$oid"), str)
    if isinstance(item, ObjectId | str) or is_document:
        if found := identifier(item, field, notes):
            return [found]
    elif isinstance(item, int | float) and not isinstance(item, bool):
        notes.add(Kind.NOT_AN_ID, f"{field} holds a non-ID: {format_value(item)}")
        return [format_value(item)]
    notes.add(
        Kind.NOT_AN_ID,
        f"{field} holds a non-ID: {format_value(item)}; it is left out",
    )
    return [other] if other and item is not None and item != "" else []


def message_ids(value: Any, field: str, notes: Notes) -> tuple[str, ...]:
    """A list of ids of messages, without what is not an ID."""
    found = identifiers(value, field, notes)
    if all(map(is_id, found)):
        return found
    for each in found:
        if not is_id(each):
            notes.add(
                Kind.NOT_AN_ID,
                f"{field} holds a non-ID: {each[:60]}; it is left out",
            )
    return tuple(filter(is_id, found))


def text(value: Any, field: str, notes: Notes) -> str:
    """A text; empty for null."""
    if type(value) is str:
        return readable(value, field, notes) if not value.isascii() else value
    if value is None:
        return ""
    notes.add(Kind.WRONG_SHAPE, f"{field} is not text: {format_value(value)}")
    notes.wrong.add(field)
    return _plain(value)


def without_word_count(text: str) -> str:
    """A text without v1's ``-- Total word count: N --`` lines."""
    if "otal" not in text and "OTAL" not in text:
        return text
    kept, found = _WORD_COUNT.subn("", text)
    return kept.rstrip() if found else text


def _plain(value: Any) -> str:
    """What a person would read in a value that should have been a text."""
    if isinstance(value, list):
        return "\n".join(_plain(item) for item in value)
    if isinstance(value, Mapping):
        return "\n".join(f"{_plain(key)}: {_plain(item)}" for key, item in value.items())
    return _SURROGATES.sub("\ufffd", str(value))


def readable(value: str, field: str, notes: Notes) -> str:
    """A text that every store can hold: what is not a character is U+FFFD."""
    if _SURROGATES.search(value) is None:
        return value
    if _ESCAPED.search(value):
        notes.add(Kind.INVALID_UTF8, f"{field} holds bytes that are not UTF-8")
        value = _ESCAPED.sub("\ufffd", value)
    if _SURROGATES.search(value):
        notes.add(Kind.CONTROL_CHARACTERS, f"{field} holds halves of characters")
        value = _SURROGATES.sub("\ufffd", value)
    return value


def moment(value: Any, field: str, notes: Notes) -> datetime | None:
    """A time, aware, in UTC; None if there is none or it cannot be read."""
    if value is None or value == "":
        return None
    found = value if type(value) is datetime else _parse(value)
    try:
        utc = None if found is None else as_utc(found)
    except ValueError:  # its zone takes it out of the years that there are
        utc = None
    if found is None or utc is None:
        notes.add(Kind.WRONG_SHAPE, f"{field} is not a time: {format_value(value)}")
    elif found is not value:
        detail = "" if found.tzinfo else " without a zone, taken to be UTC"
        notes.add(Kind.TIME_AS_TEXT, f"{field} is {format_value(value)}{detail}")
    return utc


def _parse(value: Any) -> datetime | None:
    try:
        if isinstance(value, str):
            plain = value.strip()
            if _NUMBER.fullmatch(plain) and not _DATE_DIGITS.fullmatch(plain):
                return _since_epoch(float(plain))
            return datetime.fromisoformat(plain)
        if isinstance(value, Timestamp):
            return EPOCH + timedelta(seconds=value.time)
        if isinstance(value, Mapping) and len(value) == 1 and "$date" in value:
            return _parse_extended(value["$date"])
        number = _read_number(value)
        return None if number is None else _since_epoch(number)
    except (ValueError, OverflowError, ArithmeticError):
        return None


def _since_epoch(number: float) -> datetime:
    """The time of a number that is seconds or, if it is too great for that, milliseconds."""
    if abs(number) <= _MOST_SECONDS:
        return EPOCH + timedelta(seconds=number)
    return EPOCH + timedelta(milliseconds=number)


def _parse_extended(value: Any) -> datetime | None:
    """The value of ``$date``: a number there is always milliseconds."""
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        return _parse(value)
    number = float(value) if isinstance(value, str) else _read_number(value)
    return None if number is None else EPOCH + timedelta(milliseconds=number)


def _read_number(value: Any) -> float | None:
    if isinstance(value, Mapping) and len(value) == 1:
        ((key, inner),) = value.items()
        return float(inner) if key in _NUMBER_KEYS and isinstance(inner, str | int) else None
    if isinstance(value, Decimal128):
        return float(value.to_decimal())
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None


def number(value: Any, field: str, notes: Notes) -> int | None:
    """A whole number that is at least 1; None if there is none."""
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 1 <= value < 2**31:
        return int(value)
    notes.add(Kind.WRONG_SHAPE, f"{field} is not a positive number: {format_value(value)}")
    return None


def flag(value: Any, field: str, notes: Notes, *, default: bool) -> bool:
    """A truth value."""
    if isinstance(value, bool):
        return value
    if value is None:
        return default
    notes.add(Kind.WRONG_SHAPE, f"{field} is not true or false: {format_value(value)}")
    if isinstance(value, str):
        return value.strip().lower() not in ("", "0", "false", "no", "off")
    return bool(value)


def read_creation_time(document_id: str) -> datetime | None:
    """When a document with this id was made; None if the id does not tell."""
    if not is_id(document_id):
        return None
    return EPOCH + timedelta(seconds=int(document_id[:8], 16))
