"""What a file is, read from its first hundred bytes and without SQLite, which might write to it."""

from __future__ import annotations

import os
import stat
from enum import Enum
from pathlib import Path

from edenmem.errors import StoreError
from edenmem.store.migrations import newest

#: "EdMm" in the header's field for the application that a database belongs to.
APPLICATION_ID = 0x45644D6D
#: The number of the newest migration, which ``PRAGMA user_version`` holds.
SCHEMA_VERSION = newest()

_MAGIC = b"SQLite format 3\0"


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
        with path.open("rb") as file:
            header = file.read(100)
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
