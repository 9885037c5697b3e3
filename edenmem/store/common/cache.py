"""Cache values up to a total size, safe for threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Keep values of a total size; the least recently used go first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._known: OrderedDict[K, tuple[int, V]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""
        with self._lock:
            if key not in self._known:
                return None
            self._known.move_to_end(key)
            return self._known[key][1]

    def put(self, key: K, value: V, size: int = 1) -> None:
        """Store a value in place of the one before, unless it exceeds the limit alone."""
        with self._lock:
            self._held -= self._known.pop(key, (0, None))[0]
            if size > self._limit:
                return
            self._known[key] = (size, value)
            self._held += size
            while self._held > self._limit:
                self._held -= self._known.popitem(last=False)[1][0]
