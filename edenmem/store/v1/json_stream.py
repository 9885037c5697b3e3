"""Read documents from Extended JSON: one per line, concatenated, or in an array."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from bson import json_util
from bson.codec_options import DatetimeConversion
from bson.errors import BSONError

from edenmem.store.v1 import bson_stream

_CHUNK = 1024 * 1024
#: Maximum length of a document; longer text without an end is damaged.
_MAX_CHARACTERS = 32 * 1024 * 1024
_BETWEEN = re.compile(r"[\s,\[\]\ufeff]*")
#: The probable start of a document.
_NEXT = re.compile(r'\n[ \t]*[,\[]?[ \t]*(?=\{\s*"_id"\s*:)')
_LINE = re.compile(r"\n[ \t]*[,\[]?[ \t]*(?=\{)")

#: Where a truncated document can end: inside an escape such as \\u00e9, inside a number,
_ESCAPE = 6
_CUT_VALUE = re.compile(r"|-|\.|[eE][+-]?")
#: or inside a word.
_WORDS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")

_OPTIONS = json_util.JSONOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


class Value(NamedTuple):
    """A document, or unreadable text with its ``problem``.

    ``line`` is its first line, from 1; ``text`` is the beginning of the ``size`` unreadable
    characters. ``ends_early``: the stream ends inside the document, or inside the array around it;
    the latter has no text.
    """

    line: int
    document: dict[str, Any] | None
    problem: str = ""
    text: str = ""
    size: int = 0
    ends_early: bool = False


def documents(stream: BinaryIO) -> Iterator[Value]:
    """Yield all documents of a stream; bytes that are not UTF-8 become lone surrogates."""
    return _Reading(stream).run()


def _hook(pairs: list[tuple[str, Any]]) -> Any:
    try:
        return json_util.object_pairs_hook(pairs, _OPTIONS)
    except (BSONError, ValueError, TypeError, ArithmeticError, LookupError):
        return dict(pairs)  # not a valid special value: keep it unchanged


class _Reading:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._characters = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._decoder = json.JSONDecoder(object_pairs_hook=_hook, strict=False)
        self._text = ""
        self._at = 0
        self._line = 1
        self._open = 0  # brackets of arrays around the documents
        self._ended = False
        self._failure = ""
        self._is_cut = True  # no failure other than a missing end

    def run(self) -> Iterator[Value]:
        while self._find():
            line, start = self._line, self._at
            try:
                found, end = self._decoder.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if self._may_go_on(error) and self._more():
                    continue
                yield self._skip(line, error)
                continue
            self._move(end)
            if isinstance(found, dict):
                yield Value(line, found)
            else:
                text = str(found)[:1000] or " "
                yield Value(line, None, "a single value, not a document", text, end - start)
        if self._failure:
            yield Value(self._line, None, self._failure, ends_early=self._is_cut)
        elif self._open > 0:
            yield Value(self._line, None, "the array is not closed", ends_early=True)

    def _find(self) -> bool:
        """Advance to the next document; return False at the end."""
        while True:
            match = _BETWEEN.match(self._text, self._at)
            assert match is not None
            between = match.group()
            self._open += between.count("[") - between.count("]")
            self._move(match.end())
            if self._at < len(self._text):
                return True
            if not self._more():
                return False

    def _move(self, end: int) -> None:
        self._line += self._text.count("\n", self._at, end)
        self._at = end

    def _more(self) -> bool:
        """Read at least as much as there is, so that a long document is parsed only a few times."""
        if self._ended:
            return False
        rest = self._text[self._at :]
        parts = [rest]
        wanted = max(_CHUNK, len(rest))
        while wanted > 0 and not self._ended:
            part = self._read()
            parts.append(part)
            wanted -= len(part)
        self._text, self._at = "".join(parts), 0
        return len(self._text) > len(rest)

    def _read(self) -> str:
        raw = b""
        try:
            raw = bson_stream.read_some(self._stream)
        except bson_stream.UNREADABLE as error:
            self._failure = bson_stream.describe_failure(error)
            self._is_cut = isinstance(error, EOFError)
        self._ended = not raw
        return self._characters.decode(raw, final=self._ended)

    def _may_go_on(self, error: Exception) -> bool:
        """Return whether the document may only be incomplete."""
        is_syntax = isinstance(error, json.JSONDecodeError)
        if not is_syntax or len(self._text) - self._at > _MAX_CHARACTERS:
            return False
        return _NEXT.search(self._text, self._at) is None

    def _skip(self, line: int, error: Exception) -> Value:
        pattern = _NEXT if _NEXT.search(self._text, self._at) else _LINE
        match = pattern.search(self._text, self._at)
        end = match.end() if match else len(self._text)
        start, text = self._at, self._text[self._at : end]
        cut = (
            match is None and self._ended and self._is_cut and _is_cut(error, text.rstrip(), start)
        )
        self._move(end)
        why = "nested too deeply"
        if isinstance(error, ValueError):  # a syntax error, or a number with thousands of digits
            why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        return Value(line, None, f"not Extended JSON: {why}", text[:64_000], len(text), cut)


def _is_cut(error: Exception, text: str, start: int) -> bool:
    """Return whether a text starting at ``start`` is a truncated document."""
    if not isinstance(error, json.JSONDecodeError) or not text.startswith("{"):
        return False
    if error.msg.startswith("Unterminated string"):
        return True
    rest = text[error.pos - start :]
    if error.msg.startswith("Invalid \\uXXXX escape"):
        return len(rest) <= _ESCAPE
    return _CUT_VALUE.fullmatch(rest) is not None or any(word.startswith(rest) for word in _WORDS)
