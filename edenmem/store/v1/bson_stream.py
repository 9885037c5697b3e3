"""Read documents from a BSON stream, such as a mongodump file.

A document begins with its length and ends with a zero byte. Where that does not hold, the file is
damaged, and reading ends.
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


class Damage(NamedTuple):
    """The damage at which reading ends: where, why, and how many bytes are missing.

    ``is_cut``: the stream ends inside a document. ``missing`` is 0 if unknown.
    """

    place: str
    problem: str
    is_cut: bool = False
    missing: int = 0


class Frame(NamedTuple):
    """The bytes of a document; without any, the damage at which reading ends."""

    offset: int
    raw: bytes = b""
    damage: Damage | None = None


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


def frames(stream: BinaryIO) -> Iterator[Frame]:
    """Yield all documents of a stream, up to its end or its damage."""
    data, at, before = b"", 0, 0
    failure: Exception | None = None
    ended = False
    while True:
        here = len(data) - at
        length = _LENGTH(data, at)[0] if here >= 4 else 0
        if here >= 4 and not _MIN_BYTES <= length <= _MAX_FRAME:
            yield _end(before + at, f"not BSON: a length of {length:,} bytes")
            return
        if here >= length > 0:
            end = at + length
            if data[end - 1]:
                yield _end(before + at, f"not BSON: {length:,} bytes without an end")
                return
            yield Frame(before + at, data[at:end])
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
    if failure is not None:
        why = describe_failure(failure)
        yield _end(before + at, why, is_cut=isinstance(failure, EOFError))
    elif here:
        why = f"truncated: {here:,} of {length:,} bytes" if length else "truncated in its length"
        yield _end(before + at, why, is_cut=True, missing=max(length - here, 0))


def _end(offset: int, problem: str, *, is_cut: bool = False, missing: int = 0) -> Frame:
    return Frame(offset, damage=Damage(f"byte {offset:,}", problem, is_cut, missing))
