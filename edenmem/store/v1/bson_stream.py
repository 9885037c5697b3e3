"""Read documents from a BSON stream, such as a mongodump file, even if it is damaged.

A document begins with its length and ends with a zero byte. Where that does not hold, the stream is
searched for the next probable document, and the bytes in between are reported as unreadable.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from gzip import BadGzipFile
from typing import Any, BinaryIO, NamedTuple

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError

from edenmem.models.ids import is_id

#: MongoDB's limit, with the server's own allowance.
MAX_BYTES = 16 * 1024 * 1024 + 16 * 1024
#: Maximum length of a document from another program; larger lengths are invalid.
_MAX_FRAME = 32 * 1024 * 1024
_MIN_BYTES = 5
_CHUNK = 1024 * 1024
_LENGTH = struct.Struct("<I").unpack_from
#: Bytes that editors and archives append to the last document.
_PADDING = b" \t\r\n\0"
#: Maximum number of unreadable bytes to keep.
_KEPT = 64 * 1024

#: Valid types of a first element; 0 ends an empty document.
_TYPES = frozenset({*range(0x14), 0x7F, 0xFF})
#: The name of a first element, and its types: text, document or ObjectId.
_ID, _ID_TYPES = b"_id\0", b"\2\3\7"

_STRICT: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_LENIENT = _STRICT.with_options(unicode_decode_error_handler="replace")


#: Errors of a damaged stream, such as a gzip.
UNREADABLE = (EOFError, OSError, zlib.error)


def describe_failure(error: Exception) -> str:
    """Return why a stream cannot be read to its end."""
    if isinstance(error, EOFError):
        return "the gzip data ends before its end marker"
    if isinstance(error, OSError) and error.errno is not None:
        return f"the file cannot be read: {error.strerror}"
    if isinstance(error, BadGzipFile) and "Not a gzipped file" in str(error):
        return "followed by data that is not gzip"
    return f"the gzip data is damaged: {error}"


def read_some(stream: BinaryIO) -> bytes:
    """Read the next bytes, empty at the end, keeping what a damaged gzip still yields."""
    read1 = getattr(stream, "read1", stream.read)
    chunk: bytes = read1(_CHUNK)
    return chunk


class Frame(NamedTuple):
    """A whole document, or skipped bytes with their ``problem``.

    For skipped bytes, ``raw`` is the beginning of ``size`` bytes. ``ends_early``: the stream ends
    inside the document, ``missing`` bytes before its end (0: unknown). If a stream cannot be read
    further, its last frame has no bytes.
    """

    offset: int
    raw: bytes
    problem: str = ""
    size: int = 0
    ends_early: bool = False
    missing: int = 0


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


def frames(stream: BinaryIO) -> Iterator[Frame]:
    """Yield all documents of a stream, and the damage between them."""
    return _Framing(stream).run()


class _Framing:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._data = b""
        self._at = 0  # where the next document begins in the data
        self._before = 0  # bytes of the stream before the data
        self._ended = False
        self._failure = ""
        self._is_cut = True  # no failure other than a missing end

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
        """Yield intact documents that are in memory together with the next one (fast path)."""
        data, at = self._data, self._at
        last = len(data) - _MIN_BYTES
        while at < last:
            end = at + _LENGTH(data, at)[0]
            if (
                not at + _MIN_BYTES <= end <= last
                or data[end - 1] != 0
                or not _MIN_BYTES <= _LENGTH(data, end)[0] <= _MAX_FRAME
                or data[end + 4] not in _TYPES
            ):
                break
            self._at = end
            yield Frame(self._before + at, data[at:end])
            at = end

    def _slice(self, length: int) -> bytes:
        return self._data[self._at : self._at + length]

    def _has(self, count: int, start: int | None = None) -> bool:
        """Return whether ``count`` bytes from ``start`` are available, reading more if needed."""
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

    # Reading more moves positions in the data, so they are relative to the next document.

    def _length(self, start: int) -> int:
        """Return the length field of the document at ``start``; 0 if invalid."""
        relative = start - self._at
        if not self._has(4, start):
            return 0
        start = self._at + relative
        length = int.from_bytes(self._data[start : start + 4], "little")
        return length if _MIN_BYTES <= length <= _MAX_FRAME else 0

    def _is_whole(self, start: int, length: int) -> bool:
        relative = start - self._at
        if not length or not self._has(length, start):
            return False
        return self._data[self._at + relative + length - 1] == 0

    def _can_follow(self, start: int) -> bool:
        """Return whether a document, or the end of the stream, can be at ``start``."""
        relative = start - self._at
        if not self._has(5, start):
            return True  # the end, or a truncated document
        start = self._at + relative
        return bool(self._length(start)) and self._data[start + 4] in _TYPES

    def _skip(self, length: int) -> Frame:
        """Skip to the next document; return the skipped bytes as unreadable."""
        offset = self._before + self._at
        kept = b""
        skipped = 0
        while True:
            self._has(2 * _CHUNK)
            window = self._data[self._at :]
            if len(kept) < _KEPT:
                kept += window[: _KEPT - len(kept)]
            for start in _starts(window):
                if skipped + start < _MIN_BYTES:
                    continue  # the ID of the damaged document
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
                short = length > skipped and (skipped < _MIN_BYTES or kept[4] in _TYPES)
                begun = skipped < 4 and bool(kept.strip(_PADDING))
                why = "not BSON"
                if short:
                    why = f"truncated: {skipped:,} of {length:,} bytes"
                elif begun:
                    why = "truncated inside its length"
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


def _starts(window: bytes) -> Iterator[int]:
    """Yield where documents begin that begin with an ``_id``, ten times faster than a pattern."""
    at = window.find(_ID)
    while at >= 0:
        if at and window[at - 1] in _ID_TYPES:
            yield at - 5
        at = window.find(_ID, at + 1)


def _is_readable(raw: bytes) -> bool:
    try:
        decode(raw)
    except ValueError:
        return False
    return True
