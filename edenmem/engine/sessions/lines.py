"""Lines of a file that is read twice: once to judge all of it, once to write.

A file that can be rewound is; anything else (a pipe, a generator) is kept in a temporary file
meanwhile. No more than one line is in memory at a time, and no line may be longer than a limit.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Any

import msgspec

#: The longest line that is read, in bytes.
LINE_BYTES = 64 * 1024 * 1024

#: What is spooled in memory before it goes to a temporary file.
_SPOOL_BYTES = 8 * 1024 * 1024

_CHUNK = 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class Line(msgspec.Struct, frozen=True):
    """A line that is not blank, and its number from 1; ``data`` None: it is too long."""

    number: int
    data: bytes | None


class TwiceReadable:
    """Lines that can be gone through twice: `first`, and when that has ended, `again`.

    A context manager, which removes the temporary file. A line that is appended to the file
    between the two is not read.
    """

    def __init__(self, lines: Iterable[bytes | str], *, line_bytes: int = LINE_BYTES) -> None:
        self._source = lines
        self._line_bytes = line_bytes
        self._start = _position(lines)
        self._spool: IO[bytes] | None = None
        self._count = 0

    def __enter__(self) -> TwiceReadable:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spool is not None:
            self._spool.close()

    def first(self) -> Iterator[Line]:
        """All lines, for the first time."""
        if self._start is None:
            # closed in __exit__, since it outlives this pass
            self._spool = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115
        for data in self._bounded(self._source):
            self._count += 1
            if self._spool is not None:
                self._spool.write((data or b"").rstrip(b"\r\n") + b"\n")
            yield from self._line(self._count, data)

    def again(self) -> Iterator[Line]:
        """The same lines once more."""
        source: Any = self._spool if self._spool is not None else self._source
        source.seek(0 if self._spool is not None else self._start)
        for number, data in enumerate(self._bounded(source), 1):
            if number > self._count:
                return
            yield from self._line(number, data)

    def _line(self, number: int, data: bytes | None) -> Iterator[Line]:
        if number == 1 and data is not None:
            data = data.removeprefix(_BOM)
        if data is None or data.strip():
            yield Line(number, data)

    def _bounded(self, source: Any) -> Iterator[bytes | None]:
        """Lines as bytes; None for one that is too long, of which only a part is ever held."""
        if not hasattr(source, "readline"):
            for line in source:
                data = _encoded(line)
                yield data if len(data) <= self._line_bytes else None
            return
        while line := source.readline(self._line_bytes + 1):
            data = _encoded(line)
            if len(data) <= self._line_bytes:
                yield data
                continue
            while data and not data.endswith(b"\n"):
                data = _encoded(source.readline(_CHUNK))
            yield None


def _encoded(line: bytes | str) -> bytes:
    return line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line


def _position(source: object) -> int | None:
    """Where to rewind to; None if it cannot be."""
    if isinstance(source, io.IOBase) and source.seekable():
        return source.tell()
    return None
