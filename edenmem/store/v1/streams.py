"""Read documents from streams: BSON of mongodump, and Extended JSON of mongoexport.

A BSON document begins with its length and ends with a zero byte. Where that does not hold, the
file is damaged, and reading ends. Extended JSON is one document per line, concatenated, or in an
array.
"""

from __future__ import annotations

import codecs
import json
import re
import struct
import zlib
from collections.abc import Iterator
from gzip import BadGzipFile
from typing import Any, BinaryIO

import bson
from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError

from edenmem.errors import InputError
from edenmem.models.ids import is_id

#: MongoDB's limit, with the server's own allowance.
MAX_BYTES = 16 * 1024 * 1024 + 16 * 1024
#: Maximum length of a document from another program; larger lengths are damage.
_MAX_FRAME = 32 * 1024 * 1024
_MIN_BYTES = 5
_CHUNK = 1024 * 1024
_LENGTH = struct.Struct("<i").unpack_from

#: Times have no zone: decoding is faster, and `values` takes them as UTC.
_STRICT: CodecOptions[dict[str, Any]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_LENIENT = _STRICT.with_options(unicode_decode_error_handler="replace")

#: Errors of a damaged stream, such as a gzip.
UNREADABLE = (EOFError, OSError, zlib.error)


class Damaged(Exception):
    """The damage at which reading ends: where, why, and how many bytes are missing.

    ``is_cut``: the stream ends inside a document. ``missing`` is 0 if unknown.
    """

    def __init__(self, place: str, problem: str, *, is_cut: bool = False, missing: int = 0) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place
        self.problem = problem
        self.is_cut = is_cut
        self.missing = missing


def read_some(stream: BinaryIO) -> bytes:
    """Read the next bytes, empty at the end, keeping what a damaged gzip still yields."""
    read1 = getattr(stream, "read1", stream.read)
    chunk: bytes = read1(_CHUNK)
    return chunk


def describe_failure(error: Exception) -> str:
    """Return why a stream cannot be read to its end."""
    if isinstance(error, EOFError):
        return "the gzip data ends before its end marker"
    if isinstance(error, OSError) and error.errno is not None:
        return f"the file cannot be read: {error.strerror}"
    if isinstance(error, BadGzipFile) and "Not a gzipped file" in str(error):
        return "followed by data that is not gzip"
    return f"the gzip data is damaged: {error}"


def decode(raw: bytes) -> tuple[dict[str, Any], bool]:
    """Decode a document; return it, and whether invalid UTF-8 was replaced.

    Raises:
        ValueError: it cannot be decoded.
    """
    if len(raw) > MAX_BYTES:
        raise ValueError(f"{len(raw):,} bytes long, beyond MongoDB's limit of 16 MB")
    try:
        return bson.decode(raw, _STRICT), False
    except (BSONError, UnicodeDecodeError, ValueError, OverflowError):
        pass  # decode again, replacing invalid UTF-8
    try:
        return bson.decode(raw, _LENIENT), True
    except (BSONError, UnicodeDecodeError, ValueError, OverflowError) as error:
        raise ValueError(f"not BSON: {error}") from None


def id_in(raw: bytes) -> str:
    """Return the ID at the beginning of an unreadable document; empty if there is none."""
    found = raw[9:21].hex() if raw[4:9] == b"\x07_id\x00" else ""
    return found if is_id(found) else ""


def frames(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and bytes of all documents of a stream.

    Raises:
        Damaged: the stream is damaged, or ends inside a document.
    """
    data, at, before = b"", 0, 0
    failure: Exception | None = None
    ended = False
    while True:
        here = len(data) - at
        length = _LENGTH(data, at)[0] if here >= 4 else 0
        if here >= 4 and not _MIN_BYTES <= length <= _MAX_FRAME:
            raise Damaged(f"byte {before + at:,}", f"not BSON: a length of {length:,} bytes")
        if here >= length > 0:
            end = at + length
            if data[end - 1]:
                problem = f"not BSON: {length:,} bytes without an end"
                raise Damaged(f"byte {before + at:,}", problem)
            yield before + at, data[at:end]
            at = end
            continue
        if ended:
            break
        parts, wanted = [data[at:]], max(length - here, 1)
        try:
            while wanted > 0 and (part := read_some(stream)):
                parts.append(part)
                wanted -= len(part)
        except UNREADABLE as error:
            failure = error
        before, at, data = before + at, 0, b"".join(parts)
        ended = wanted > 0
    place = f"byte {before + at:,}"
    if failure is not None:
        why = describe_failure(failure)
        raise Damaged(place, why, is_cut=isinstance(failure, EOFError))
    if here:
        why = f"truncated: {here:,} of {length:,} bytes" if length else "truncated in its length"
        raise Damaged(place, why, is_cut=True, missing=max(length - here, 0))


#: Maximum length of a document; longer text without an end is damaged.
_MAX_CHARACTERS = 32 * 1024 * 1024
_BETWEEN = re.compile(r"[\s,\[\]\ufeff]*")
#: An error within this distance of the end may only be a document that is not read whole.
_NEAR = 16
_SHELL = re.compile(r"\b(ObjectId|ISODate|Number(?:Long|Int|Decimal)|BinData|UUID|DBRef)\(")

_OPTIONS = json_util.JSONOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)


def documents(stream: BinaryIO) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Yield the first line (from 1) of each document with it, or with why it is not a document.

    Bytes that are not UTF-8 become lone surrogates.

    Raises:
        Damaged: the stream is damaged, or ends inside a document.
        InputError: it is not Extended JSON, but something similar.
    """
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
        self._bytes = 0  # before the text
        self._open = 0  # brackets of arrays around the documents
        self._ended = False
        self._failure: Damaged | None = None

    def run(self) -> Iterator[tuple[int, dict[str, Any] | str]]:
        while self._find():
            line, start = self._line, self._at
            try:
                found, end = self._decoder.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if self._may_go_on(error) and self._more():
                    continue
                if not isinstance(error, json.JSONDecodeError):
                    self._skip()
                    yield line, self._why(error)
                    continue
                raise self._failure or self._describe(line, error) from None
            self._move(end)
            if isinstance(found, dict):
                yield line, found
            elif end > start:
                yield line, "a single value, not a document"
        if self._failure is not None:
            raise self._failure
        if self._open > 0:
            raise Damaged(self._place(self._line), "the array is not closed", is_cut=True)

    def _place(self, line: int) -> str:
        before = len(self._text[: self._at].encode("utf-8", "surrogateescape"))
        return f"line {line:,}, byte {self._bytes + before:,}"

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
        self._bytes += len(self._text[: self._at].encode("utf-8", "surrogateescape"))
        rest = self._text[self._at :]
        self._text, self._at = rest, 0
        parts = [rest]
        wanted = max(_CHUNK, len(rest))
        while wanted > 0 and not self._ended:
            part = self._read()
            parts.append(part)
            wanted -= len(part)
        self._text = "".join(parts)
        return len(self._text) > len(rest)

    def _read(self) -> str:
        raw = b""
        try:
            raw = read_some(self._stream)
        except UNREADABLE as error:
            is_cut = isinstance(error, EOFError)
            why = describe_failure(error)
            self._failure = Damaged(self._place(self._line), why, is_cut=is_cut)
        self._ended = not raw
        return self._characters.decode(raw, final=self._ended)

    def _may_go_on(self, error: Exception) -> bool:
        """Return whether the document may only be incomplete."""
        if not isinstance(error, json.JSONDecodeError):
            return False
        is_open = error.msg.startswith(("Unterminated string", "Invalid \\"))
        is_near = error.pos >= len(self._text) - _NEAR
        return (is_open or is_near) and len(self._text) - self._at < _MAX_CHARACTERS

    def _skip(self) -> None:
        """Advance to the next line that begins a document, or to the end."""
        while (end := self._text.find("\n{", self._at)) < 0 and self._more():
            pass
        self._move(end if end >= 0 else len(self._text))

    def _why(self, error: Exception) -> str:
        if isinstance(error, json.JSONDecodeError):
            return f"not Extended JSON: {error.msg}"
        too_deep = isinstance(error, RecursionError)
        return "nested too deeply" if too_deep else f"not Extended JSON: {error}"

    def _describe(self, line: int, error: Exception) -> Damaged:
        """Return the damage of an error.

        Raises:
            InputError: it is the syntax of the mongo shell.
        """
        if match := _SHELL.search(self._text, self._at, self._at + 10_000):
            raise InputError(
                f"the syntax of the mongo shell, not Extended JSON: {match[0]}…) at line {line:,}",
                hint="export with mongoexport, or print EJSON.stringify(document) in mongosh",
            )
        is_cut = self._ended and self._text[self._at] == "{" and self._may_go_on(error)
        return Damaged(self._place(line), self._why(error), is_cut=is_cut)
