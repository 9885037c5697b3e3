"""Files that are written whole or not at all, and read more than once."""

from __future__ import annotations

import fcntl
import gzip
import os
import secrets
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol

from edenmem.errors import ConflictError, DiskFull, EdenmemError, InputError, is_disk_full

#: The end of the name of a file or folder that is still being written.
PARTIAL = ".edenmem-partial"

#: The longest line that is read; one of ours is far below it.
MAX_LINE = 64 * 1024 * 1024
_GZIP = b"\x1f\x8b"


@contextmanager
def open_for_writing(target: str, *, compress: bool, force: bool) -> Iterator[IO[bytes]]:
    """Open a file that takes its name only when all of it is on the disk.

    Only its owner can read it (mode 0600).

    Raises:
        ConflictError: the file exists and ``force`` was not given.
        InputError: the file cannot be written.
        DiskFull: the disk has no room for it.
    """
    path = Path(target)
    check_free(path, force=force)
    remove_abandoned(path.parent)
    with open_partial(path) as raw:
        with open_compressor(raw, compress) as file:
            yield file
        save(raw)
        check_free(path, force=force)
        Path(raw.name).replace(path)
        sync_folder(path.parent)


@contextmanager
def open_partial(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file beside ``path`` and remove it at the end, unless it was renamed.

    The lock on the file ends with its writer, so `remove_abandoned` can tell which files belong to
    a process that was killed.

    Raises:
        InputError: the file cannot be written.
        DiskFull: the disk has no room for it.
    """
    name = ""
    try:
        with _create_locked(path) as raw:
            name = raw.name
            yield raw
    except BrokenPipeError:
        raise
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        if name:
            Path(name).unlink(missing_ok=True)


def _create_locked(path: Path) -> IO[bytes]:
    while True:
        name = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
        raw = open(name, "x+b", opener=_open_private)  # noqa: SIM115 - closed by the caller
        lock(raw.fileno())
        if name.exists():  # otherwise another process removed the file before it was locked
            return raw
        raw.close()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def lock(descriptor: int) -> None:
    """Hold a file or folder as in use for as long as it is open, where the file system can."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def remove_abandoned(folder: Path, *, recursive: bool = False) -> None:
    """Remove what killed exports left in a folder; the files of running ones are locked."""
    pattern = f".*{PARTIAL}"
    for path in list(folder.rglob(pattern) if recursive else folder.glob(pattern)):
        with suppress(OSError):
            is_folder = path.is_dir()
            access = os.O_RDONLY if is_folder else os.O_RDWR
            descriptor = os.open(path, access | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_folder:
                    shutil.rmtree(path)
                else:
                    path.unlink()
            finally:
                os.close(descriptor)


def save(file: IO[bytes]) -> None:
    """Bring what was written to the disk."""
    file.flush()
    os.fsync(file.fileno())


def publish(partial: Path, path: Path) -> bool:
    """Rename a file unless the name is taken; return whether it was free."""
    try:
        os.link(partial, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if path.exists():
            return False
        partial.replace(path)
        return True
    partial.unlink()
    return True


def sync_folder(folder: Path) -> None:
    """Bring a new name to the disk, where the file system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_error(path: Path, error: OSError) -> EdenmemError:
    """Return the error for a file that cannot be written."""
    if is_disk_full(error):
        return DiskFull(str(path))
    return InputError(f"{path} cannot be written: {error.strerror}")


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
        return gzip.GzipFile(fileobj=self._raw, mode="rb") if start == _GZIP else self._raw

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
