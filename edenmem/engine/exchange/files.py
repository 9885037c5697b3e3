"""Write files atomically, and read files and pipes several times."""

from __future__ import annotations

import errno
import fcntl
import gzip
import io
import lzma
import os
import re
import secrets
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from edenmem.engine.sessions.format import Spool
from edenmem.errors import (
    ConflictError,
    DiskFull,
    EdenmemError,
    InputError,
    UsageError,
    is_disk_full,
    unreadable,
)
from edenmem.settings.paths import lock, open_private

#: Suffix of files and folders that are being written.
PARTIAL = ".edenmem-partial"

#: Maximum length of a line in bytes, far above that of any exported line.
MAX_LINE = 64 * 1024 * 1024
#: Errors of reading a damaged compressed file.
DAMAGES = (EOFError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error)
_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"
#: The parts of an archive to import: of ChatGPT, of Claude, and of OpenMemory.
_PARTS = (
    re.compile(r"(?:^|/)conversations(?:-\d+)?\.json$"),
    re.compile(r"(?:^|/)memories\.json$"),
)
#: Maximum ratio of packing, far above real exports; parts of fewer than ``_SMALL`` bytes have none.
_MOST_PACKED, _SMALL = 200, 256 * 1024 * 1024
#: Bytes reserved for an output, more than most commands print.
_RESERVED = 64 * 1024


@contextmanager
def open_for_writing(
    target: str,
    *,
    compress: bool,
    force: bool,
    in_use: Callable[[], Iterable[Path]] = tuple,
) -> Iterator[IO[bytes]]:
    """Open a file for atomic writing, which only its owner can read (mode 0600).

    An overwritten file is replaced: its mode is not kept, and a symbolic link is not followed.
    Devices and pipes are written directly. Output that cannot get its name at the end is kept under
    another one.

    Args:
        target: The file, device or pipe.
        compress: Compress the file.
        force: Overwrite an existing file.
        in_use: Returns files never to overwrite; called before and after the work.

    Raises:
        ConflictError: the file exists, and ``force`` is not set.
        InputError: the file cannot be written.
        UsageError: the file is in use.
        DiskFull: the disk is full.
    """
    path = check_target(target, force=force, in_use=in_use)
    if is_stream(path):
        with _open_stream(path) as raw, open_compressor(raw, compress) as file:
            yield file
        return
    remove_abandoned(path.parent)
    with open_partial(path) as raw:
        _reserve(raw.fileno())
        with open_compressor(raw, compress) as file:
            yield file
        raw.truncate()
        save(raw)
        _finish(raw, path, force=force, in_use=in_use)
        sync_folder(path.parent)


def check_target(target: str, *, force: bool, in_use: Callable[[], Iterable[Path]] = tuple) -> Path:
    """Return the file to write for a name; the arguments are those of `open_for_writing`.

    Raises:
        ConflictError: the file exists, and ``force`` is not set.
        InputError: the file cannot be written.
        UsageError: the file is in use.
    """
    path = Path(target)
    check_not_in_use(path, in_use())
    if not is_stream(path):
        if os.path.lexists(path) and not force:
            raise ConflictError(f"{path} exists", hint="choose another name, or add --force")
        folder = path.absolute().parent
        if not os.access(folder, os.W_OK | os.X_OK):
            code = errno.EACCES if folder.exists() else errno.ENOENT
            raise write_error(path, OSError(code, os.strerror(code)))
    return path


def _finish(
    raw: IO[bytes], path: Path, *, force: bool, in_use: Callable[[], Iterable[Path]]
) -> None:
    """Give a complete file its name, or keep it under another name and raise the error."""
    partial = Path(raw.name)
    try:
        check_not_in_use(path, in_use())
        if force:
            partial.replace(path)
        elif not publish(partial, path):
            raise ConflictError(f"{path} exists")
    except (OSError, EdenmemError) as error:
        kept = partial.replace(path.with_name(f"{path.name}.{secrets.token_hex(4)}"))
        failure = write_error(path, error) if isinstance(error, OSError) else error
        failure.hint = f"the command is done, and its output is in {kept}"
        raise failure from None


def _reserve(descriptor: int) -> None:
    """Reserve space for a short output, so that a full disk is noticed before the work.

    Raises:
        OSError: the disk is full.
    """
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, _RESERVED)
        except OSError as error:  # otherwise the file system cannot reserve space
            if is_disk_full(error):
                raise


def check_not_in_use(path: Path, files: Iterable[Path]) -> None:
    """Check that a path is none of the given files, under any name.

    Raises:
        UsageError: the path is one of the files.
    """
    for file in files:
        is_same = os.path.realpath(path) == os.path.realpath(file)
        with suppress(OSError):
            is_same = is_same or path.samefile(file)
        if is_same:
            raise UsageError(f"edenmem is using {path}", hint="choose another name")


def is_stream(path: Path) -> bool:
    """Check whether a path is a device, a pipe or an open descriptor; a symbolic link is neither.

    Raises:
        InputError: the path cannot be read, or is a folder.
    """
    if _descriptor_of(str(path)) is not None:
        return True
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise write_error(path, error) from error
    if path.is_dir():
        raise InputError(f"{path} is a folder", hint="specify a file")
    return not stat.S_ISREG(mode) and not stat.S_ISLNK(mode)


def _descriptor_of(name: str) -> int | None:
    """Return the descriptor of a name such as ``/dev/stdout``."""
    named = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d+)", name)
    return int(named[1]) if named else {"/dev/stdout": 1, "/dev/stderr": 2}.get(name)


