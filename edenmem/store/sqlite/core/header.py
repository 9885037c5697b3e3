"""What a file is, read from its first hundred bytes and without SQLite, which might write to it."""

from __future__ import annotations

import os
import stat
import threading
from enum import Enum
from pathlib import Path

from edenmem.errors import StoreError
from edenmem.store.common.migrations import newest

#: "EdMm" in the header's field for the application that a database belongs to.
APPLICATION_ID = 0x45644D6D
#: The number of the newest migration, which ``PRAGMA user_version`` holds.
SCHEMA_VERSION = newest()

_MAGIC = b"SQLite format 3\0"

#: Files that were opened here, by device and number; more than a process works with at a time.
_opened: dict[tuple[int, int], int] = {}
_MOST_OPENED = 64
_lock = threading.Lock()


class FileState(Enum):
    """What stands at a path."""

    MISSING = "missing"
    EMPTY = "empty"  # nothing yet: a file of no bytes, which `initialise` may use
    OLDER = "older"  # ours, of an older schema
    CURRENT = "current"


def file_state(path: Path) -> FileState:
    """What stands at ``path``.

    Raises:
        StoreError: something that is not ours, is of a newer edenmem, or cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise StoreError(f"{path} is not a file", hint="name a file with --uri or EDENMEM_URI")
        header = _first_bytes(path)
    except FileNotFoundError:
        return FileState.MISSING
    except NotADirectoryError:
        raise StoreError(f"{path} cannot exist: a part of its path is a file") from None
    except OSError as error:
        raise StoreError(
            f"{path} cannot be read: {error.strerror}", hint="check who owns the file"
        ) from error
    if not header:
        return FileState.EMPTY
    application = int.from_bytes(header[68:72], "big")
    if len(header) < 100 or not header.startswith(_MAGIC) or application != APPLICATION_ID:
        raise StoreError(
            f"{path} is not an edenmem database",
            hint="name another file with --uri or EDENMEM_URI; this one was left as it is",
        )
    return version_state(path, int.from_bytes(header[60:64], "big"))


def _first_bytes(path: Path) -> bytes:
    """A file's header.

    To close a file takes away every lock that this process has on it, and with them what tells
    another process not to delete the log that is written here. So a file that was once opened
    stays open, and is read without being opened again.
    """
    status = path.stat()
    key = (status.st_dev, status.st_ino)
    with _lock:
        descriptor = _opened.pop(key, None)
        if descriptor is None:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        _opened[key] = descriptor  # the last one is the one that was used last
        header = os.pread(descriptor, 100, 0)
        if len(_opened) > _MOST_OPENED:
            os.close(_opened.pop(next(iter(_opened))))
    return header


def version_state(path: Path, version: int) -> FileState:
    """How a schema's version compares with ours.

    Raises:
        StoreError: it is newer.
    """
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema version {version}; this edenmem knows up to {SCHEMA_VERSION}",
            hint="install a newer edenmem; the file was left as it is",
        )
    return FileState.CURRENT if version == SCHEMA_VERSION else FileState.OLDER


def log_of(path: Path) -> Path:
    """The write-ahead log of a file."""
    return path.with_name(path.name + "-wal")


def may_be_written(path: Path) -> bool:
    """Whether this process may write the file and the log, or make one beside it."""
    log = log_of(path)
    place_of_log = log if log.exists() else path.parent
    return os.access(path, os.W_OK) and os.access(place_of_log, os.W_OK)
