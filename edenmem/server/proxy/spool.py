"""Files of chats that wait for the store: they survive the process, and only this user reads them.

Each server has a folder of its own, and locks it. The folders of servers that have ended are not
locked, and the next server to start takes their files.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from time import time_ns
from typing import IO

_log = logging.getLogger(__name__)

_LOCK = "lock"


class Spool:
    """The files of one server.

    Args:
        base: The folder of all servers on one store.
    """

    def __init__(self, base: Path) -> None:
        self._base = base
        self._folder = base / f"{time_ns():020}-{os.getpid()}"
        self._numbers = count()
        self._lock: IO[bytes] | None = None

    def name(self) -> Path | None:
        """Return the next file, or None without a folder; names sort in the order of arrival."""
        if self._lock is None:
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock = _open_private(self._folder / _LOCK)
            except OSError as error:
                _log.error("chats that wait cannot be kept on disk: %s", error)
                return None
            _is_locked_now(self._lock)
        return self._folder / f"{next(self._numbers):012}.chat"

    def close(self) -> None:
        """Release the folder, and remove it if nothing is left for the next server."""
        if self._lock is None:
            return
        if not any(self._folder.glob("*.chat")):
            (self._folder / _LOCK).unlink(missing_ok=True)
            self._folder.rmdir()
        self._lock.close()
        self._lock = None

    def adopt(self) -> Iterator[bytes]:
        """Yield and remove the chats that ended servers left, in the order of arrival."""
        for folder in sorted(self._base.glob("*-*")):
            if folder == self._folder:
                continue
            try:
                with _open_private(folder / _LOCK) as lock:
                    if not _is_locked_now(lock):
                        continue  # its server runs
                    for file in sorted(folder.glob("*.chat")):
                        yield file.read_bytes()
                        file.unlink()
                    for file in folder.iterdir():
                        file.unlink()
                    folder.rmdir()
            except OSError as error:
                _log.error("chats that wait on disk cannot be read: %s", error)


def write(file: Path, data: bytes) -> None:
    """Write a file at once, readable by this user only."""
    try:
        part = file.with_suffix(".part")
        with _open_private(part) as out:
            out.write(data)
        part.replace(file)
    except OSError as error:  # it waits in memory alone
        _log.error("a chat that waits cannot be kept on disk: %s", error)


def _open_private(path: Path) -> IO[bytes]:
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600))


def _is_locked_now(file: IO[bytes]) -> bool:
    """Lock a file until it is closed or the process ends; return whether nobody else has."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows: a second server takes over what waits
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
