"""Chats that could not be stored, and that are stored once the store is available again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from edenmem.errors import DocumentDamaged, EdenmemError, StoreReadOnly, UnavailableError
from edenmem.server.problems import log_text
from edenmem.server.proxy.background import Background

_log = logging.getLogger(__name__)

#: Delay before the first retry; each further one waits twice as long, up to the longest.
_FIRST_DELAY, _LONGEST_DELAY = 1.0, 30.0
#: Maximum size of all waiting requests, in bytes.
_MOST_BYTES = 256 * 1024 * 1024
#: Approximate size of a waiting chat without its request, in bytes.
_OVERHEAD = 16 * 1024
#: An attempt for all chats ends after this many failures: the store is still unavailable.
_MOST_FAILURES = 3


class _Waiting(NamedTuple):
    save: Callable[[], Awaitable[None]]
    size: int


class Retries:
    """Stores chats again, in order, until the store takes them or the server stops.

    Args:
        background: Runs the retries, and ends them after a last attempt when the server stops.
    """

    def __init__(self, background: Background) -> None:
        self._background = background
        self._waiting: dict[object, _Waiting] = {}
        self._size = 0
        self._attempt = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def add(self, chat: object, save: Callable[[], Awaitable[None]], size: int) -> None:
        """Store a chat later.

        Args:
            chat: The chat. It waits at most once.
            save: Stores the chat; must be idempotent.
            size: Size of the request, in bytes.
        """
        size += _OVERHEAD
        before = self._waiting.get(chat)
        total = self._size + size - (before.size if before else 0)
        if total > _MOST_BYTES:
            _log.error("messages of a chat lost: too many chats wait for the store")
            return
        if not self._waiting:
            if self._task is not None:  # it may still wait for its next attempt
                self._task.cancel()
            self._task = self._background.start(self._run())
        self._waiting[chat], self._size = _Waiting(save, size), total

    async def attempt(self) -> None:
        """Store all waiting chats now, unless the store is still unavailable."""
        if not self._waiting:
            return
        async with self._attempt:
            failures = 0
            for chat, waiting in list(self._waiting.items()):
                failures += not await self._save(chat, waiting)
                if failures == _MOST_FAILURES:
                    return

    async def _run(self) -> None:
        delay = _FIRST_DELAY
        while self._waiting:
            is_last = await self._background.closes_within(delay)
            await self.attempt()
            delay = min(2 * delay, _LONGEST_DELAY)
            if is_last and self._waiting:
                _log.error("messages of %d chats lost: the server stops", len(self._waiting))
                self._waiting.clear()
                self._size = 0

    async def _save(self, chat: object, waiting: _Waiting) -> bool:
        """Store a chat, and return whether it is done."""
        try:
            await waiting.save()
            _log.warning("messages of a chat stored late")
        except EdenmemError as error:
            if is_temporary(error):
                return False
            _log.error("messages of a chat not stored: %s", log_text(error))
        except Exception as error:  # noqa: BLE001 - the next chat is not concerned
            _log.error("messages of a chat not stored", exc_info=error)
        if self._waiting.get(chat) is waiting:  # and was not added again meanwhile
            del self._waiting[chat]
            self._size -= waiting.size
        return True


def is_temporary(error: EdenmemError) -> bool:
    """Return whether the same write may succeed later, without a repair."""
    is_permanent = isinstance(error, StoreReadOnly | DocumentDamaged)
    return isinstance(error, UnavailableError) and not is_permanent
