"""The file of seals, outside the database: one line for each seal, and for each accepted restore.

An attacker with the database and without this file cannot make seals that continue its seals.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from edenmem.engine.seals.hashes import NO_SEAL, Header
from edenmem.errors import DiskFull, InputError, is_disk_full, unreadable
from edenmem.settings.paths import lock, open_private


class Restore(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="restore"):
    """An accepted restore: the seals after ``number`` no longer apply."""

    number: int
    hash: str
    at: str
    by: str


class SealFile:
    """The seals of a file; ``seals`` has the headers that apply, by number from 1.

    Raises:
        InputError: the file cannot be read, or its seals are no chain.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.seals: list[Header] = []
        #: The length of the whole lines, and of a line that a killed process began.
        self._size = self._torn = 0
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise unreadable(path, error) from error
        *lines, torn = raw.split(b"\n")
        self._size, self._torn = len(raw) - len(torn), len(torn)
        for number, line in enumerate(lines, 1):
            if not self._take(line):
                damaged = InputError("not the next seal, or changed", line=number)
                damaged.name_file(path)
                raise damaged

    def hash_at(self, number: int) -> str:
        """Return the hash of a seal; `NO_SEAL` for 0, and where the file has none."""
        return self.seals[number - 1].hash if 0 < number <= len(self.seals) else NO_SEAL

    def _take(self, line: bytes) -> bool:
        try:
            item = msgspec.json.decode(line, type=Header | Restore)
        except msgspec.DecodeError:
            return False
        if isinstance(item, Restore):
            is_known = item.number <= len(self.seals) and item.hash == self.hash_at(item.number)
            del self.seals[item.number :]
            return is_known
        if item in self.seals:
            return True  # another process appended it at the same time
        number = len(self.seals)
        is_next = item.number == number + 1 and item.previous == self.hash_at(number)
        self.seals.append(item)
        return is_next and item.is_whole

    def append(self, items: Sequence[Header | Restore]) -> None:
        """Append items, and flush them to the disk.

        Raises:
            InputError: the file cannot be written.
            DiskFull: the disk is full.
        """
        if not items:
            return
        try:
            descriptor = open_private(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            with os.fdopen(descriptor, "ab") as file:
                lock(descriptor)
                if self._torn and os.fstat(descriptor).st_size == self._size + self._torn:
                    file.truncate(self._size)
                file.write(b"".join(msgspec.json.encode(item) + b"\n" for item in items))
                file.flush()
                os.fsync(descriptor)
        except OSError as error:
            if is_disk_full(error):
                raise DiskFull(str(self.path)) from error
            raise InputError(f"{self.path} cannot be written: {error.strerror}") from error
