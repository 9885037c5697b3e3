"""Documents out of a stream of BSON, such as a file of mongodump, damaged or not.

A document begins with its own length and ends with a zero byte. Where that does not hold, the
stream is searched for what can be the beginning of the next document, and what lies between is
reported as one that cannot be read.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from gzip import BadGzipFile
from typing import Any, BinaryIO, NamedTuple

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError

from edenmem.models.ids import is_id

#: MongoDB's limit, with what the server allows itself on top.
MOST_BYTES = 16 * 1024 * 1024 + 16 * 1024
#: What may still be one document that somebody made elsewhere; beyond it a length is nonsense.
_MOST_FRAME = 32 * 1024 * 1024
_LEAST_BYTES = 5
_CHUNK = 1024 * 1024
_LENGTH = struct.Struct("<I").unpack_from
#: Bytes that editors and archives leave behind the last document.
_PADDING = b" \t\r\n\0"
#: How much of what cannot be read is kept, to tell one from another.
_KEPT = 64 * 1024

#: The types that a first element can have; 0 ends an empty document.
_TYPES = frozenset({*range(0x14), 0x7F, 0xFF})
#: A first element that is an ``_id``: a text, a document or an ObjectId.
_ID_ELEMENT = re.compile(rb"[\x02\x03\x07]_id\x00")

_STRICT: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_LENIENT = _STRICT.with_options(unicode_decode_error_handler="replace")


#: What a stream raises that is damaged in its own right, such as a gzip.
UNREADABLE = (EOFError, OSError, zlib.error)


def describe_failure(error: Exception) -> str:
    """Return why a stream cannot be read to its end."""
    if isinstance(error, EOFError):
        return "the gzip data ends before its end marker"
    if isinstance(error, OSError) and error.errno is not None:
        return f"the file cannot be read: {error.strerror}"
    if isinstance(error, BadGzipFile) and "Not a gzipped file" in str(error):
        return "what follows is not gzip data"
    return f"the gzip data is damaged: {error}"


def read_some(stream: BinaryIO) -> bytes:
    """What comes next; empty at the end. What a damaged gzip still gives is not lost."""
    read1 = getattr(stream, "read1", stream.read)
    chunk: bytes = read1(_CHUNK)
    return chunk


class Frame(NamedTuple):
    """``raw`` is one whole document, unless ``problem`` says why it is none; then ``size`` bytes
    were skipped, of which ``raw`` is the beginning.

    ``ends_early``: the stream stops inside of the document, ``missing`` bytes before its end (0: it
    cannot be told). The last frame of a stream that cannot be read any further has no bytes.
    """

    offset: int
    raw: bytes
    problem: str = ""
    size: int = 0
    ends_early: bool = False
    missing: int = 0


def decode(raw: bytes) -> tuple[dict[str, Any], bool]:
    """The document, and whether bytes that are no UTF-8 were replaced.

    Raises:
        ValueError: it cannot be read.
    """
    if len(raw) > MOST_BYTES:
        raise ValueError(f"{len(raw):,} bytes long, beyond MongoDB's limit of 16 MB")
    try:
        return bson.decode(raw, _STRICT), False
    except (BSONError, UnicodeDecodeError, ValueError, OverflowError):
        pass  # read again, replacing what is not UTF-8
    try:
        return bson.decode(raw, _LENIENT), True
    except (BSONError, UnicodeDecodeError, ValueError, OverflowError) as error:
        raise ValueError(f"not BSON: {error}") from None


def id_in(raw: bytes) -> str:
    """The id at the beginning of a document that cannot be read; empty if there is none."""
    found = raw[9:21].hex() if raw[4:9] == b"\x07_id\x00" else ""
    return found if is_id(found) else ""


def frames(stream: BinaryIO) -> Iterator[Frame]:
    """All documents of a stream, and what is between them if it is damaged."""
    return _Framing(stream).run()


class _Framing:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._data = b""
        self._at = 0  # where the next document begins in the data
        self._before = 0  # bytes of the stream before the data
        self._ended = False
        self._failure = ""
        self._is_cut = True  # nothing that fails is in the way of the end

    def run(self) -> Iterator[Frame]:
        while True:
            yield from self._intact()
            if not self._has(1):
                break
            length = self._length(self._at)
            whole = self._is_whole(self._at, length)
            if whole and (self._can_follow(self._at + length) or _is_readable(self._slice(length))):
                frame = Frame(self._before + self._at, self._slice(length))
                self._at += length
                yield frame
            else:
                yield self._skip(length)
        if self._failure:
            yield Frame(self._before + self._at, b"", self._failure, ends_early=self._is_cut)

    def _intact(self) -> Iterator[Frame]:
        """Those that are in memory with what follows them, and of which nothing is to be said."""
        data, at = self._data, self._at
        last = len(data) - _LEAST_BYTES
        while at < last:
            end = at + _LENGTH(data, at)[0]
            if (
                not at + _LEAST_BYTES <= end <= last
                or data[end - 1] != 0
                or not _LEAST_BYTES <= _LENGTH(data, end)[0] <= _MOST_FRAME
                or data[end + 4] not in _TYPES
            ):
                break
            self._at = end
            yield Frame(self._before + at, data[at:end])
            at = end

    def _slice(self, length: int) -> bytes:
        return self._data[self._at : self._at + length]

    def _has(self, count: int, start: int | None = None) -> bool:
        """Whether so many bytes can be had from ``start`` on."""
        offset = (self._at if start is None else start) - self._at
        if len(self._data) - self._at >= offset + count:
            return True
        if self._ended:
            return False
        parts = [self._data[self._at :]]
        self._before += self._at
        self._at = 0
        size = len(parts[0])
        while size < offset + count and not self._ended:
            chunk = self._read()
            parts.append(chunk)
            size += len(chunk)
        self._data = b"".join(parts)
        return size >= offset + count

    def _read(self) -> bytes:
        try:
            chunk = read_some(self._stream)
        except UNREADABLE as error:
            self._failure = describe_failure(error)
            self._is_cut = isinstance(error, EOFError)
            chunk = b""
        self._ended = not chunk
        return chunk

    # Places in the data move when more is read, so they are given relative to the next document.

    def _length(self, start: int) -> int:
        """The length that the document there gives itself; 0 if that is none."""
        relative = start - self._at
        if not self._has(4, start):
            return 0
        start = self._at + relative
        length = int.from_bytes(self._data[start : start + 4], "little")
        return length if _LEAST_BYTES <= length <= _MOST_FRAME else 0

    def _is_whole(self, start: int, length: int) -> bool:
        relative = start - self._at
        if not length or not self._has(length, start):
            return False
        return self._data[self._at + relative + length - 1] == 0

    def _can_follow(self, start: int) -> bool:
        """Whether a document, or the end, can be there."""
        relative = start - self._at
        if not self._has(5, start):
            return True  # the end, or the beginning of a document that was cut off
        start = self._at + relative
        return bool(self._length(start)) and self._data[start + 4] in _TYPES

    def _skip(self, length: int) -> Frame:
        """Go to the next document; what is left behind as one that cannot be read."""
        offset = self._before + self._at
        kept = b""
        skipped = 0
        while True:
            self._has(2 * _CHUNK)
            window = self._data[self._at :]
            if len(kept) < _KEPT:
                kept += window[: _KEPT - len(kept)]
            for match in _ID_ELEMENT.finditer(window):
                start = match.start() - 4
                if skipped + start < _LEAST_BYTES:
                    continue  # the id of the damaged one itself
                place = self._at + start
                found = self._length(place)
                if found and self._is_whole(self._at + start, found):
                    self._at += start
                    kept = kept[: skipped + start]
                    size = skipped + start
                    return Frame(offset, kept, "damaged: its length is wrong", size)
            if self._ended:
                skipped += len(window)
                self._at = len(self._data)
                short = length > skipped and (skipped < _LEAST_BYTES or kept[4] in _TYPES)
                begun = skipped < 4 and bool(kept.strip(_PADDING))
                why = "not BSON"
                if short:
                    why = f"cut off: {length:,} bytes long, and {skipped:,} are there"
                elif begun:
                    why = "cut off inside of its length"
                return Frame(
                    offset,
                    kept,
                    why,
                    skipped,
                    ends_early=(short or begun) and self._is_cut,
                    missing=length - skipped if short else 0,
                )
            step = max(len(window) - _CHUNK, 1)
            skipped += step
            self._at += step


def _is_readable(raw: bytes) -> bool:
    try:
        decode(raw)
    except ValueError:
        return False
    return True