@contextmanager
def _open_stream(path: Path) -> Iterator[IO[bytes]]:
    """Open a device, a pipe or a descriptor for writing.

    Raises:
        InputError: the device cannot be written.
        DiskFull: the device is full.
    """
    named = _descriptor_of(str(path))
    try:
        opened = os.open(path, os.O_WRONLY | os.O_NOFOLLOW) if named is None else os.dup(named)
        with os.fdopen(opened, "wb") as raw:
            yield raw
    except BrokenPipeError:
        raise
    except OSError as error:
        raise write_error(path, error) from error


@contextmanager
def open_partial(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file in the folder of ``path``; remove the file unless it was renamed.

    The file is locked while its writer runs, so that `remove_abandoned` recognizes the files of
    killed processes.

    Raises:
        InputError: the file cannot be written.
        DiskFull: the disk is full.
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
        raw = open(name, "x+b", opener=open_private)  # noqa: SIM115 - closed by the caller
        lock(raw.fileno())
        if name.exists():  # otherwise another process removed the file before it was locked
            return raw
        raw.close()


def remove_abandoned(folder: Path, *, recursive: bool = False) -> None:
    """Remove the files of killed exports; those of running ones are locked."""
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
    """Flush a file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def publish(partial: Path, path: Path) -> bool:
    """Rename a file unless the name is taken; return whether it was renamed."""
    try:
        os.link(partial, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            return False
        partial.replace(path)
        return True
    partial.unlink()
    return True


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, if the file system supports that."""
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


@contextmanager
def open_compressor(raw: IO[bytes], compress: bool) -> Iterator[IO[bytes]]:
    """Open a file that compresses into ``raw`` if ``compress`` is set."""
    if not compress:
        yield raw
        return
    # No name and time, so that the same memory gives the same bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as file:
        yield file  # type: ignore[misc]


class _Parts(io.RawIOBase):
    """The exported parts of a zip archive, one after the other; nothing is unpacked to the disk."""

    def __init__(self, raw: IO[bytes]) -> None:
        try:
            self._archive = zipfile.ZipFile(raw)
        except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            raise InputError(f"the archive is damaged: {error}") from error
        listed = self._archive.infolist()
        found = ([part for part in listed if name.search(part.filename)] for name in _PARTS)
        parts = next(filter(None, found), [])
        if not parts:
            raise InputError(
                "the archive has no conversations.json and no memories.json",
                hint="unpack it, and import its files",
            )
        for part in parts:
            if part.file_size > max(_SMALL, part.compress_size * _MOST_PACKED):
                raise InputError(
                    f"the archive unpacks to {part.file_size:,} bytes of little content"
                )
            if part.flag_bits & 1:
                raise InputError("the archive is encrypted", hint="unpack it first")
        self._names = iter(sorted(each.filename for each in parts))
        self._name = ""
        self._part: IO[bytes] | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._part is None:
                name = next(self._names, None)
                if name is None:
                    return 0
                self._name = name
            try:
                self._part = self._part or self._archive.open(self._name)
                data = self._part.read(len(buffer))
            except (*DAMAGES, NotImplementedError, OSError, RuntimeError, lzma.LZMAError) as error:
                raise InputError(f"the archive is damaged at {self._name}: {error}") from error
            if data:
                buffer[: len(data)] = data
                return len(data)
            self._part = None


class Source:
    """A file that can be read several times; a pipe is buffered in a private file."""

    unit = "line"

    def __init__(self, raw: IO[bytes], name: str) -> None:
        self.name = name
        self._raw = raw

    @classmethod
    @contextmanager
    def open_file(cls, path: str) -> Iterator[Source]:
        """Open a file.

        Raises:
            NotFoundError: the file does not exist.
            InputError: the file cannot be read, or is empty.
        """
        try:
            raw = Path(path).open("rb")  # noqa: SIM115 - closed below
        except OSError as error:
            raise unreadable(path, error) from error
        with raw:
            source = cls(raw, path)
            if not source.start():  # a file that was cut must not look imported
                raise InputError(f"{path} is empty")
            yield source

    @classmethod
    @contextmanager
    def spool(cls, stream: IO[bytes], name: str) -> Iterator[Source]:
        """Buffer a stream that can be read only once."""
        with tempfile.TemporaryFile() as spool:
            shutil.copyfileobj(stream, spool)
            yield cls(spool, name)

    def start(self) -> bytes:
        """Return the first 16 bytes of the file, as they are on the disk."""
        self._raw.seek(0)
        return self._raw.read(16)

    def rewind(self) -> Any:
        """Return the file from its beginning, decompressed; of an archive the exported parts.

        Raises:
            InputError: an archive has no known parts, or is damaged.
        """
        start = self.start()
        self._raw.seek(0)
        if start.startswith(_ZIP):
            return io.BufferedReader(_Parts(self._raw))
        is_gzip = start.startswith(_GZIP)
        return gzip.GzipFile(fileobj=self._raw, mode="rb") if is_gzip else self._raw

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number of each line, from 1, and its bytes including the line end.

        Raises:
            InputError: a compressed file is damaged, or a line is too long; ``line`` is the first
                line that was not read.
        """
        file = self.rewind()
        number = 0
        while True:
            number += 1
            try:
                line = file.readline(MAX_LINE)
            except DAMAGES as error:
                raise InputError(f"the compressed file is damaged: {error}", line=number) from error
            if not line:
                return
            if len(line) == MAX_LINE:
                raise InputError("the line is too long", line=number)
            yield number, line


#: Numbered lines that can be read several times.
Lines = Source | Spool
