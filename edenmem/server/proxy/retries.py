"""Chats that could not be stored, and that are stored once the store is available again."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import time_ns
from typing import IO, TYPE_CHECKING

import msgspec

from edenmem.errors import DocumentDamaged, EdenmemError, StoreReadOnly, UnavailableError
from edenmem.server.problems import Refused, log_text
from edenmem.server.proxy.background import Background
from edenmem.server.state import Metrics

if TYPE_CHECKING:
    from edenmem.server.proxy.recording import Recording

_log = logging.getLogger(__name__)

#: Delay before the first retry; each further one waits twice as long, up to the longest.
_FIRST_DELAY, _LONGEST_DELAY = 1.0, 30.0
#: Maximum size of all waiting chats, in bytes.
_MOST_BYTES = 256 * 1024 * 1024
#: Approximate size of a waiting chat without its texts, in bytes.
_OVERHEAD = 16 * 1024
#: A chat is given up after this many failures, each while the store took other chats.
_MOST_ATTEMPTS = 20
#: An attempt for all lanes ends after this many failures in a row: the store is unavailable.
_MOST_FAILURES = 3


@dataclass(slots=True)
class _Waiting:
    """A waiting chat.

    ``size`` is its size in bytes, ``file`` its file, ``failures`` counts its failures, ``stored``
    is `Retries.stored` at the last one.
    """

    size: int
    file: Path | None = None
    failures: int = 0
    stored: int = 0


@dataclass(slots=True)
class _Lane:
    """The waiting chats of one lane, oldest first."""

    chats: dict[Recording, _Waiting] = field(default_factory=dict)
    attempt: asyncio.Lock = field(default_factory=asyncio.Lock)


class Retries:
    """Stores chats again until the store takes them or the server stops.

    A chat that fails holds back only the chats behind it in its lane.

    Args:
        background: Runs the retries, and ends them after a last attempt when the server stops.
        metrics: Counts chats that wait and chats that are lost.
        folder: The folder for chats that wait, so that they survive the process (None: none).

    Attributes:
        stored: Number of chats that the store took, late or not.
    """

    def __init__(
        self, background: Background, metrics: Metrics, folder: Path | None = None
    ) -> None:
        self._spool = None if folder is None else Spool(folder)
        self._background = background
        self._metrics = metrics
        self._lanes: dict[Hashable, _Lane] = {}
        self._count = self._size = self.stored = 0
        self._task: asyncio.Task[None] | None = None

    def add(self, chat: Recording) -> None:
        """Store a chat later; a chat that waits already keeps its place."""
        lane = self._lanes.get(chat.lane) or _Lane()
        waiting = lane.chats.get(chat)
        data = chat.pack()
        size = len(data) + _OVERHEAD
        if waiting is None and self._size + size > _MOST_BYTES:
            self._lose(chat, "memory", "too many chats wait for the store")
            return
        if not self._lanes:
            if self._task is not None:  # it may still wait for its next attempt
                self._task.cancel()
            self._task = self._background.start(self._run())
        self._lanes[chat.lane] = lane
        if waiting is None:
            file = None if self._spool is None else self._spool.name()
            waiting = lane.chats[chat] = _Waiting(0, file, stored=self.stored)
            self._count += 1
            self._metrics.chats_waiting.set(self._count)
        self._size += size - waiting.size
        waiting.size = size
        if waiting.file is not None:
            write(waiting.file, data)

    def load(self, unpack: Callable[[bytes], Recording]) -> None:
        """Add the chats that stopped and killed servers left on disk."""
        for data in self._spool.adopt() if self._spool is not None else ():
            try:
                self.add(unpack(data))
            except msgspec.MsgspecError as error:
                _log.error("a chat that waited on disk cannot be read: %s", error)

    def close(self) -> None:
        """Leave what is on disk to the next server."""
        if self._spool is not None:
            self._spool.close()

    async def attempt(self, key: Hashable) -> bool:
        """Store the waiting chats of a lane now; return whether none is left."""
        lane = self._lanes.get(key)
        if lane is None:
            return True
        async with lane.attempt:
            while lane.chats:
                chat, waiting = next(iter(lane.chats.items()))
                if not await self._store(chat, waiting):
                    return False
                self._remove(chat)
        return True

    async def _run(self) -> None:
        delay = _FIRST_DELAY
        while self._lanes:
            is_last = await self._background.closes_within(delay)
            await self._attempt_all()
            delay = min(2 * delay, _LONGEST_DELAY)
            if is_last:
                for lane in list(self._lanes.values()):
                    for chat, waiting in list(lane.chats.items()):
                        if waiting.file is None or not waiting.file.exists():
                            self._lose(chat, "stop", "the server stops")
                        waiting.file = None  # it waits for the next start
                        self._remove(chat)

    async def _attempt_all(self) -> None:
        failures = 0
        for key in list(self._lanes):
            if await self.attempt(key):
                failures = 0
                continue
            failures += 1
            self._lanes[key] = self._lanes.pop(key)  # the others come first next time
            if failures == _MOST_FAILURES:
                return

    async def _store(self, chat: Recording, waiting: _Waiting) -> bool:
        """Store a chat, and return whether it need not wait any longer."""
        try:
            await chat.store_late()
        except Refused as refused:
            self._lose(chat, "refused", f"status {refused.status_code}")
        except EdenmemError as error:
            waiting.failures += waiting.stored < self.stored
            waiting.stored = self.stored
            if _is_temporary(error) and waiting.failures < _MOST_ATTEMPTS:
                return False
            self._lose(chat, "error", log_text(error))
        except Exception as error:  # noqa: BLE001 - the next chat is not concerned
            self._lose(chat, "error", type(error).__name__, error)
        else:
            _log.warning("messages of a chat stored late")
        return True

    def _remove(self, chat: Recording) -> None:
        lane = self._lanes.get(chat.lane)
        if lane is None or chat not in lane.chats:  # the server stops
            return
        waiting = lane.chats.pop(chat)
        if waiting.file is not None:
            waiting.file.unlink(missing_ok=True)
        self._size -= waiting.size
        self._count -= 1
        self._metrics.chats_waiting.set(self._count)
        if not lane.chats:
            del self._lanes[chat.lane]

    def _lose(
        self, chat: Recording, reason: str, details: str, error: Exception | None = None
    ) -> None:
        _log.error("messages of a chat lost: %s", details, exc_info=error)
        if not chat.is_lost:
            chat.is_lost = True
            self._metrics.chats_lost.labels(reason).inc()


def _is_temporary(error: EdenmemError) -> bool:
    """Return whether the same write may succeed later, without a repair."""
    is_permanent = isinstance(error, StoreReadOnly | DocumentDamaged)
    return isinstance(error, UnavailableError) and not is_permanent


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
    """Lock a file until it is closed or the process ends; return whether it was free."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows: a second server takes over what waits
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
