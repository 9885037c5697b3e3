"""Notes of what leaves the engine, written in batches."""

from __future__ import annotations

import logging
from collections import deque
from threading import Lock, Timer
from typing import TYPE_CHECKING

from edenmem.errors import StoreError

if TYPE_CHECKING:
    from edenmem.models.told import Note
    from edenmem.settings.schema import Settings
    from edenmem.store.protocol.store import Store

_log = logging.getLogger(__name__)

#: Seconds that a note may wait for others.
_PATIENCE = 1.0
#: Maximum number of waiting notes.
MOST = 10_000


class Notes:
    """The notes that wait to be written, of all services on one store; safe for threads.

    Attributes:
        is_on: Whether notes are kept.
        lost: Number of notes that could not be written.
    """

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self.is_on = settings.told.days > 0 and not settings.store.read_only
        self.lost = 0
        self._waiting: deque[Note] = deque()
        self._timer: Timer | None = None
        self._writing = Lock()

    def add(self, note: Note | None) -> None:
        """Keep a note, if there is one, and write it soon."""
        if note is None or not self.is_on:
            return
        if len(self._waiting) >= MOST:
            self.lost += 1
            return
        self._waiting.append(note)
        if self._timer is None:
            self._timer = timer = Timer(_PATIENCE, self.flush)
            timer.daemon = True
            timer.start()

    def flush(self, *, is_last: bool = False) -> None:
        """Write the waiting notes; after a failure they wait for the next one. Blocks.

        Args:
            is_last: Count notes that cannot be written as lost.
        """
        with self._writing:
            self._timer = None  # first: what comes now has a timer of its own
            batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
            try:
                if batch:
                    self._store.told.add(batch)
            except StoreError as error:
                _log.warning("notes of replies are not written: %s", type(error).__name__)
                kept = [] if is_last else batch
                self.lost += len(batch) - len(kept)
                self._waiting.extendleft(reversed(kept))
