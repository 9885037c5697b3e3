"""Convert values of old documents to their expected types, and note each deviation.

``edenmem/docs/migration.md`` lists the conversions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import Decimal128, ObjectId, Timestamp

from edenmem.models.ids import as_utc, is_id
from edenmem.models.v1 import Note
from edenmem.models.v1 import V1ProblemKind as Kind

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Numbers up to here are seconds since 1970, larger ones milliseconds.
_MAX_SECONDS = 100_000_000_000
_NUMBER = re.compile(r"[+-]?\d{1,20}(?:\.\d{1,9})?", re.ASCII)
#: Eight digits are a date, not seconds.
_DATE_DIGITS = re.compile(r"(?:19|20)\d{6}", re.ASCII)
#: Numbers left as documents by Extended JSON, or by a driver without support for it.
_NUMBER_KEYS = ("$numberLong", "$numberInt", "$numberDouble", "$numberDecimal")
#: The line that v1 appended to a consolidated text.
_WORD_COUNT = re.compile(
    r"^[^\S\n]*-+[^\S\n]*total word count:[^\S\n]*[\d,.]+[^\S\n]*(?:words)?[^\S\n]*-*[^\S\n]*"
    r"(?:\n|\Z)",
    re.IGNORECASE | re.MULTILINE,
)
#: The types of the entries of a valid list.
_IDS = {ObjectId}
#: Maximum number of notes per document; limits the cost of a list of a million wrong entries.
_MAX_NOTES = 100
_SURROGATES = re.compile("[\ud800-\udfff]+")
#: Bytes that are not UTF-8, in text decoded with "surrogateescape".
_ESCAPED = re.compile("[\udc80-\udcff]+")


class Notes:
    """The notes on one document; most have none.

    ``wrong`` contains the fields whose value cannot be converted, ``left`` the entries of lists
    that are not IDs.
    """

    __slots__ = ("found", "left", "wrong")

    def __init__(self) -> None:
        self.found: list[Note] = []
        self.wrong: set[str] = set()
        self.left: dict[str, list[Any]] = {}

    def add(self, kind: Kind, detail: str) -> None:
        """Add a note, once."""
        if len(self.found) < _MAX_NOTES and (kind, detail) not in self.found:
            self.found.append((kind, detail))


def format_value(value: Any) -> str:
    """Return a recognizable form of a value, for a note."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def identifier(value: Any, field: str, notes: Notes) -> str:
    """Return an ID, or the value in its place, as text; empty if missing."""
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
    """Return the ID of an agent, user, session or shard; empty if missing or invalid."""
    if type(value) is ObjectId:
        return str(value)
    found = identifier(value, field, notes)
    if found and not is_id(found):
        notes.add(Kind.NO_OWNER, f"{field} is not an ID: {format_value(value)}")
        notes.wrong.add(field)
        return ""
    return found


def identifiers(value: Any, field: str, notes: Notes, *, other: str = "") -> tuple[str, ...]:
    """Return a list of IDs; a dict gives its values in order, a single ID a list of one.

    Texts and numbers that are not IDs are kept, since a document may have such an ``_id``. Nested
    lists are flattened. Every other entry becomes ``other``, or is left out.
    """
    if value is None:
        return ()
    if isinstance(value, list):
        if not value or set(map(type, value)) == _IDS:
            return tuple([item.binary.hex() for item in value])
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
            continue
        entries = _entries(item, field, notes, other)
        if item not in (None, "") and not (entries and all(map(is_id, entries))):
            notes.left.setdefault(field, []).append(item)
        found += entries
    return tuple(found)


def _entries(item: Any, field: str, notes: Notes, other: str) -> list[str]:
    """Return the IDs of an entry that is not an ObjectId."""
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
    """Return a list of message IDs, without invalid ones."""
    found = identifiers(value, field, notes)
    if not notes.found or all(map(is_id, found)):
        return found
    for each in found:
        if not is_id(each):
            notes.add(
                Kind.NOT_AN_ID,
                f"{field} holds a non-ID: {each[:60]}; it is left out",
            )
    return tuple(filter(is_id, found))


def text(value: Any, field: str, notes: Notes) -> str:
    """Return a text; empty for null."""
    if type(value) is str:
        return readable(value, field, notes) if not value.isascii() else value
    if value is None:
        return ""
    notes.add(Kind.WRONG_SHAPE, f"{field} is not text: {format_value(value)}")
    notes.wrong.add(field)
    return _plain(value)


def without_word_count(text: str) -> str:
    """Return a text without v1's ``-- Total word count: N --`` lines."""
    if "otal" not in text and "OTAL" not in text:
        return text
    kept, found = _WORD_COUNT.subn("", text)
    return kept.rstrip() if found else text


def _plain(value: Any) -> str:
    """Return the readable content of a value that should be a text."""
    if isinstance(value, list):
        return "\n".join(_plain(item) for item in value)
    if isinstance(value, Mapping):
        return "\n".join(f"{_plain(key)}: {_plain(item)}" for key, item in value.items())
    return _SURROGATES.sub("\ufffd", str(value))


def readable(value: str, field: str, notes: Notes) -> str:
    """Return a text that every store can hold, with U+FFFD for invalid characters."""
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
    """Return an aware time in UTC; None if missing or unreadable."""
    if type(value) is datetime and value.tzinfo is None:
        return value.replace(tzinfo=UTC)  # BSON has whole milliseconds
    if value is None or value == "":
        return None
    found = value if isinstance(value, datetime) else _parse(value)
    try:
        utc = None if found is None else as_utc(found)
    except ValueError:  # its zone moves it out of the supported years
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
    """Return the time of a number in seconds or, if too large, in milliseconds."""
    if abs(number) <= _MAX_SECONDS:
        return EPOCH + timedelta(seconds=number)
    return EPOCH + timedelta(milliseconds=number)


def _parse_extended(value: Any) -> datetime | None:
    """Parse the value of ``$date``, in which numbers are always milliseconds."""
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
    """Return a whole number of at least 1; None if missing or invalid."""
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 1 <= value < 2**31:
        return int(value)
    notes.add(Kind.WRONG_SHAPE, f"{field} is not a positive number: {format_value(value)}")
    return None


def read_creation_time(document_id: str) -> datetime | None:
    """Return the creation time of a document by its ID; None if the ID has none."""
    if not is_id(document_id):
        return None
    return EPOCH + timedelta(seconds=int(document_id[:8], 16))
