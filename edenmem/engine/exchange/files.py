"""Files that are written whole or not at all, and read more than once."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from edenmem.errors import ConflictError, InputError

#: The longest line that is read; one of ours is far below it.
MAX_LINE = 64 * 1024 * 1024
_GZIP = b"\x1f\x8b"


@contextmanager
def open_for_writing(target: str, *, compress: bool, force: bool) -> Iterator[IO[bytes]]:
    """A file to write to, which takes its name only when all of it is on the disk.

    It can be read by its owner alone (mode 0600).

    Raises:
        ConflictError: there is such a file, and ``force`` was not given.
        InputError: it cannot be written.
    """
    path = Path(target)
    check_free(path, force=force)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as raw:
            with open_compressor(raw, compress) as file:
                yield file
            raw.flush()
            os.fsync(raw.fileno())
        check_free(path, force=force)
        Path(name).replace(path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise InputError(f"{path} cannot be written: {error.strerror}") from error
        raise


def check_free(path: Path, *, force: bool) -> None:
    """That nothing is overwritten unasked.

    Raises:
        ConflictError: there is such a file.
    """
    if path.exists() and not force:
        raise ConflictError(f"{path} exists", hint="take another name, or add --force")


@contextmanager
def open_compressor(raw: IO[bytes], compress: bool) -> Iterator[IO[bytes]]:
    """What to write to, so that ``raw`` gets it compressed if that is asked for."""
    if not compress:
        yield raw
        return
    # without a name and a time in it, the same memory makes the same bytes
    with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as file:
        yield file  # type: ignore[misc]


class Lines(Protocol):
    """Numbered lines that can be gone through again and again."""

    @property
    def unit(self) -> str:
        """What the numbers count: "line", or "entry" of a document."""

    @property
    def left_out(self) -> int:
        """How many records the last pass left out on purpose."""

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The number of each line, from 1, and its bytes."""


class Source:
    """Lines that can be gone through again and again. What comes from a pipe is kept meanwhile in
    a file that nobody else can open."""

    unit = "line"
    left_out = 0

    def __init__(self, raw: IO[bytes], name: str) -> None:
        self.name = name
        self._raw = raw

    @classmethod
    @contextmanager
    def open_file(cls, path: str) -> Iterator[Source]:
        """The file of this name.

        Raises:
            InputError: it cannot be read.
        """
        try:
            raw = Path(path).open("rb")  # noqa: SIM115 - closed below
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
        with raw:
            yield cls(raw, path)

    @classmethod
    @contextmanager
    def spool(cls, stream: IO[bytes], name: str) -> Iterator[Source]:
        """What a stream brings that can be gone through once only."""
        with tempfile.TemporaryFile() as spool:
            shutil.copyfileobj(stream, spool)
            yield cls(spool, name)

    def rewind(self) -> Any:
        """The file from its beginning, decompressed if it is compressed."""
        self._raw.seek(0)
        start = self._raw.read(2)
        self._raw.seek(0)
        return gzip.GzipFile(fileobj=self._raw) if start == _GZIP else self._raw

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The number of each line, from 1, and its bytes with its end, if it has one.

        Raises:
            InputError: the file is compressed and ends or breaks on the way, or a line is longer
                than any can be; ``line`` is the first that was not read.
        """
        file = self.rewind()
        number = 0
        while True:
            number += 1
            try:
                line = file.readline(MAX_LINE)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise InputError(f"the compressed file is broken: {error}", line=number) from error
            if not line:
                return
            if len(line) == MAX_LINE:
                raise InputError("the line is too long to be one of a backup", line=number)
            yield number, line
